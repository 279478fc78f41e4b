"""What the queue says to workers, proxies and the driver, and how long it waits for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.decide.group_life import DemandView, GroupView
from orchestrator.results import TrialStatus


@dataclass(frozen=True, kw_only=True)
class Limits:
    """All in seconds. `proxies_start_s`: how long ends are held back for the proxies that are still starting.
    `stop_grace_s`: how long a trial may go on after it was told to stop. `failed_rank_s`: how long the other
    ranks may take to end after one has failed."""

    proxies_start_s: float = 15.0
    stop_grace_s: float = 30.0
    failed_rank_s: float = 10.0


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What a proxy hears: metrics of a report, or with `ended` the last ones and how the trial ended."""

    metrics: Mapping[str, float]
    epoch: int
    ended: TrialStatus | None = None


@dataclass(frozen=True, kw_only=True)
class View:
    """What the life of groups is decided on. `broken` groups are to be killed, with the reason."""

    demands: tuple[DemandView, ...]
    groups: tuple[GroupView, ...]
    broken: Mapping[str, str]


class Leave(Exception):
    """Tells a worker that its group ends."""


class OutOfDate(RuntimeError):
    """A worker speaks for an attempt that is no longer its own."""
