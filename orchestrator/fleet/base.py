"""The fleet: takes trials, tells what happens to them, stops them. On Ray, or in this process."""

from __future__ import annotations

from abc import ABC, abstractmethod

from orchestrator.results import Event, TrialStatus
from orchestrator.trial import Trial


class Fleet(ABC):
    """Where trials run. Events of one trial come in order, `Ended` is its last."""

    @abstractmethod
    def submit(self, trial: Trial) -> None:
        """Queue the trial."""

    @abstractmethod
    def events(self, timeout_s: float) -> list[Event]:
        """What happened since the last call; waits at most `timeout_s` for something to happen."""

    @abstractmethod
    def stop(self, trial_id: str, status: TrialStatus, reason: str) -> None:
        """End a trial with that status: at once if it waits, at its next report or epoch if it runs."""

    @abstractmethod
    def close(self, grace_s: float) -> None:
        """Stop everything and leave no process; running trials get `grace_s` to reach a report."""
