"""Step times on a device that goes on working after a call has returned."""

from __future__ import annotations

import itertools

import torch

from orchestrator.measure.step_timer import StepClock


class CudaClock(StepClock):
    """Marks the end of each step in the device's own queue; nothing waits until the times are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._passes: list[list[torch.cuda.Event]] = []

    def begin_pass(self) -> None:
        super().begin_pass()
        self._passes.append([_mark()])

    def end_step(self) -> None:
        super().end_step()
        if self._passes:
            self._passes[-1].append(_mark())

    def times_s(self) -> list[float]:
        torch.cuda.synchronize()
        return [
            before.elapsed_time(after) / 1000
            for marks in self._passes
            for before, after in itertools.pairwise(marks)
        ]


def _mark() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def clock_for(device: torch.device) -> StepClock:
    return CudaClock() if device.type == "cuda" else StepClock()
