"""Names of precisions, and the table of what runs where."""

from __future__ import annotations

import pytest

from orchestrator.devices import DEVICE_TYPES
from orchestrator.experiment import FRAMEWORKS
from orchestrator.precision import ALIASES, TABLE, Precision, substitute, support


@pytest.mark.parametrize(
    ("name", "precision"),
    [("32-true", "fp32"), ("BF16-mixed", "bf16"), (" mixed_bfloat16 ", "bf16"), ("16-mixed", "fp16"), (32, "fp32"),
     (Precision.TF32, "tf32")],
)  # fmt: skip
def test_names_of_other_tools_are_understood(name, precision):
    assert Precision.parse(name) == precision


def test_every_alias_leads_to_a_precision_and_hides_none():
    assert all(Precision(name) for name in ALIASES.values())
    assert not set(ALIASES) & set(Precision)


def test_an_unknown_name_is_refused_with_the_nearest_and_all_that_exist():
    with pytest.raises(ValueError, match=r'did you mean "bfloat16"\?.*fp32, tf32, bf16, bf16-true, fp16, fp8'):
        Precision.parse("bfloat61")


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("device", DEVICE_TYPES)
@pytest.mark.parametrize("precision", Precision)
def test_the_table_has_an_answer_for_every_pair_and_a_reason_for_every_no(framework, device, precision):
    answer = support(framework, device, precision)
    assert answer.supported or answer.reason
    assert answer.reason or not answer.slow


def test_every_row_of_the_table_is_complete():
    assert all(set(row) == set(Precision) for row in TABLE.values())


def test_tf32_is_for_gpus_only():
    assert support("torch", "gpu", Precision.TF32).supported
    assert not support("torch", "cpu", Precision.TF32).supported


def test_an_unknown_device_supports_nothing():
    assert not support("torch", "abacus", Precision.FP32).supported


@pytest.mark.parametrize(
    ("device", "wanted", "found"), [("cpu", "tf32", "fp32"), ("cpu", "fp8", "bf16"), ("gpu", "fp8", "bf16")]
)
def test_the_substitute_is_the_nearest_that_runs(device, wanted, found):
    assert substitute("torch", device, Precision(wanted)) == found


def test_without_any_that_runs_there_is_no_substitute():
    assert substitute("torch", "abacus", Precision.BF16) is None
