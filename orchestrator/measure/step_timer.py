"""Step times of one trial, and what they say about its speed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

WARM_UP_STEPS = 5


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Seconds per step (median and 99th percentile) and samples per second over all workers."""

    step_time_s_p50: float
    step_time_s_p99: float
    samples_per_s: float


def speed(step_times_s: Sequence[float], batch_size: int) -> Speed | None:
    """The speed in the steady state; None where no step is left after the warm-up.

    The warm-up is the first `WARM_UP_STEPS` steps of a trial: caches, allocators and kernels settle in them.
    Samples per second is the batch over the mean step time; `batch_size` is global.
    """
    steady = sorted(step_times_s[WARM_UP_STEPS:])
    if not steady or sum(steady) <= 0:
        return None
    return Speed(
        step_time_s_p50=statistics.median(steady),
        step_time_s_p99=steady[min(len(steady) - 1, round(0.99 * (len(steady) - 1)))],
        samples_per_s=batch_size * len(steady) / sum(steady),
    )


class StepClock:
    """Times the steps of a trial on a device that is done when its call returns.

    A step goes from the end of the one before, or from the start of the pass over the data, to its own end: the
    time to fetch its batch counts.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._times: list[float] = []
        self.began: float | None = None  # of the first step, by time.perf_counter
        self.ended: float | None = None  # of the last step

    def begin_pass(self) -> None:
        """A pass over the training data begins."""
        self._since = time.perf_counter()
        if self.began is None:
            self.began = self._since

    def end_step(self) -> None:
        now = time.perf_counter()
        if self._since is not None:
            self._times.append(now - self._since)
        self._since = self.ended = now
        if self.began is None:
            self.began = now

    def times_s(self) -> list[float]:
        return self._times
