"""The frameworks, in plain sight."""

from __future__ import annotations

import importlib

from orchestrator.frameworks.base import Framework, Session, TrialSettings, WorkerFacts

__all__ = ["Framework", "Session", "TrialSettings", "WorkerFacts", "create_framework"]


_TORCH, _XLA = "torch:Torch", "torch_xla:TorchXla"
_TPU, _TENSORFLOW = "torch_tpu:TorchTpu", "tensorflow:TensorFlow"

# (framework, device type) -> module:class in this package
PLUGS = {
    ("torch", "cpu"): _TORCH,
    ("torch", "gpu"): _TORCH,
    ("torch", "tpu"): _XLA,
    ("torch_xla", "cpu"): _XLA,
    ("torch_xla", "tpu"): _XLA,
    ("torch_tpu", "tpu"): _TPU,
    ("tensorflow", "cpu"): _TENSORFLOW,
    ("tensorflow", "gpu"): _TENSORFLOW,
    ("tensorflow", "tpu"): _TENSORFLOW,
}


def create_framework(name: str, device_type: str) -> Framework:
    """The plug for a framework on a device type; loads only the libraries of that one."""
    plug = PLUGS.get((name, device_type))
    if plug is None:
        raise ValueError(f"{name} does not run on {device_type}")
    module, _, class_name = plug.partition(":")
    return getattr(importlib.import_module(f"orchestrator.frameworks.{module}"), class_name)()
