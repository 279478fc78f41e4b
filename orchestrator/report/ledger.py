"""The state of a sweep, folded from its trials and their events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.results import (
    Ended,
    Event,
    Reported,
    Restarted,
    Started,
    SweepStatus,
    TrialStatus,
    is_better,
    is_finite,
)
from orchestrator.trial import Refused, Trial


@dataclass(frozen=True, kw_only=True)
class Device:
    """The device of a trial as far as known. `count` is all devices of the trial."""

    type: str | None = None
    model: str | None = None
    count: int | None = None
    emulated: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best finite value of the objective, and the epoch (from 1) that reported it."""

    value: float
    epoch: int


@dataclass(frozen=True, kw_only=True)
class Row:
    """One trial. Times are in seconds since the epoch (Unix).

    `requested` and `effective` are precisions: as set, and as found on real tensors. `diverged_at` is the
    first epoch with a metric that is NaN or infinite. `restarts` are the causes, `unread` the swept settings
    that the train function never looked at.
    """

    id: str
    config: Mapping[str, Any]
    requested: str
    status: TrialStatus = TrialStatus.PENDING
    device: Device = field(default_factory=Device)
    effective: str | None = None
    attempt: int = 0
    epoch: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    best: Best | None = None
    diverged_at: int | None = None
    restarts: tuple[str, ...] = ()
    started: float | None = None
    ended: float | None = None
    error: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    measured: Mapping[str, float] = field(default_factory=dict)
    checkpoint: str | None = None
    unread: tuple[str, ...] = ()

    @property
    def fault(self) -> str | None:
        """The error, unless somebody wanted the trial to end."""
        return None if self.status is TrialStatus.CANCELLED else self.error


class Ledger:
    """One row a trial, in the order in which the trials were added. Does no input or output."""

    def __init__(self, *, objective: str, mode: str, swept: tuple[str, ...] = ()) -> None:
        self.objective = objective
        self.mode = mode
        self.swept = swept
        self.left_out: list[Refused] = []
        self._rows: dict[str, Row] = {}

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(self._rows.values())

    def row(self, trial_id: str) -> Row:
        return self._rows[trial_id]

    def add(self, trial: Trial) -> None:
        """A trial that is going to run."""
        shapes = {placement.shape for placement in trial.placements}
        device = Device()
        if len({shape.device for shape in shapes}) == 1:
            shape = next(iter(shapes))
            device = Device(type=shape.device, model=shape.model, count=shape.devices)
        requested = str(trial.config["precision"])
        self._rows[trial.id] = Row(id=trial.id, config=trial.config, device=device, requested=requested)

    def refuse(self, refused: Refused) -> None:
        """A configuration that does not run: a row where it was planned, else only left out."""
        if refused.status is None:
            self.left_out.append(refused)
            return
        assert refused.id is not None, "a planned trial has an id"
        kind, _, model = (refused.device or "").partition(":")
        self._rows[refused.id] = Row(
            id=refused.id,
            config=refused.config,
            requested=str(refused.config["precision"]),
            status=refused.status,
            device=Device(type=kind or None, model=model or None),
            error=refused.reason,
        )

    def record(self, event: Event) -> Row:
        """Fold an event in and return the trial's row. What comes late from a lost attempt changes nothing."""
        row = self._rows[event.trial_id]
        if event.attempt < row.attempt or row.status.has_ended():
            return row
        changed = self._fold(row, event)
        self._rows[event.trial_id] = changed
        return changed

    def _fold(self, row: Row, event: Event) -> Row:
        match event:
            case Started():
                return replace(
                    _with_facts(row, event.facts),
                    status=TrialStatus.RUNNING,
                    attempt=event.attempt,
                    started=event.time if row.started is None else row.started,
                )
            case Reported():
                value = event.metrics.get(self.objective)
                best = row.best
                if value is not None and is_better(value, best.value if best else None, self.mode):
                    best = Best(value=value, epoch=event.epoch)
                finite = all(is_finite(number) for number in event.metrics.values())
                return replace(
                    row,
                    epoch=event.epoch,
                    metrics={**row.metrics, **event.metrics},
                    best=best,
                    diverged_at=event.epoch if row.diverged_at is None and not finite else row.diverged_at,
                )
            case Restarted():
                return replace(
                    row,
                    status=TrialStatus.PENDING,
                    attempt=event.attempt + 1,
                    restarts=(*row.restarts, event.cause),
                )
            case Ended():
                return replace(
                    _with_facts(row, event.facts),
                    status=event.status,
                    ended=event.time,
                    error=event.error,
                    checkpoint=event.checkpoint,
                    measured={**row.measured, **event.measured},
                    unread=event.unread,
                )
        return row

    def counts(self) -> dict[str, int]:
        """How many trials have each status, also those that none has."""
        found = Counter(row.status for row in self._rows.values())
        return {str(status): found[status] for status in TrialStatus}

    def sweep_status(self, *, interrupted: bool) -> SweepStatus:
        """How the sweep ended. What was left out does not count; without one finite objective it failed."""
        rows = self.rows
        if interrupted:
            return SweepStatus.INTERRUPTED
        if all(row.status == TrialStatus.INFEASIBLE for row in rows):
            return SweepStatus.NOTHING_PLACED
        if not any(row.status.has_result() and row.best for row in rows):
            return SweepStatus.FAILED
        done = all(row.status.did_its_job() for row in rows)
        return SweepStatus.FINISHED if done else SweepStatus.PARTLY_FAILED

    def never_read(self) -> list[str]:
        """Swept settings that no finished trial looked at."""
        finished = [set(row.unread) for row in self._rows.values() if row.status == TrialStatus.FINISHED]
        return sorted(set.intersection(*finished)) if finished else []


def _with_facts(row: Row, facts: Mapping[str, str]) -> Row:
    """The row with tags of design section 2.5 taken over: device and effective precision among them."""
    known = row.device
    emulated = facts.get("device.emulated")
    device = Device(
        type=facts.get("device.type", known.type),
        model=facts.get("device.model", known.model),
        count=int(facts["device.count"]) if "device.count" in facts else known.count,
        emulated=emulated == "true" if emulated is not None else known.emulated,
    )
    effective = facts.get("precision.effective", row.effective)
    return replace(row, device=device, effective=effective, facts={**row.facts, **facts})
