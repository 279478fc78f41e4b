"""What happened: the states of trials and sweeps, and the events that a fleet reports about a trial."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


class TrialStatus(enum.StrEnum):
    """Where a trial stands; the same names in the console, `summary.json`, the journal and MLflow."""

    PENDING = "pending"
    RUNNING = "running"
    FINISHED = "finished"
    PRUNED = "pruned"
    FAILED = "failed"
    DOES_NOT_FIT = "does_not_fit"
    INFEASIBLE = "infeasible"
    CANCELLED = "cancelled"

    def has_ended(self) -> bool:
        return self not in (TrialStatus.PENDING, TrialStatus.RUNNING)

    def did_its_job(self) -> bool:
        """Finished, or stopped by the trial scheduler: nothing for the user to repair."""
        return self in (TrialStatus.FINISHED, TrialStatus.PRUNED)

    def has_result(self) -> bool:
        """May its best value be ranked?"""
        return self in (TrialStatus.FINISHED, TrialStatus.PRUNED)


class SweepStatus(enum.StrEnum):
    """How a sweep ended."""

    FINISHED = "finished"
    PARTLY_FAILED = "partly_failed"
    FAILED = "failed"
    NOTHING_PLACED = "nothing_placed"
    BUDGET_REACHED = "budget_reached"
    INTERRUPTED = "interrupted"

    @property
    def exit_code(self) -> int:
        return {
            SweepStatus.FINISHED: 0,
            SweepStatus.BUDGET_REACHED: 0,
            SweepStatus.PARTLY_FAILED: 1,
            SweepStatus.NOTHING_PLACED: 3,
            SweepStatus.FAILED: 4,
            SweepStatus.INTERRUPTED: 130,
        }[self]


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened to one attempt at a trial. `time` is in seconds since the epoch (Unix)."""

    trial_id: str
    attempt: int
    time: float

    def record(self) -> dict[str, Any]:
        """The event as a flat mapping with its kind, for the journal."""
        return {"kind": type(self).__name__.lower(), **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class Started(Event):
    """A worker group took the trial. `facts` are tags: device, versions, hosts, ..."""

    group: str
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Reported(Event):
    """One `run.report`: `number` counts them from 1 within an attempt, `epoch` from 1 within the trial."""

    number: int
    epoch: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Logged(Event):
    """Step-level metrics of `run.log`: (name, value, step, time) each."""

    values: tuple[tuple[str, float, int, float], ...]


@dataclass(frozen=True, kw_only=True)
class Ended(Event):
    """The end of a trial. `measured` are numbers (`perf/...`), `facts` further tags.

    `error` is what the user reads: for a fault in their code the exception with their own file and line.
    `unread` names swept settings that the train function never looked at.
    """

    status: TrialStatus
    error: str | None = None
    checkpoint: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    measured: Mapping[str, float] = field(default_factory=dict)
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Restarted(Event):
    """An attempt was lost (a dead worker, say) and the trial goes back to its queue."""

    cause: str


def is_better(value: float, than: float | None, mode: str) -> bool:
    """Is a finite `value` better than the best so far? NaN and infinity never are."""
    if not is_finite(value):
        return False
    return than is None or (value > than if mode == "max" else value < than)


def is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def jsonable(value: Any) -> Any:
    """`value` for strict JSON: NaN and infinity become the strings "NaN", "Infinity" and "-Infinity"."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(item) for item in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return repr(value)
