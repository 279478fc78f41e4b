"""The device types that the orchestrator places trials on, in the order in which it prefers them."""

from __future__ import annotations

from orchestrator.devices.base import DeviceShape, DeviceType, Node
from orchestrator.devices.cpu import Cpu
from orchestrator.devices.gpu import Gpu
from orchestrator.errors import nearest

__all__ = ["DEVICE_TYPES", "DeviceShape", "DeviceType", "Node", "parse_device"]

DEVICE_TYPES: dict[str, DeviceType] = {device.name: device for device in (Gpu(), Cpu())}


def parse_device(name: str) -> tuple[str, str | None]:
    """("gpu", "H100") for "gpu:H100", ("cpu", None) for "cpu".

    Raises:
        ValueError: no such device type; the message lists those that exist.
    """
    kind, _, model = name.partition(":")
    if kind not in DEVICE_TYPES:
        allowed = ", ".join(["any", "each", *DEVICE_TYPES])
        guess = nearest(kind, DEVICE_TYPES)
        raise ValueError(f"device = {name!r} does not exist{guess}; allowed: {allowed}, or narrower: gpu:H100")
    return kind, model or None
