"""What a trial may change in torch for its whole process, and putting it back."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import torch

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
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
)


@dataclass(frozen=True)
class TorchState:
    """The process-wide settings of torch at one moment; those of its products every trial sets anew."""

    flags: tuple[Any, ...]
    switches: tuple[Any, ...]

    @classmethod
    def capture(cls) -> TorchState:
        return cls(
            flags=tuple(getattr(room, name) for room, name in _FLAGS),
            switches=tuple(read() for read, _ in _SWITCHES),
        )

    def restore(self) -> None:
        """Settings as they were, no compiled code, no cached casts, freed memory.

        The compiler keeps what it compiled for each function, and stops after eight variants: trials would run
        uncompiled from the ninth on.
        """
        torch.set_default_device(None)
        for (room, name), value in zip(_FLAGS, self.flags, strict=True):
            setattr(room, name, value)
        for (read, write), value in zip(_SWITCHES, self.switches, strict=True):
            if read() != value:
                write(value)
        torch.clear_autocast_cache()
        if "torch._dynamo" in sys.modules:
            torch._dynamo.reset()
            torch._dynamo.utils.counters.clear()
            torch._dynamo.utils.compilation_time_metrics.clear()
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def seed_everything(seed: int) -> None:
    """The random states of Python, NumPy and torch, on all devices."""
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def random_states() -> dict[str, Any]:
    """The random states, in a form that torch's safe loader takes."""
    kind, keys, position, has_gauss, gauss = numpy.random.get_state()
    states = {
        "python": random.getstate(),
        "numpy": (kind, torch.from_numpy(keys.astype("int64")), position, has_gauss, gauss),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def set_random_states(states: dict[str, Any]) -> None:
    version, numbers, gauss = states["python"]
    random.setstate((version, tuple(numbers), gauss))
    kind, keys, position, has_gauss, cached = states["numpy"]
    numpy.random.set_state((kind, keys.numpy().astype("uint32"), position, has_gauss, cached))
    torch.set_rng_state(states["torch"])
    if "cuda" in states and torch.cuda.is_initialized():
        torch.cuda.set_rng_state(states["cuda"])
