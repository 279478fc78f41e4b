"""Whether a lost attempt at a trial is tried again, by its cause."""

from __future__ import annotations

import enum
from collections.abc import Mapping


class Cause(enum.StrEnum):
    """Why an attempt ended without a result."""

    WORKER_DIED = "worker died"
    NODE_LOST = "node lost"
    OUT_OF_STEP = "workers out of step"
    STOP_IGNORED = "stop ignored"
    GROUP_FAILED = "worker group failed to start"


# An error that the train function raises is no lost attempt: it is a result, and never tried again.
RETRIES = {
    Cause.WORKER_DIED: 1,
    Cause.NODE_LOST: 3,
    Cause.OUT_OF_STEP: 0,
    Cause.STOP_IGNORED: 0,
    Cause.GROUP_FAILED: 0,
}

FAILED_STARTS = 3


def is_retried(cause: Cause, lost: Mapping[Cause, int]) -> bool:
    """`lost` counts the trial's lost attempts by cause, this one included."""
    return lost.get(cause, 0) <= RETRIES[cause]


def is_given_up(fruitless: int) -> bool:
    """Is a shape given up after so many worker groups in a row that ended no trial?"""
    return fruitless >= FAILED_STARTS
