"""The settings that mean the same in every framework, and the checks of their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.devices import parse_device
from orchestrator.precision import Precision

DEFAULT_BATCH_SIZE = 32


def _device(value: Any) -> None:
    if value not in ("any", "each"):
        parse_device(str(value))


def _positive(name: str, meaning: str) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} = {value!r} is not allowed: a whole number of at least 1 ({meaning})")

    return check


def _seed(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**32:
        raise ValueError(f"seed = {value!r} is not allowed: a whole number from 0 to 4294967295")


_CHECKS: dict[str, Callable[[Any], object]] = {
    "device": _device,
    "devices": _positive("devices", "accelerators per trial"),
    "workers": _positive("workers", "processes per trial"),
    "cpus_per_worker": _positive("cpus_per_worker", "cores per process"),
    "precision": Precision.parse,
    "batch_size": _positive("batch_size", "samples per optimizer step over all devices"),
    "epochs": _positive("epochs", "passes over the training rows"),
    "seed": _seed,
}

STANDARD_SETTINGS = tuple(_CHECKS)


def fault_of(name: str, value: Any) -> str | None:
    """What is wrong with a value of a standard setting; None if nothing is, or the setting is the user's."""
    check = _CHECKS.get(name)
    if check is None:
        return None
    try:
        check(value)
    except ValueError as error:
        return str(error)
    return None


def with_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with `precision`, `batch_size`, `epochs` and `seed` filled in where not set."""
    defaults = {"precision": "fp32", "batch_size": DEFAULT_BATCH_SIZE, "epochs": 1, "seed": 0}
    merged = {**defaults, **config}
    merged["precision"] = str(Precision.parse(merged["precision"]))
    return merged
