"""What the queue knows of one trial and of one worker group."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from orchestrator.channel import Decision
from orchestrator.decide.group_life import GroupState, GroupView
from orchestrator.decide.retry import Cause
from orchestrator.devices import DeviceShape
from orchestrator.results import Ended, Reported, TrialStatus
from orchestrator.trial import Lease, Placement, Trial


@dataclass
class Turn:
    """A trial from its submission to its end, with all its attempts."""

    trial: Trial
    proxy: str
    submitted: float = field(default_factory=time.monotonic)
    attempt: int = 1
    checkpoint: str | None = None
    lost: Counter[Cause] = field(default_factory=Counter)
    last: Reported | None = None
    unread: deque[Reported] = field(default_factory=deque)  # reports that the proxy has not taken
    permits: int = 0  # reports after which the trial scheduler let the trial go on
    stop: tuple[TrialStatus, str] | None = None
    ended: Ended | None = None
    # of the current attempt:
    group: str | None = None
    placement: Placement | None = None
    reports: int = 0
    decisions: dict[int, Decision] = field(default_factory=dict)  # report number -> answer
    followers: dict[int, set[int]] = field(default_factory=dict)  # report number -> other ranks that made it
    boundaries: dict[int, bool] = field(default_factory=dict)  # epoch -> whether the trial ends before it
    ends: dict[int, Ended] = field(default_factory=dict)  # rank -> its own end
    neighbours: int = 0

    def lease_to(self, group: Group) -> Placement:
        """The group takes this attempt; returns the placement that it stands for."""
        self.group = group.id
        self.placement = next(place for place in self.trial.placements if place.shape == group.shape)
        return self.placement

    def shapes(self) -> set[DeviceShape]:
        return {placement.shape for placement in self.trial.placements}

    def is_running(self, attempt: int) -> bool:
        """Does a group work on this attempt?"""
        return self.attempt == attempt and self.group is not None and self.ended is None

    def start_again(self) -> None:
        """Back to the queue: the next attempt goes on from the last checkpoint."""
        self.attempt += 1
        self.group = self.placement = None
        self.reports = self.permits = 0
        self.unread.clear()
        for kept in (self.decisions, self.followers, self.boundaries, self.ends):
            kept.clear()

    def end_as(self, status: TrialStatus, reason: str) -> Ended:
        """An end that no worker tells of."""
        return Ended(
            trial_id=self.trial.id,
            attempt=self.attempt,
            time=time.time(),
            status=status,
            error=None if status.did_its_job() else reason,
            checkpoint=self.checkpoint,
        )

    def joint_end(self, workers: int) -> Ended:
        """One end out of those of the ranks: the first failure wins, else rank 0's."""
        faulty = [(rank, end) for rank, end in sorted(self.ends.items()) if not end.status.did_its_job()]
        rank, end = faulty[0] if faulty else (0, self.ends[min(self.ends)])
        error = f"rank {rank}: {end.error}" if faulty and workers > 1 else end.error
        hosts = sorted({one.facts["hosts"] for one in self.ends.values() if "hosts" in one.facts})
        base = self.ends.get(0, end)
        facts = {**base.facts, **({"hosts": ",".join(hosts)} if hosts else {})}
        return self._named(replace(base, status=end.status, error=error, facts=facts))

    def _named(self, end: Ended) -> Ended:
        """A trial that was told to stop and did has the status it was stopped with; a stop that came with its
        last epoch has cut nothing."""
        if self.stop and end.status is TrialStatus.PRUNED:
            status, reason = self.stop
            if status is TrialStatus.PRUNED and self.last and self.last.epoch >= self.trial.config["epochs"]:
                status = TrialStatus.FINISHED
            return replace(end, status=status, error=None if status.did_its_job() else reason)
        return end


@dataclass
class Group:
    """A worker group as the queue sees it. `leases` maps a turn of the group to its trial."""

    id: str
    shape: DeviceShape
    facts: Mapping[str, str] = field(default_factory=dict)
    node: str = ""
    joined: set[int] = field(default_factory=set)
    lease: tuple[int, Lease] | None = None
    trial: str | None = None
    trials_ended: int = 0
    turns: int = 0
    first_trial: float | None = None
    idle_since: float = field(default_factory=time.monotonic)
    is_ending: bool = False
    broken: tuple[Cause, str] | None = None

    def take(self, trial_id: str, number: int, lease: Lease) -> None:
        self.lease, self.trial = (number, lease), trial_id
        self.turns += 1
        if self.first_trial is None:
            self.first_trial = time.monotonic()

    def release(self) -> None:
        self.trial, self.idle_since = None, time.monotonic()
        self.trials_ended += 1

    def view(self) -> GroupView:
        now = time.monotonic()
        if self.is_ending or self.broken:
            state = GroupState.ENDING
        elif self.trial is not None:
            state = GroupState.BUSY
        elif len(self.joined) < self.shape.workers:
            state = GroupState.STARTING
        else:
            state = GroupState.IDLE
        return GroupView(
            id=self.id,
            shape=self.shape,
            state=state,
            held_s=now - self.first_trial if self.first_trial is not None else 0.0,
            idle_s=now - self.idle_since if state is GroupState.IDLE else 0.0,
            is_new=self.first_trial is None,
        )
