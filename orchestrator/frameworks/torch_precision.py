"""How torch trains at a precision, and which one it really trained at."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from orchestrator.precision import Precision

_AUTOCAST = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}
_NAMES = {
    (torch.float32, torch.float32): Precision.FP32,
    (torch.float32, torch.bfloat16): Precision.BF16,
    (torch.float32, torch.float16): Precision.FP16,
    (torch.bfloat16, torch.bfloat16): Precision.BF16_TRUE,
}
_ON_GPU: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn)
_ON_CPU: tuple[Any, ...] = (torch.backends.mkldnn.matmul, torch.backends.mkldnn.conv, torch.backends.mkldnn.rnn)
_MULTIPLY = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Bilinear)


class TorchPrecision:
    """The precision of one trial. Sets TF32 for the whole process: `fp32` means fp32."""

    def __init__(self, precision: Precision, device_type: str) -> None:
        self._precision, self._device_type = precision, device_type
        self._dtype = _AUTOCAST.get(precision)
        self._nothing: AbstractContextManager[None] = contextlib.nullcontext()
        self.scaler = torch.amp.GradScaler(device_type) if precision is Precision.FP16 else None
        self.effective: Precision | None = None
        self._hooks: list[Any] = []
        _set_products("tf32" if precision is Precision.TF32 else "ieee")

    def autocast(self) -> AbstractContextManager[Any]:
        return self._nothing if self._dtype is None else torch.autocast(self._device_type, dtype=self._dtype)

    def apply(self, model: nn.Module) -> None:
        """Give the model's weights their type, and watch its first products."""
        if self._precision is Precision.BF16_TRUE:
            model.to(torch.bfloat16)
            model.register_forward_pre_hook(_cast_inputs(torch.bfloat16), with_kwargs=True)
            model.register_forward_hook(_cast_outputs(torch.float32))
        layer = next((layer for layer in model.modules() if isinstance(layer, _MULTIPLY)), None)
        if layer is not None and self.effective is None:
            self._hooks.append(layer.register_forward_hook(self._look))

    def _look(self, layer: nn.Module, inputs: Any, output: torch.Tensor) -> None:
        """Which types the first product in training really had."""
        if not torch.is_grad_enabled():
            return
        assert isinstance(layer.weight, torch.Tensor)
        found = _NAMES.get((layer.weight.dtype, output.dtype))
        if found is Precision.FP32 and self._device_type == "cuda" and uses_tf32():
            found = Precision.TF32
        self.effective = found
        self.close()

    def close(self) -> None:
        """Look no longer."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()


def _set_products(kind: str) -> None:
    """How 32-bit products are computed from now on: "ieee" in full, "tf32" on the tensor cores of a GPU. The CPU
    always computes them in full."""
    torch.set_float32_matmul_precision("highest")  # else an earlier "medium" would stay in force on the CPU
    for room in _ON_GPU:
        room.fp32_precision = kind
    for room in _ON_CPU:
        room.fp32_precision = "ieee"


def uses_tf32() -> bool:
    """Does this process compute 32-bit matrix products on the current GPU in TF32?"""
    return torch.backends.cuda.matmul.fp32_precision == "tf32" and torch.cuda.get_device_capability() >= (8, 0)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    """The floating-point tensors in nested tuples, lists and mappings, as `dtype`."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, Mapping):
        return {key: _cast(item, dtype) for key, item in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(_cast(item, dtype) for item in value)
    return value


def _cast_inputs(dtype: torch.dtype) -> Callable[..., Any]:
    return lambda model, inputs, named: (_cast(inputs, dtype), _cast(named, dtype))


def _cast_outputs(dtype: torch.dtype) -> Callable[..., Any]:
    return lambda model, inputs, output: _cast(output, dtype)
