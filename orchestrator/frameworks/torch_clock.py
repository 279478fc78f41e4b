"""Step times on a device that goes on working after a call has returned."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch

from orchestrator.measure.step_timer import StepClock

_MOST_WAITING = 1000


class CudaClock(StepClock):
    """Marks the ends of steps in the device's own queue and reads the marks that it has passed: never waits."""

    def __init__(self) -> None:
        super().__init__()
        self._steps: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()

    def times_s(self) -> Sequence[float]:
        """Waits for the device."""
        torch.cuda.synchronize()
        self._read()
        return super().times_s()

    def _mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _take(self, began: torch.cuda.Event, ended: torch.cuda.Event) -> None:
        self._steps.append((began, ended))
        if len(self._steps) > _MOST_WAITING:
            self._read()

    def _read(self) -> None:
        while self._steps and self._steps[0][1].query():
            began, ended = self._steps.popleft()
            self._times_s.append(began.elapsed_time(ended) / 1000)


def clock_for(device: torch.device) -> StepClock:
    return CudaClock() if device.type == "cuda" else StepClock()
