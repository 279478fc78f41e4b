"""How torch trains at a precision, and which one it really trained at."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from orchestrator.frameworks.torch_nested import map_leaves
from orchestrator.frameworks.torch_state import set_tf32
from orchestrator.precision import Precision

_AUTOCAST = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}
_NAMES = {
    (torch.float32, torch.float32): Precision.FP32,
    (torch.float32, torch.bfloat16): Precision.BF16,
    (torch.float32, torch.float16): Precision.FP16,
    (torch.bfloat16, torch.bfloat16): Precision.BF16_TRUE,
}
_MULTIPLY = (
    nn.Linear,
    nn.Bilinear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)


class TorchPrecision:
    """The precision of one trial. It rules the whole process: `fp32` means fp32.

    Attributes:
        effective: the precision found on real tensors in the first step, in words where it has no name; None until
            then, and for a model without a layer that multiplies.
    """

    def __init__(self, precision: Precision, device: torch.device) -> None:
        self._precision, self._device = precision, device
        self._dtype = _AUTOCAST.get(precision)
        self._looks: list[_Look] = []
        self.effective: str | None = None
        set_tf32(precision is Precision.TF32)

    def autocast(self) -> AbstractContextManager[Any]:
        if self._dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, dtype=self._dtype)

    def apply(self, model: nn.Module) -> None:
        """Look at the model's products, and give its weights their type."""
        # First, for a model that is one layer: its output is looked at before it is cast.
        self._looks += [_Look(layer) for layer in model.modules() if isinstance(layer, _MULTIPLY)]
        if self._precision is Precision.BF16_TRUE:
            model.to(torch.bfloat16)
            model.register_forward_pre_hook(_cast_inputs, with_kwargs=True)
            model.register_forward_hook(_cast_outputs)

    def find(self) -> None:
        """Find the effective precision, after a forward pass in training; warns where it is not the trial's.

        Waits for the device once in a trial.
        """
        types = next((look.types for look in self._looks if look.types), None)
        self.close()
        if types is None:
            return
        weights, products = types
        found: str | None = _NAMES.get(types)
        if found is Precision.FP32:
            found = _precision_of_products(self._device)
        self.effective = str(found or f"{weights} weights, {products} products".replace("torch.", ""))
        if self.effective != self._precision:
            print(
                f"warning: the trial is to train at {self._precision}, but its first products were computed at "
                f"{self.effective}: is the model called inside run.autocast()?",
                file=sys.stderr,
            )

    def close(self) -> None:
        """Look no longer."""
        for look in self._looks:
            look.close()
        self._looks.clear()


class _Look:
    """Notes the types of a layer's weights and of what it computed, when gradients are wanted."""

    def __init__(self, layer: nn.Module) -> None:
        self.types: tuple[torch.dtype, torch.dtype] | None = None
        self._is_compiled = False
        self._hook = layer.register_forward_hook(self._note)

    def _note(self, layer: Any, inputs: Any, output: torch.Tensor) -> None:
        if torch.is_grad_enabled():
            self.types = layer.weight.dtype, output.dtype
            self._is_compiled = torch.compiler.is_compiling()

    def close(self) -> None:
        if not self._is_compiled:  # else it is part of the compiled code, which would be compiled again without it
            self._hook.remove()


def _precision_of_products(device: torch.device) -> str:
    """How the device multiplies 32-bit numbers now, whatever the switches say: with bits of the mantissa that only
    fp32 keeps (23), or only fp32 and TF32 (10)."""
    size = 64  # smaller ones are not worth a faster way to libraries, and are computed in full
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        one = torch.eye(size, dtype=torch.float32, device=device)

        def keeps(number: float) -> bool:
            return bool(((one * number) @ one).diagonal().eq(number).all())

        if keeps(1 + 2**-20):
            return Precision.FP32
        return Precision.TF32 if keeps(1 + 2**-9) else "float32 weights, products in bfloat16 inside"


def _cast(dtype: torch.dtype) -> Callable[[Any], Any]:
    return lambda item: item.to(dtype) if isinstance(item, torch.Tensor) and item.is_floating_point() else item


def _cast_inputs(model: nn.Module, inputs: Any, named: Any) -> Any:
    return map_leaves(_cast(torch.bfloat16), inputs), map_leaves(_cast(torch.bfloat16), named)


def _cast_outputs(model: nn.Module, inputs: Any, output: Any) -> Any:
    return map_leaves(_cast(torch.float32), output)
