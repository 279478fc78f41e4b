import math

import pytest

from orchestrator.yaml_value import read_value, read_values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("5", 5),
        ("010", 10),
        ("0x1f", 31),
        ("true", True),
        ("on", "on"),
        ("no", "no"),
        ("1:30", "1:30"),
        ("2026-12-01", "2026-12-01"),
        ("", None),
        ("~", None),
        ("'1'", "1"),
        ("gpu:H100", "gpu:H100"),
        ("{lr: 1e-3}", {"lr": 0.001}),
        (".inf", math.inf),
    ],
)
def test_values_are_read_as_yaml_1_2(text, value):
    found = read_value(text)
    assert found == value
    assert type(found) is type(value)


def test_a_list_is_split_at_its_own_commas_only():
    assert read_values("[64, 64],[128],'a,b'") == [[64, 64], [128], "a,b"]


@pytest.mark.parametrize("text", ["[1", "a: b: c", "!!python/object/apply:os.getcwd []"])
def test_what_is_no_plain_yaml_is_refused(text):
    with pytest.raises(ValueError):
        read_value(text)
