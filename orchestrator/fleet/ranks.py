"""How the ranks of one trial keep step: rank 0 reports and decides, the others follow it."""

from __future__ import annotations

from orchestrator.channel import Decision
from orchestrator.fleet.changes import Changes
from orchestrator.fleet.turn import Turn
from orchestrator.results import Reported

ASK_AGAIN_S = 10.0
_FIRST_REPORT_S = 5.0  # at the first report it is not known yet whether the other ranks report too


class Ranks:
    """Works on the turns of a queue. Waits for another rank at most `sync_timeout_s`."""

    def __init__(self, changes: Changes, sync_timeout_s: float, lockstep: bool) -> None:
        self._changes, self._limit_s, self._lockstep = changes, sync_timeout_s, lockstep

    async def decide(self, turn: Turn, report: Reported) -> Decision:
        """The answer to a report of rank 0; in lockstep the trial scheduler gives it."""
        number, attempt = report.number, turn.attempt
        while self._lockstep and turn.permits < number and not turn.stop and turn.attempt == attempt:
            await self._changes.until(
                lambda: turn.permits >= number or turn.stop or turn.attempt != attempt, ASK_AGAIN_S
            )
        decision = Decision(stop=turn.stop is not None)
        if decision.stop and not await self._all_report(turn, number):
            decision = Decision(stop=True, everywhere=False)
        if self._others(turn):
            turn.decisions[number] = decision
            turn.decisions.pop(number - 2, None)
            turn.followers.pop(number - 2, None)
            await self._changes.notify()
        return decision

    async def follow(self, turn: Turn, number: int, rank: int) -> Decision:
        """The answer that rank 0 got for the report that another rank makes too.

        Raises:
            RuntimeError: rank 0 does not make it.
        """
        attempt = turn.attempt
        turn.followers.setdefault(number, set()).add(rank)
        await self._changes.notify()
        await self._changes.until(lambda: turn.reports >= number or 0 in turn.ends, self._limit_s)
        if turn.reports < number:
            why = "has ended" if 0 in turn.ends else f"made no such report within {self._limit_s:g} s"
            raise RuntimeError(
                f"rank {rank} made report {number}, but rank 0 {why}: report on every rank or on rank 0 alone"
            )
        while number not in turn.decisions and turn.attempt == attempt:
            await self._changes.until(lambda: number in turn.decisions or turn.attempt != attempt, ASK_AGAIN_S)
        return turn.decisions[number]

    async def boundary(self, turn: Turn, epoch: int, rank: int, stopped: bool) -> bool:
        """Whether the trial ends before the epoch: rank 0 says it, the others hear it.

        Raises:
            RuntimeError: rank 0 does not begin the epoch.
        """
        if rank == 0:
            turn.boundaries[epoch] = stopped or turn.stop is not None
            await self._changes.notify()
        elif not await self._changes.until(lambda: epoch in turn.boundaries or 0 in turn.ends, self._limit_s):
            raise RuntimeError(f"rank {rank} begins epoch {epoch}, rank 0 did not within {self._limit_s:g} s")
        if epoch not in turn.boundaries:
            raise RuntimeError(f"rank {rank} begins epoch {epoch}, but rank 0 has ended")
        return turn.boundaries[epoch]

    async def _all_report(self, turn: Turn, number: int) -> bool:
        """Do the other ranks make this report too, so that all may raise at it? The report before tells."""
        others = self._others(turn)
        if number > 1 and not others <= turn.followers.get(number - 1, set()):
            return False
        limit = self._limit_s if number > 1 else min(_FIRST_REPORT_S, self._limit_s)
        return await self._changes.until(lambda: others <= turn.followers.get(number, set()), limit)

    @staticmethod
    def _others(turn: Turn) -> set[int]:
        """The ranks that follow rank 0."""
        assert turn.placement is not None
        return set(range(1, turn.placement.shape.workers))
