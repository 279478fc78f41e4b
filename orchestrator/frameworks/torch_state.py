"""What a trial may change in torch for its whole process, and putting it back."""

from __future__ import annotations

import gc
import itertools
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from orchestrator.frameworks.torch_compiler import forget_compiled
from orchestrator.frameworks.torch_random import random_states, set_random_states

_FLAGS: tuple[tuple[Any, str], ...] = (
    (torch.backends.cudnn, "benchmark"),
    (torch.backends.cudnn, "deterministic"),
    (torch.backends.cudnn, "enabled"),
    (torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
    (torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
)
_SWITCHES: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
    (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
    (torch.backends.cuda.cudnn_sdp_enabled, torch.backends.cuda.enable_cudnn_sdp),
)
_AUTOCAST_KINDS = ("cpu", "cuda")
_CUDNN: Any = torch.backends.cudnn
_MKLDNN: Any = torch.backends.mkldnn
_BACKENDS: tuple[Any, ...] = (torch.backends, _CUDNN, _CUDNN.conv, _CUDNN.rnn, _MKLDNN, _MKLDNN.conv, _MKLDNN.rnn)
_FULL_COLLECTION = 16  # of so many trials one pays for it
_restored = itertools.count(1)


def set_tf32(on: bool) -> None:
    """How products of 32-bit numbers are computed from now on: in full, or in TF32 on the tensor cores of a GPU.

    torch has an old and a new set of switches for this and raises at reading where they contradict each other, so
    nothing is read: the new ones are cleared, and the old ones, which torch.compile reads, set both.
    """
    for backend in _BACKENDS:
        backend.fp32_precision = "none"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the old ones are old
        torch.set_float32_matmul_precision("high" if on else "highest")
        torch.backends.cudnn.allow_tf32 = on


def uses_tf32() -> bool:
    """Is TF32 on for matrix products or convolutions, in either set of switches?"""
    return "tf32" in (torch.backends.cuda.matmul.fp32_precision, _CUDNN.conv.fp32_precision)


@dataclass(frozen=True, kw_only=True)
class TorchState:
    """The process-wide settings of torch at one moment; TF32 is not among them, since every trial sets it."""

    flags: tuple[Any, ...]
    switches: tuple[Any, ...]
    autocast_types: tuple[torch.dtype, ...]
    hooks: tuple[dict[Any, Any], ...]
    random: dict[str, Any]

    @classmethod
    def capture(cls) -> TorchState:
        gc.freeze()  # so that the collection at the end looks at the trial's objects alone: under 1 ms, not 150
        return cls(
            flags=tuple(getattr(backend, name) for backend, name in _FLAGS),
            switches=tuple(read() for read, _ in _SWITCHES),
            autocast_types=tuple(torch.get_autocast_dtype(kind) for kind in _AUTOCAST_KINDS),
            hooks=tuple(registry.copy() for registry in _hooks_of_all()),
            random=random_states(),
        )

    def restore(self) -> None:
        """Settings as they were, nothing compiled, no cached casts, memory freed."""
        _leave_default_device()
        torch.set_flush_denormal(False)
        _leave_autocast()
        set_tf32(False)
        for (backend, name), value in zip(_FLAGS, self.flags, strict=True):
            setattr(backend, name, value)
        for (read, write), value in zip(_SWITCHES, self.switches, strict=True):
            if read() != value:
                write(value)
        for kind, dtype in zip(_AUTOCAST_KINDS, self.autocast_types, strict=True):
            torch.set_autocast_dtype(kind, dtype)
        for registry, hooks in zip(_hooks_of_all(), self.hooks, strict=True):
            registry.clear()
            registry.update(hooks)
        set_random_states(self.random)
        forget_compiled()
        gc.collect()
        gc.unfreeze()
        if next(_restored) % _FULL_COLLECTION == 0:
            gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def _leave_default_device() -> None:
    torch.set_default_device(None)
    # In torch 2.9 `torch.get_default_device` then fails, for the device that it asks is None.
    context = getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None)
    if context is not None:
        vars(context).pop("device_context", None)


def _leave_autocast() -> None:
    """A context that was entered and never left would stay in force, with weights cast once and for all."""
    for kind in _AUTOCAST_KINDS:
        torch.set_autocast_enabled(kind, False)
    torch.autocast_increment_nesting()
    while torch.autocast_decrement_nesting() > 0:
        pass
    torch.clear_autocast_cache()


def _hooks_of_all() -> list[dict[Any, Any]]:
    """Where torch keeps the hooks that run for every module and every optimizer. It has functions that add one,
    but none that tells or removes those that are there."""
    places = sys.modules["torch.nn.modules.module"], sys.modules["torch.optim.optimizer"]
    return [
        registry
        for place in places
        for name, registry in sorted(vars(place).items())
        if name.startswith("_global_") and isinstance(registry, dict)
    ]
