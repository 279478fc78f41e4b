"""The books of the queue: which trials wait, which group works on which, and how many groups were of no use."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from orchestrator.decide.group_life import DemandView
from orchestrator.devices import DeviceShape
from orchestrator.fleet.messages import OutOfDate, View
from orchestrator.fleet.turn import Group, Turn
from orchestrator.results import Ended
from orchestrator.trial import Lease, Trial


class Books:
    """Plain state; nothing here waits."""

    def __init__(self) -> None:
        self.turns: dict[str, Turn] = {}
        self.groups: dict[str, Group] = {}
        self.waiting: list[str] = []
        self.fruitless: Counter[DeviceShape] = Counter()
        self._of_proxy: dict[str, str] = {}  # proxy -> the trial that it brought last

    @property
    def proxies(self) -> int:
        """How many different ones have brought a trial."""
        return len(self._of_proxy)

    def add(self, trial: Trial, proxy: str, checkpoint: str | None) -> Turn:
        """A trial is there. A proxy that brings another one has heard of the end of its last, or does not care."""
        before = self.turns.get(self._of_proxy.get(proxy, ""))
        if before is not None and before.ended:
            del self.turns[before.trial.id]
        self._of_proxy[proxy] = trial.id
        turn = self.turns[trial.id] = Turn(trial=trial, proxy=proxy, checkpoint=checkpoint)
        return turn

    def group(self, group_id: str) -> Group:
        """Raises OutOfDate if the group has been given up."""
        group = self.groups.get(group_id)
        if group is None:
            raise OutOfDate(f"worker group {group_id} has been given up")
        return group

    def turn(self, trial_id: str, attempt: int) -> Turn:
        """The trial that a group works on; raises OutOfDate if the attempt is over."""
        turn = self.turns.get(trial_id)
        if turn is None or not turn.is_running(attempt):
            raise OutOfDate(f"attempt {attempt} at {trial_id} is over")
        return turn

    def next_for(self, group: Group) -> Turn | None:
        """The trial that has waited longest for the group's shape; none while a rank is still in the last one."""
        if group.broken or group.trial:
            return None
        return next((turn for turn in self._waiting() if group.shape in turn.shapes()), None)

    def waiting_for_nothing_but(self, shape: DeviceShape) -> list[Turn]:
        return [turn for turn in self._waiting() if turn.shapes() == {shape}]

    def hand_over(self, turn: Turn, group: Group, number: int, lease: Lease) -> None:
        """The group works on the trial from now on, and other groups on its node have a neighbour more."""
        self.waiting.remove(turn.trial.id)
        group.take(turn.trial.id, number, lease)
        busy = [other for other in self.groups.values() if other.node == group.node and other.trial]
        for other in busy:
            neighbour = self.turns[other.trial or ""]
            neighbour.neighbours = max(neighbour.neighbours, len(busy) - 1)

    def put_back(self, turn: Turn) -> None:
        """First in the queue again, for the next attempt."""
        turn.start_again()
        self.waiting.insert(0, turn.trial.id)

    def close(self, turn: Turn, end: Ended, group: Group | None) -> Ended:
        """The trial has ended, with all that is known of it; `group` is warm or to be ended, but not dead."""
        if turn.trial.id in self.waiting:
            self.waiting.remove(turn.trial.id)
        if group is not None:
            group.release()
            self.fruitless[group.shape] = 0
        turn.ended = replace(end, facts={**end.facts, "node.neighbours": str(turn.neighbours)})
        if not turn.proxy or self._of_proxy.get(turn.proxy) != turn.trial.id:  # nobody is going to ask
            del self.turns[turn.trial.id]
        return turn.ended

    def view(self) -> View:
        now, waiting, since = time.monotonic(), Counter[DeviceShape](), dict[DeviceShape, float]()
        for turn in self._waiting():
            for shape in turn.shapes():
                waiting[shape] += 1
                since.setdefault(shape, turn.submitted)
        return View(
            demands=tuple(
                DemandView(
                    shape=shape, waiting=count, waited_s=now - since[shape], fruitless=self.fruitless[shape]
                )
                for shape, count in waiting.items()
            ),
            groups=tuple(group.view() for group in self.groups.values()),
            broken={group.id: group.broken[1] for group in self.groups.values() if group.broken},
        )

    def _waiting(self) -> Iterator[Turn]:
        return (self.turns[trial_id] for trial_id in self.waiting)
