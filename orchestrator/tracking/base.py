"""The seam to an experiment tracker. Only the driver calls it; no call waits for a server or raises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.results import Event, SweepStatus, TrialStatus
from orchestrator.trial import Trial


@dataclass(frozen=True, kw_only=True)
class TrackingIds:
    """Where a sweep is recorded; credentials in `tracking_uri` are masked."""

    tracking_uri: str | None = None
    experiment_id: str | None = None
    parent_run_id: str | None = None


class Tracker(ABC):
    """Records one sweep: `start`, then trials and their events in any order of trials, then `end`."""

    @abstractmethod
    def start(self, experiment: str, sweep: str, facts: Mapping[str, str], params: Mapping[str, Any]) -> None:
        """Open the sweep's own record."""

    @abstractmethod
    def add_trial(self, trial: Trial, facts: Mapping[str, str]) -> None:
        """A trial exists, whether or not it will run. `facts` are tags known before it runs."""

    @abstractmethod
    def record(self, event: Event) -> None:
        """Something happened to a trial. The status in `Ended` is final."""

    @abstractmethod
    def refuse(self, trial_id: str, status: TrialStatus, reason: str) -> None:
        """The trial ends without having run."""

    @abstractmethod
    def attach(self, trial_id: str | None, path: Path, folder: str = "") -> None:
        """Store a file with the trial, or with the sweep where `trial_id` is None."""

    @abstractmethod
    def end(self, status: SweepStatus, counts: Mapping[str, int]) -> None:
        """Close the sweep's record and flush: the one call that waits, for a limited time."""

    @abstractmethod
    def ids(self) -> TrackingIds:
        """Where it all is; waits until the sweep's record is open, for a limited time."""

    @abstractmethod
    def run_id(self, trial_id: str) -> str | None:
        """The tracker's own id of the trial's record, once known."""


class NoTracker(Tracker):
    """Records nothing."""

    def start(self, experiment: str, sweep: str, facts: Mapping[str, str], params: Mapping[str, Any]) -> None:
        pass

    def add_trial(self, trial: Trial, facts: Mapping[str, str]) -> None:
        pass

    def record(self, event: Event) -> None:
        pass

    def refuse(self, trial_id: str, status: TrialStatus, reason: str) -> None:
        pass

    def attach(self, trial_id: str | None, path: Path, folder: str = "") -> None:
        pass

    def end(self, status: SweepStatus, counts: Mapping[str, int]) -> None:
        pass

    def ids(self) -> TrackingIds:
        return TrackingIds()

    def run_id(self, trial_id: str) -> str | None:
        return None
