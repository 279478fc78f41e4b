"""What the driver and the process that holds MLflow's client say to each other. Plain values, sent by pickle."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.tracking.entries import Entries


class ProcessLost(Exception):
    """The process ended, or did not answer in time; it may be started again."""


@dataclass(frozen=True, kw_only=True)
class Destination:
    """A tracking store by its absolute address, and the name of the experiment in it."""

    tracking_uri: str
    experiment: str


@dataclass(frozen=True, kw_only=True)
class RunRef:
    """A run, whether or not it has been created. `key` is the trial's id, or `SWEEP` for the parent run.

    `was_tried`: creating it was tried before, so that it may be there although no answer came.
    """

    key: str
    name: str
    start_ms: int
    run_id: str | None = None
    artifact_uri: str | None = None
    was_tried: bool = False


SWEEP = ""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Entries that MLflow will never take, and why."""

    entries: Entries
    reason: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a run's entries. `left` are those to try again, `away` the reason for that."""

    run: RunRef
    left: Entries
    refusals: tuple[Refusal, ...] = ()
    away: str | None = None


@dataclass(frozen=True, kw_only=True)
class Request:
    """Entries of several runs in order. `parent_run_id` is None until the sweep's own run is there."""

    parent_run_id: str | None
    writes: list[tuple[RunRef, Entries]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Outcomes of the first writes of a request; those that follow a run left over were not begun."""

    experiment_id: str | None
    outcomes: list[Outcome] = field(default_factory=list)
    away: str | None = None
