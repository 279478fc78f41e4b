"""The frameworks, in plain sight."""

from __future__ import annotations

from orchestrator.frameworks.base import Framework, Session, TrialSettings, WorkerFacts

__all__ = ["Framework", "Session", "TrialSettings", "WorkerFacts", "create_framework"]


def create_framework(name: str, device_type: str) -> Framework:
    """The plug for a framework on a device type; loads only the libraries of that one."""
    if name == "torch" and device_type in ("cpu", "gpu"):
        from orchestrator.frameworks.torch import Torch

        return Torch()
    raise ValueError(f"{name} does not run on {device_type}")
