"""The settings that mean the same in every framework."""

from __future__ import annotations

import pytest

from orchestrator.settings import STANDARD_SETTINGS, fault_of, with_defaults


@pytest.mark.parametrize("name", ["batch_size", "epochs", "workers", "devices", "cpus_per_worker"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "8", True, None])
def test_counts_are_whole_numbers_from_one(name, value):
    fault = fault_of(name, value)
    assert fault is not None and fault.startswith(f"{name} = {value!r} is not allowed") and "at least 1" in fault


@pytest.mark.parametrize(
    ("name", "value"),
    [("batch_size", 64), ("seed", 0), ("seed", 2**32 - 1), ("device", "any"), ("device", "each"),
     ("device", "gpu:H100"), ("precision", "bf16-mixed"), ("precision", 16)],
)  # fmt: skip
def test_good_values_have_no_fault(name, value):
    assert fault_of(name, value) is None


@pytest.mark.parametrize("value", [-1, 2**32, 0.5, "0", True])
def test_a_seed_fits_into_32_bits(value):
    assert "0 to 4294967295" in (fault_of("seed", value) or "")


def test_an_unknown_device_is_refused_with_those_that_exist():
    fault = fault_of("device", "gup") or ""
    assert 'did you mean "gpu"?' in fault and "cpu" in fault and "each" in fault


def test_an_unknown_precision_is_refused_with_those_that_exist():
    fault = fault_of("precision", "fp31") or ""
    assert 'did you mean "fp32"?' in fault and "bf16-true" in fault


def test_the_users_own_settings_are_not_checked():
    assert fault_of("lr", "anything") is None
    assert "lr" not in STANDARD_SETTINGS


def test_defaults_fill_what_is_not_set_and_keep_the_rest():
    config = with_defaults({"lr": 0.1, "epochs": 7, "precision": "bfloat16"})
    assert config == {"lr": 0.1, "epochs": 7, "precision": "bf16", "batch_size": 32, "seed": 0}
