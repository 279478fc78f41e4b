"""Step times of one trial, and what they say about its speed."""

from __future__ import annotations

import statistics
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
    Samples per second is the batch over the mean step time; `batch_size` is global. The 99th percentile is the
    nearest rank.
    """
    steady = sorted(step_times_s[WARM_UP_STEPS:])
    if not steady or sum(steady) <= 0:
        return None
    return Speed(
        step_time_s_p50=statistics.median(steady),
        step_time_s_p99=steady[round(0.99 * (len(steady) - 1))],
        samples_per_s=batch_size * len(steady) / sum(steady),
    )


class StepClock:
    """Times the steps of a trial on a device that is done when its call returns.

    A step goes from the end of the one before, or from the start of the pass over the data, to its own end: the
    time to fetch its batch counts, what happens between two passes does not. A step whose beginning nobody told is
    not timed.

    Attributes:
        began: by `time.perf_counter`, of the first pass or step; None before.
        untimed_steps: how many were not timed.
    """

    def __init__(self) -> None:
        self._since: Any = None
        self._validates_since: Any = None
        self._times_s, self._validation_times_s = array("d"), array("d")
        self.began: float | None = None
        self.untimed_steps = 0

    def begin_pass(self) -> None:
        """A pass over the training data begins."""
        self._since = self._mark()
        self._has_begun()

    def end_step(self) -> None:
        mark = self._mark()
        if self._since is None:
            self.untimed_steps += 1
            self._has_begun()
        else:
            self._take(self._since, mark, self._times_s)
        self._since = mark

    def end_pass(self) -> None:
        """What follows belongs to no step."""
        self._since = None

    def begin_validation(self) -> None:
        """A pass over other data begins, perhaps in the middle of one over the training data."""
        self._validates_since = self._mark()

    def end_validation(self) -> None:
        mark = self._mark()
        if self._validates_since is not None:
            self._take(self._validates_since, mark, self._validation_times_s)
        self._validates_since = None
        if self._since is not None:
            self._since = mark

    def times_s(self) -> Sequence[float]:
        """The duration of each step, in their order."""
        return self._times_s

    def validation_times_s(self) -> Sequence[float]:
        """The duration of each pass over other data than that of the training."""
        return self._validation_times_s

    def _has_begun(self) -> None:
        if self.began is None:
            self.began = time.perf_counter()

    def _mark(self) -> Any:
        """A moment."""
        return time.perf_counter()

    def _take(self, began: Any, ended: Any, times_s: array[float]) -> None:
        """Something lay between two moments."""
        times_s.append(ended - began)
