"""How numbers, times, devices and settings are written for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.masking import mask_settings
from orchestrator.report.ledger import Device
from orchestrator.results import is_finite
from orchestrator.trial import flatten

UNKNOWN = "-"


def number(value: float | None) -> str:
    """Four significant digits or four decimals: 0.9731, 12.5, 1.3e-05, NaN."""
    if value is None:
        return UNKNOWN
    if not is_finite(value):
        return "NaN" if value != value else "inf" if value > 0 else "-inf"
    if isinstance(value, int):
        return str(value)
    return f"{value:.4f}" if 0.001 <= abs(value) < 10 else f"{value:.4g}" if abs(value) < 1e6 else f"{value:.3e}"


def whole(value: float | None) -> str:
    """12,345."""
    return UNKNOWN if value is None or not is_finite(value) else f"{value:,.0f}"


def seconds(value: float | None) -> str:
    """0.31, 4.2, 75."""
    if value is None or not is_finite(value):
        return UNKNOWN
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 10 else f"{value:.0f}"


def milliseconds(value_s: float | None) -> str:
    """0.512, 3.21, 45.1 of a time in seconds."""
    if value_s is None or not is_finite(value_s):
        return UNKNOWN
    value = value_s * 1000
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 10 else f"{value:,.1f}"


def duration(value_s: float) -> str:
    """4.2 s, 1:05 min, 2:03:07 h."""
    if value_s < 60:
        return f"{seconds(value_s)} s"
    minutes, rest = divmod(round(value_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} h" if hours else f"{minutes}:{rest:02} min"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def device_name(device: Device) -> str:
    """cpu, gpu H100, 8 x tpu v6e (emulated)."""
    if device.type is None:
        return UNKNOWN
    count = f"{device.count} x " if device.count and device.count > 1 else ""
    # A CPU's model is a long text of the vendor's and says little in a comparison; summary and tags have it.
    model = f" {device.model.removeprefix('NVIDIA ')}" if device.model and device.type != "cpu" else ""
    return f"{count}{device.type}{model}{' (emulated)' if device.emulated else ''}"


def precision_name(requested: str, effective: str | None) -> str:
    """The precision in effect, and what was asked for where that differs."""
    return requested if effective in (None, requested) else f"{effective} (asked {requested})"


def value_text(value: Any) -> str:
    """A setting's value: 0.05, 1e-05, adam."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def other_settings(swept: Iterable[str]) -> list[str]:
    """The swept settings that have no column and no place in a sentence of their own."""
    return [name for name in swept if name not in ("device", "precision", "batch_size")]


def settings_text(config: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """["lr 0.05", "optimizer.name sgd"] for those of the settings that the configuration has."""
    flat = flatten(mask_settings(config))
    return [f"{name} {value_text(flat[name])}" for name in names if name in flat]
