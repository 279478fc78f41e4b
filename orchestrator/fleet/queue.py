"""Trials down, reports up: the one place that knows who works on what.

Holds a queue for each device shape. Trials come from `submit`; the ranks of a worker group lease them; every
report and every end is on the driver's disk before it is acknowledged; the driver reads events. It is plain
asyncio, so that the same code runs inside a Ray actor and inside a test. No call waits longer than
`ASK_AGAIN_S` or a limit of `Limits`; None means: ask again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.channel import Decision
from orchestrator.decide.group_life import DemandView
from orchestrator.decide.retry import Cause, is_retried
from orchestrator.devices import DeviceShape
from orchestrator.fleet.changes import Changes
from orchestrator.fleet.event_log import EventLog
from orchestrator.fleet.messages import Leave, OutOfDate, Progress, View
from orchestrator.fleet.ranks import ASK_AGAIN_S, Ranks
from orchestrator.fleet.trial_runner import UNCLEAN
from orchestrator.fleet.turn import Group, Turn
from orchestrator.results import Ended, Event, Logged, Reported, Restarted, Started, TrialStatus
from orchestrator.trial import Lease, Rules, Trial


@dataclass(frozen=True, kw_only=True)
class Limits:
    """All in seconds. `proxies_start_s`: how long the first lease waits for the proxies that are still starting.
    `stop_grace_s`: how long a trial may go on after it was told to stop. `failed_rank_s`: how long the other
    ranks may take to end after one has failed."""

    proxies_start_s: float = 15.0
    stop_grace_s: float = 30.0
    failed_rank_s: float = 10.0


class TrialQueue:
    """See the module. `directory` is the sweep's folder."""

    def __init__(self, rules: Rules, directory: str, limits: Limits = Limits()) -> None:
        self._rules, self._limits, self._directory = rules, limits, Path(directory)
        self._log = EventLog(self._directory / "journal.jsonl")
        self._turns: dict[str, Turn] = {}
        self._of_proxy: dict[str, str] = {}
        self._waiting: list[str] = []
        self._groups: dict[str, Group] = {}
        self._fruitless: Counter[DeviceShape] = Counter()
        self._expected_proxies = 0
        self._opens_at: float | None = None
        self._closed: str | None = None
        self._changes = Changes()
        self._ranks = Ranks(self._changes, rules.sync_timeout_s, rules.lockstep)

    # --- proxies bring trials --------------------------------------------------------------------------------

    async def expect(self, proxies: int) -> None:
        """Hand out no trial before so many proxies have submitted one. Otherwise a trial that ends while other
        proxies still start makes Tune start a process for every trial."""
        self._expected_proxies = proxies
        await self._changes.notify()

    async def submit(self, trial: Trial, proxy: str = "", checkpoint: str | None = None) -> None:
        before = self._turns.get(self._of_proxy.get(proxy, ""))
        if before is not None and before.ended and proxy:
            del self._turns[before.trial.id]
        self._of_proxy[proxy] = trial.id
        turn = self._turns[trial.id] = Turn(trial=trial, proxy=proxy, checkpoint=checkpoint)
        if self._opens_at is None:
            self._opens_at = time.monotonic() + self._limits.proxies_start_s
            self._changes.after(self._limits.proxies_start_s, self._changes.notify)
        if self._closed is not None:
            await self._end_unstarted(turn, TrialStatus.CANCELLED, self._closed)
        else:
            self._waiting.append(trial.id)
            await self._changes.notify()

    async def submit_and_wait(self, trial: Trial, proxy: str, checkpoint: str | None) -> Progress | None:
        """`submit` and the first `next` in one call."""
        await self.submit(trial, proxy, checkpoint)
        return await self.next(trial.id, go_on=False)

    async def next(self, trial_id: str, go_on: bool) -> Progress | None:
        """In lockstep the next report, else the end. `go_on`: the trial may continue after its last report."""
        turn = self._turns[trial_id]
        if go_on:
            turn.permits += 1
            await self._changes.notify()
        await self._changes.until(lambda: turn.ended or (self._rules.lockstep and turn.unread), ASK_AGAIN_S)
        if self._rules.lockstep and turn.unread:
            report = turn.unread.popleft()
            return Progress(metrics=report.metrics, epoch=report.epoch)
        if not turn.ended:
            return None
        self._turns.pop(trial_id, None)
        last = turn.last
        return Progress(
            metrics=last.metrics if last else {}, epoch=last.epoch if last else 0, ended=turn.ended.status
        )

    # --- workers take and report them ------------------------------------------------------------------------

    async def join(self, group_id: str, rank: int, node: str, facts: Mapping[str, str]) -> None:
        """A worker is ready."""
        group = self._group(group_id)
        group.joined.add(rank)
        if rank == 0:
            group.node, group.facts, group.idle_since = node, facts, time.monotonic()
        await self._changes.notify()

    async def lease(self, group_id: str, turn: int, rank: int) -> Lease | None:
        """The trial of the group's `turn` (from 0), the same for every rank; rank 0's call chooses it.

        Raises:
            Leave: the group is to end.
        """
        group = self._group(group_id)

        def mine() -> Lease | None:
            return group.lease[1] if group.lease and group.lease[0] == turn else None

        if rank != 0:
            await self._changes.until(lambda: mine() or group.is_ending, ASK_AGAIN_S)
        else:
            await self._changes.until(lambda: group.is_ending or self._next_for(group), ASK_AGAIN_S)
            waiting = self._next_for(group)
            if not group.is_ending and waiting:
                await self._lease_to(group, self._turns[waiting], turn)
        found = mine()
        if found is None and group.is_ending:
            raise Leave
        return found

    async def finish_and_lease(
        self, group_id: str, attempt: int, rank: int, end: Ended, turn: int
    ) -> Lease | None:
        """`finish` and the first `lease` of the next turn in one call."""
        await self.finish(group_id, attempt, rank, end)
        return await self.lease(group_id, turn, rank)

    async def report(
        self,
        trial_id: str,
        attempt: int,
        number: int,
        epoch: int,
        metrics: Mapping[str, float],
        checkpoint: str | None,
    ) -> Decision:
        """Rank 0's report; answers once it is on disk and, in lockstep, the trial scheduler has decided."""
        turn = self._turn(trial_id, attempt)
        report = Reported(
            trial_id=trial_id, attempt=attempt, time=time.time(), number=number, epoch=epoch, metrics=metrics
        )
        turn.last, turn.reports, turn.checkpoint = report, number, checkpoint or turn.checkpoint
        if self._rules.lockstep:
            turn.unread.append(report)
            await self._changes.notify()
        await self._log.record(report)
        return await self._ranks.decide(turn, report)

    async def follow(self, trial_id: str, attempt: int, number: int, rank: int) -> Decision:
        return await self._ranks.follow(self._turn(trial_id, attempt), number, rank)

    async def boundary(self, trial_id: str, attempt: int, epoch: int, rank: int, stopped: bool) -> bool:
        return await self._ranks.boundary(self._turn(trial_id, attempt), epoch, rank, stopped)

    async def log(self, trial_id: str, attempt: int, values: tuple[tuple[str, float, int, float], ...]) -> None:
        self._turn(trial_id, attempt)
        self._log.record(Logged(trial_id=trial_id, attempt=attempt, time=time.time(), values=values))

    async def finish(self, group_id: str, attempt: int, rank: int, end: Ended) -> None:
        """A rank has ended its trial; with the last rank, or after a limit, the trial has."""
        group, turn = self._group(group_id), self._turn(end.trial_id, attempt)
        turn.ends[rank] = end
        if len(turn.ends) == group.shape.workers:
            await self._conclude(group, turn)
        else:
            await self._changes.notify()
            failed = not end.status.did_its_job()
            limit = min(self._rules.sync_timeout_s, self._limits.failed_rank_s if failed else float("inf"))
            self._changes.after(limit, lambda: self._conclude_late(group, turn, attempt))

    # --- the driver -----------------------------------------------------------------------------------------

    async def events(self, after: int, timeout_s: float) -> tuple[int, list[Event]]:
        """Events with numbers above `after`, which acknowledges those before, and the last number."""
        events = await self._log.after(after, timeout_s)
        return after if not events else self._log.last, events

    async def view(self) -> View:
        now, waiting = time.monotonic(), Counter[DeviceShape]()
        oldest: dict[DeviceShape, float] = {}
        for trial_id in self._waiting:
            turn = self._turns[trial_id]
            for placement in turn.trial.placements:
                waiting[placement.shape] += 1
                oldest.setdefault(placement.shape, turn.submitted)
        return View(
            demands=tuple(
                DemandView(
                    shape=shape, waiting=count, waited_s=now - oldest[shape], fruitless=self._fruitless[shape]
                )
                for shape, count in waiting.items()
            ),
            groups=tuple(group.view() for group in self._groups.values()),
            broken={group.id: group.broken[1] for group in self._groups.values() if group.broken},
        )

    async def open_group(self, group_id: str, shape: DeviceShape) -> None:
        self._groups[group_id] = Group(id=group_id, shape=shape)

    async def end_group(self, group_id: str) -> None:
        """Hand the group no further trial; its workers leave after the one they have."""
        if group := self._groups.get(group_id):
            group.is_ending = True
            await self._changes.notify()

    async def group_gone(self, group_id: str, cause: Cause | None, detail: str) -> None:
        """The group's processes are gone. `cause` is None where that was intended."""
        group = self._groups.pop(group_id, None)
        if group is None:
            return
        if cause is not None and group.trials_ended == 0:
            self._fruitless[group.shape] += 1
        turn = self._turns.get(group.trial) if group.trial else None
        if turn is not None and not turn.ended:
            await self._lose(turn, cause or Cause.WORKER_DIED, detail)
        await self._changes.notify()

    async def stop(self, trial_id: str, status: TrialStatus, reason: str) -> None:
        """End a trial: at once if it waits, else at its next report or epoch, else with its group."""
        turn = self._turns.get(trial_id)
        if turn is None or turn.ended or turn.stop:
            return
        if turn.group is None:
            await self._end_unstarted(turn, status, reason)
            return
        turn.stop = (status, reason)
        await self._changes.notify()
        self._changes.after(self._limits.stop_grace_s, lambda: self._stop_ignored(turn, turn.attempt))

    async def close(self, status: TrialStatus, reason: str) -> None:
        """Stop every trial; those that are submitted later end at once."""
        self._closed = reason
        for trial_id in list(self._turns):
            await self.stop(trial_id, status, reason)

    async def finish_journal(self) -> None:
        """Nothing more is going to happen."""
        self._log.close()

    async def fail_waiting(self, shape: DeviceShape, reason: str) -> None:
        """No group of the shape can be had: the trials that wait for it fail."""
        for trial_id in list(self._waiting):
            turn = self._turns[trial_id]
            if all(placement.shape == shape for placement in turn.trial.placements):
                await self._end_unstarted(turn, TrialStatus.FAILED, reason)
        self._fruitless[shape] = 0

    async def is_idle(self) -> bool:
        """Has every trial that was submitted ended?"""
        return all(turn.ended for turn in self._turns.values())

    # --- inside ---------------------------------------------------------------------------------------------

    def _next_for(self, group: Group) -> str | None:
        late = self._opens_at is not None and time.monotonic() >= self._opens_at
        if len(self._of_proxy) < self._expected_proxies and not late:
            return None
        return next(
            (
                trial_id
                for trial_id in self._waiting
                if any(place.shape == group.shape for place in self._turns[trial_id].trial.placements)
            ),
            None,
        )

    async def _lease_to(self, group: Group, turn: Turn, number: int) -> None:
        self._waiting.remove(turn.trial.id)
        turn.lease_to(group)
        assert turn.placement is not None
        directory = self._directory / "trials" / turn.trial.id
        group.lease = (
            number,
            Lease(
                trial=turn.trial,
                placement=turn.placement,
                rules=self._rules,
                attempt=turn.attempt,
                index=group.turns,
                directory=str(directory),
                checkpoint=turn.checkpoint,
            ),
        )
        group.trial = turn.trial.id
        group.turns += 1
        group.first_trial = group.first_trial or time.monotonic()
        busy = [other for other in self._groups.values() if other.node == group.node and other.trial]
        for other in busy:
            neighbour = self._turns[other.trial or ""]
            neighbour.neighbours = max(neighbour.neighbours, len(busy) - 1)
        facts = {**group.facts, "group.trial_index": str(group.turns - 1)}
        self._log.record(
            Started(trial_id=turn.trial.id, attempt=turn.attempt, time=time.time(), group=group.id, facts=facts)
        )
        await self._changes.notify()

    async def _conclude(self, group: Group, turn: Turn) -> None:
        """The end of a trial out of the ends of its ranks. A group whose ranks part ways is broken; one whose
        processes could not be cleaned takes no further trial."""
        workers = group.shape.workers
        missing = [rank for rank in range(workers) if rank not in turn.ends]
        end = turn.joint_end(workers)
        if missing and end.status.did_its_job():
            limit = f"{self._rules.sync_timeout_s:g} s of rank {min(turn.ends)}"
            error = f"ranks {missing} did not reach the end within {limit}"
            end = replace(end, status=TrialStatus.FAILED, error=error)
        if workers > 1 and (missing or not end.status.did_its_job()):
            group.broken = (Cause.OUT_OF_STEP, end.error or "its ranks ended apart")
        if any(UNCLEAN in one.facts for one in turn.ends.values()):
            group.is_ending = True
        await self._end(turn, end, group)

    async def _conclude_late(self, group: Group, turn: Turn, attempt: int) -> None:
        if self._is_current(turn, attempt):
            await self._conclude(group, turn)

    async def _stop_ignored(self, turn: Turn, attempt: int) -> None:
        group = self._groups.get(turn.group or "")
        if group is None or turn.stop is None or not self._is_current(turn, attempt):
            return
        late = f"{turn.trial.id} went on for {self._limits.stop_grace_s:g} s after its stop"
        group.broken = (Cause.STOP_IGNORED, late)
        await self._end(turn, self._end_of(turn, *turn.stop), group)

    async def _lose(self, turn: Turn, cause: Cause, detail: str) -> None:
        turn.lost[cause] += 1
        if turn.stop is None and is_retried(cause, turn.lost):
            event = Restarted(
                trial_id=turn.trial.id, attempt=turn.attempt, time=time.time(), cause=f"{cause}: {detail}"
            )
            turn.start_again()
            self._waiting.insert(0, turn.trial.id)
            await self._emit(event)
            return
        status, reason = turn.stop or (TrialStatus.FAILED, f"{cause}: {detail}")
        await self._end(turn, self._end_of(turn, status, reason), None)

    def _end_of(self, turn: Turn, status: TrialStatus, reason: str) -> Ended:
        return Ended(
            trial_id=turn.trial.id,
            attempt=turn.attempt,
            time=time.time(),
            status=status,
            error=None if status.did_its_job() else reason,
            checkpoint=turn.checkpoint,
        )

    async def _end_unstarted(self, turn: Turn, status: TrialStatus, reason: str) -> None:
        if turn.trial.id in self._waiting:
            self._waiting.remove(turn.trial.id)
        await self._end(turn, self._end_of(turn, status, reason), None)

    async def _end(self, turn: Turn, end: Ended, group: Group | None) -> None:
        turn.ended = replace(end, facts={**end.facts, "node.neighbours": str(turn.neighbours)})
        if group is not None:
            group.trial, group.idle_since = None, time.monotonic()
            group.trials_ended += 1
            self._fruitless[group.shape] = 0
        await self._emit(turn.ended)
        if self._of_proxy.get(turn.proxy) != turn.trial.id or not turn.proxy:
            self._turns.pop(turn.trial.id, None)

    def _group(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            raise OutOfDate(f"worker group {group_id} has been given up")
        return group

    def _turn(self, trial_id: str, attempt: int) -> Turn:
        turn = self._turns.get(trial_id)
        if turn is None or not self._is_current(turn, attempt):
            raise OutOfDate(f"attempt {attempt} at {trial_id} is over")
        return turn

    @staticmethod
    def _is_current(turn: Turn, attempt: int) -> bool:
        return turn.attempt == attempt and turn.group is not None and turn.ended is None

    async def _emit(self, event: Event) -> None:
        await self._log.record(event)
        await self._changes.notify()
