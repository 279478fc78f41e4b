"""The processor itself: a trial takes cores, and as many workers as the user wants."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

from orchestrator.devices.base import DeviceShape, DeviceType, Node


class Cpu(DeviceType):
    name = "cpu"
    resource = "CPU"

    def count(self, node: Node) -> int:
        return node.cpus

    def model(self, node: Node) -> str | None:
        return None

    def local_model(self) -> str | None:
        try:
            lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        except OSError:  # not Linux
            return platform.processor() or platform.machine() or None
        names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
        return next(names, None) or platform.machine() or None

    def workers(self, devices: int, requested: int | None, nodes: Sequence[Node] = ()) -> int:
        if devices != 1:
            raise ValueError(f"devices = {devices} has no meaning on cpu; set workers instead")
        return requested or 1

    def bundle(self, shape: DeviceShape) -> dict[str, float]:
        return {"CPU": float(shape.cpus_per_worker)}
