"""Trials down, reports up: the one place that knows who works on what.

Holds a queue for each device shape. Trials come from `submit`; the ranks of a worker group lease them; every
report and every end is on the driver's disk before it is acknowledged; the driver reads events. It is plain
asyncio, so that the same code runs inside a Ray actor and inside a test. No call waits longer than
`ASK_AGAIN_S` or a limit of `Limits`; None means: ask again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from orchestrator.channel import Decision
from orchestrator.decide.retry import Cause, is_retried
from orchestrator.decide.stop import stop_reason
from orchestrator.devices import DeviceShape
from orchestrator.fleet.books import Books
from orchestrator.fleet.changes import Changes
from orchestrator.fleet.event_log import EventLog
from orchestrator.fleet.messages import Leave, Limits, Progress, View
from orchestrator.fleet.proxy_gate import ProxyGate
from orchestrator.fleet.ranks import ASK_AGAIN_S, Ranks
from orchestrator.fleet.trial_runner import UNCLEAN
from orchestrator.fleet.turn import Group, Turn
from orchestrator.results import Ended, Event, Logged, Reported, Restarted, Started, TrialStatus
from orchestrator.trial import Lease, Rules, Trial


class TrialQueue:
    """See the module. `directory` is the sweep's folder."""

    def __init__(self, rules: Rules, directory: str, limits: Limits | None = None) -> None:
        self._rules, self._limits, self._directory = rules, limits or Limits(), Path(directory)
        self._books, self._changes = Books(), Changes()
        self._log = EventLog(self._directory / "journal.jsonl")
        self._ranks = Ranks(self._changes, rules.sync_timeout_s, rules.lockstep)
        self._gate = ProxyGate(self._limits.proxies_start_s)
        self._closed: str | None = None

    # --- proxies bring trials --------------------------------------------------------------------------------

    async def expect(self, proxies: int) -> None:
        """Tell no proxy of anything before so many have submitted a trial."""
        self._gate.expected = proxies
        await self._changes.notify()

    async def submit(self, trial: Trial, proxy: str = "", checkpoint: str | None = None) -> None:
        turn = self._books.add(trial, proxy, checkpoint)
        if self._gate.see_first():
            self._changes.after(self._gate.patience_s, self._changes.notify)
        if self._closed is not None:
            await self._end(turn, turn.end_as(TrialStatus.CANCELLED, self._closed), None)
        else:
            self._books.waiting.append(trial.id)
            await self._changes.notify()

    async def submit_and_wait(self, trial: Trial, proxy: str, checkpoint: str | None) -> Progress | None:
        """`submit` and the first `next` in one call."""
        await self.submit(trial, proxy, checkpoint)
        return await self.next(trial.id, go_on=False)

    async def next(self, trial_id: str, go_on: bool) -> Progress | None:
        """In lockstep the next report, else the end. `go_on`: the trial may continue after its last report."""
        turn = self._books.turns[trial_id]
        if go_on:
            turn.permits += 1
            await self._changes.notify()
        if not await self._changes.until(lambda: self._has_news(turn), ASK_AGAIN_S):
            return None
        if turn.unread:
            report = turn.unread.popleft()
            return Progress(metrics=report.metrics, epoch=report.epoch)
        assert turn.ended is not None
        self._books.turns.pop(trial_id, None)
        last = turn.last
        return Progress(
            metrics=last.metrics if last else {}, epoch=last.epoch if last else 0, ended=turn.ended.status
        )

    def _has_news(self, turn: Turn) -> bool:
        """Is there something to tell the trial's proxy, and may it be told?"""
        return self._gate.is_open(self._books.proxies) and (bool(turn.unread) or turn.ended is not None)

    # --- workers take and report them ------------------------------------------------------------------------

    async def join(self, group_id: str, rank: int, node: str, facts: Mapping[str, str]) -> None:
        """A worker is ready."""
        group = self._books.group(group_id)
        group.joined.add(rank)
        if rank == 0:
            group.node, group.facts, group.idle_since = node, facts, time.monotonic()
        await self._changes.notify()

    async def lease(self, group_id: str, turn: int, rank: int) -> Lease | None:
        """The trial of the group's `turn` (from 0), the same for every rank; rank 0's call chooses it.

        Raises:
            Leave: the group is to end.
        """
        group = self._books.group(group_id)

        def mine() -> Lease | None:
            return group.lease[1] if group.lease and group.lease[0] == turn else None

        if rank != 0:
            await self._changes.until(lambda: mine() or group.is_ending, ASK_AGAIN_S)
        else:
            await self._changes.until(lambda: group.is_ending or self._books.next_for(group), ASK_AGAIN_S)
            found = self._books.next_for(group)
            if found is not None and not group.is_ending:
                await self._hand_over(found, group, turn)
        lease = mine()
        if lease is None and group.is_ending:
            raise Leave
        return lease

    async def is_broken(self, group_id: str) -> bool:
        """Is the group to end its processes? Answers at once when it is, else after a while."""
        group = self._books.group(group_id)
        return await self._changes.until(lambda: group.broken is not None, ASK_AGAIN_S)

    async def finish(self, group_id: str, attempt: int, rank: int, end: Ended) -> None:
        """A rank has ended its trial; with the last rank, or after a limit, the trial has."""
        group, turn = self._books.group(group_id), self._books.turn(end.trial_id, attempt)
        turn.ends[rank] = end
        if len(turn.ends) == group.shape.workers:
            await self._conclude(group, turn, attempt)
        else:
            await self._changes.notify()
            limit = self._rules.sync_timeout_s
            if not end.status.did_its_job():
                limit = min(limit, self._limits.failed_rank_s)
            self._changes.after(limit, lambda: self._conclude(group, turn, attempt))

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
        turn = self._books.turn(trial_id, attempt)
        report = Reported(
            trial_id=trial_id, attempt=attempt, time=time.time(), number=number, epoch=epoch, metrics=metrics
        )
        turn.last, turn.reports, turn.checkpoint = report, number, checkpoint or turn.checkpoint
        if turn.stop is None and (reason := stop_reason(report, self._rules)):
            turn.stop = (TrialStatus.PRUNED, reason)
        if self._rules.lockstep:
            turn.unread.append(report)
            await self._changes.notify()
        await self._log.record(report)
        return await self._ranks.decide(turn, report)

    async def follow(self, trial_id: str, attempt: int, number: int, rank: int) -> Decision:
        return await self._ranks.follow(self._books.turn(trial_id, attempt), number, rank)

    async def boundary(self, trial_id: str, attempt: int, epoch: int, rank: int, stopped: bool) -> bool:
        return await self._ranks.boundary(self._books.turn(trial_id, attempt), epoch, rank, stopped)

    async def log(self, trial_id: str, attempt: int, values: tuple[tuple[str, float, int, float], ...]) -> None:
        self._books.turn(trial_id, attempt)
        self._log.record(Logged(trial_id=trial_id, attempt=attempt, time=time.time(), values=values))

    # --- the driver ------------------------------------------------------------------------------------------

    async def events(self, after: int, timeout_s: float) -> tuple[int, list[Event]]:
        """Events with numbers above `after`, which acknowledges those before, and the last number."""
        events = await self._log.after(after, timeout_s)
        return after if not events else self._log.last, events

    async def view(self) -> View:
        return self._books.view()

    async def is_idle(self) -> bool:
        """Has every trial that was submitted ended?"""
        return all(turn.ended for turn in self._books.turns.values())

    async def open_group(self, group_id: str, shape: DeviceShape) -> None:
        self._books.groups[group_id] = Group(id=group_id, shape=shape)

    async def end_group(self, group_id: str) -> None:
        """Hand the group no further trial; its workers leave after the one they have."""
        if group := self._books.groups.get(group_id):
            group.is_ending = True
            await self._changes.notify()

    async def group_gone(self, group_id: str, cause: Cause | None, detail: str) -> None:
        """The group's processes are gone. `cause` is None where that was intended."""
        group = self._books.groups.pop(group_id, None)
        if group is None:
            return
        if cause is not None and group.trials_ended == 0:
            self._books.fruitless[group.shape] += 1
        turn = self._books.turns.get(group.trial) if group.trial else None
        if turn is not None and not turn.ended:
            await self._lose(turn, cause or Cause.WORKER_DIED, detail)
        await self._changes.notify()

    async def stop(self, trial_id: str, status: TrialStatus, reason: str) -> None:
        """End a trial: at once if it waits, else at its next report or epoch, else with its group."""
        turn = self._books.turns.get(trial_id)
        if turn is None or turn.ended or turn.stop:
            return
        if turn.group is None:
            await self._end(turn, turn.end_as(status, reason), None)
            return
        turn.stop, attempt = (status, reason), turn.attempt
        await self._changes.notify()
        self._changes.after(self._limits.stop_grace_s, lambda: self._end_disobedient(turn, attempt))

    async def close(self, status: TrialStatus, reason: str) -> None:
        """Stop every trial; those that are submitted later end at once."""
        self._closed = reason
        for trial_id in list(self._books.turns):
            await self.stop(trial_id, status, reason)

    async def fail_waiting(self, shape: DeviceShape, reason: str) -> None:
        """No group of the shape can be had: the trials that can run nowhere else fail, also those to come."""
        for turn in self._books.waiting_for_nothing_but(shape):
            await self._end(turn, turn.end_as(TrialStatus.FAILED, reason), None)

    async def finish_journal(self) -> None:
        """Nothing more is going to happen."""
        self._log.close()

    # --- what becomes of a trial -----------------------------------------------------------------------------

    async def _hand_over(self, turn: Turn, group: Group, number: int) -> None:
        lease = Lease(
            trial=turn.trial,
            placement=turn.lease_to(group),
            rules=self._rules,
            attempt=turn.attempt,
            index=group.turns,
            directory=str(self._directory / "trials" / turn.trial.id),
            checkpoint=turn.checkpoint,
        )
        self._books.hand_over(turn, group, number, lease)
        facts = {**group.facts, "group.trial_index": str(lease.index)}
        started = Started(
            trial_id=turn.trial.id, attempt=turn.attempt, time=time.time(), group=group.id, facts=facts
        )
        self._log.record(started)
        await self._changes.notify()

    async def _conclude(self, group: Group, turn: Turn, attempt: int) -> None:
        """The end of a trial out of the ends of its ranks. A group whose ranks part ways is broken; one whose
        processes could not be cleaned takes no further trial."""
        if not turn.is_running(attempt):
            return
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

    async def _end_disobedient(self, turn: Turn, attempt: int) -> None:
        group = self._books.groups.get(turn.group or "")
        if group is None or turn.stop is None or not turn.is_running(attempt):
            return
        late = f"{turn.trial.id} went on for {self._limits.stop_grace_s:g} s after its stop"
        group.broken = (Cause.STOP_IGNORED, late)
        await self._end(turn, turn.end_as(*turn.stop), group)

    async def _lose(self, turn: Turn, cause: Cause, detail: str) -> None:
        """An attempt is lost with its group."""
        turn.lost[cause] += 1
        why = f"{cause}: {detail}"
        if turn.stop is None and is_retried(cause, turn.lost):
            event = Restarted(trial_id=turn.trial.id, attempt=turn.attempt, time=time.time(), cause=why)
            self._books.put_back(turn)
            await self._log.record(event)
            return
        status, reason = turn.stop or (TrialStatus.FAILED, why)
        await self._end(turn, turn.end_as(status, reason), None)

    async def _end(self, turn: Turn, end: Ended, group: Group | None) -> None:
        await self._log.record(self._books.close(turn, end, group))
        await self._changes.notify()
