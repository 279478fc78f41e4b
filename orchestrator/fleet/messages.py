"""What the queue says to workers, proxies and the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.decide.group_life import DemandView, GroupView
from orchestrator.results import TrialStatus


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
