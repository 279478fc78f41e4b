"""What a `Run` needs of the fleet that runs it: to report, to learn what was decided, to keep step with rank 0."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Decision:
    """The answer to a report. `stop`: end the trial. `everywhere`: every rank made this report and gets the
    same answer, so each may raise `StopTrial` now; else the trial ends on all ranks at the next epoch."""

    stop: bool = False
    everywhere: bool = True


class Channel(ABC):
    """One worker's line to the fleet for one attempt at a trial. Every wait has a limit."""

    @abstractmethod
    def report(self, number: int, epoch: int, metrics: Mapping[str, float], checkpoint: str | None) -> Decision:
        """Rank 0 only: hand in report `number` (from 1); returns once it is on the driver's disk."""

    @abstractmethod
    def follow(self, number: int) -> Decision:
        """Other ranks: the decision on rank 0's report `number`.

        Raises:
            RuntimeError: rank 0 made no such report within the limit; the message names the ranks.
        """

    @abstractmethod
    def boundary(self, epoch: int, stopped: bool) -> bool:
        """All ranks, before each epoch: whether the trial ends here. Rank 0 says, the others learn."""

    @abstractmethod
    def log(self, values: list[tuple[str, float, int, float]]) -> None:
        """Step-level metrics as (name, value, step, time); does not wait."""
