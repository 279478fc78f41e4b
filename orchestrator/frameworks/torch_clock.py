"""Step times on a device that goes on working after a call has returned."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence

import torch

from orchestrator.measure.step_timer import StepClock

_MOST_WAITING = 1000


class CudaClock(StepClock):
    """Marks moments in the device's own queue and reads the marks that it has passed: never waits."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: deque[tuple[torch.cuda.Event, torch.cuda.Event, array[float]]] = deque()

    def times_s(self) -> Sequence[float]:
        """Waits for the device."""
        self._wait()
        return super().times_s()

    def validation_times_s(self) -> Sequence[float]:
        """Waits for the device."""
        self._wait()
        return super().validation_times_s()

    def _mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _take(self, began: torch.cuda.Event, ended: torch.cuda.Event, times_s: array[float]) -> None:
        self._waiting.append((began, ended, times_s))
        if len(self._waiting) > _MOST_WAITING:
            self._read()

    def _wait(self) -> None:
        torch.cuda.synchronize()
        self._read()

    def _read(self) -> None:
        while self._waiting and self._waiting[0][1].query():
            began, ended, times_s = self._waiting.popleft()
            times_s.append(began.elapsed_time(ended) / 1000)


def clock_for(device: torch.device) -> StepClock:
    return CudaClock() if device.type == "cuda" else StepClock()
