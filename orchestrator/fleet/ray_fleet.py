"""The fleet on Ray: one queue on the driver's node, and worker groups that start and end on demand."""

from __future__ import annotations

import itertools
import logging
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from orchestrator.decide.group_life import End, GiveUp, GroupState, LifeLimits, Start, decide
from orchestrator.decide.retry import FAILED_STARTS, Cause
from orchestrator.devices import DeviceShape, Node
from orchestrator.fleet.base import Fleet
from orchestrator.fleet.messages import View
from orchestrator.fleet.queue import TrialQueue
from orchestrator.fleet.worker import WorkerSettings
from orchestrator.fleet.worker_group import WorkerGroup
from orchestrator.results import Event, TrialStatus
from orchestrator.trial import Rules, Trial

_LOOK_EVERY_S = 0.2
_TELL_EVERY_S = 60.0
_ENDS_ITSELF_S = 20.0  # how long a broken group of several workers may take, see worker.py
_SCRATCH = ".ray-train"  # Ray Train wants a folder that all of a group's workers see; we keep nothing there
_CALL_TIMEOUT_S = 60.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FleetSettings:
    """What the groups of a sweep have in common. `folder` is the experiment's folder where every node sees it
    at the same path, else None and `environment` (Ray's runtime environment) brings a copy. `wait_for_nodes_s`:
    how long a group may wait for its devices."""

    directory: str
    file: str
    folder: str | None
    name: str
    rules: Rules
    environment: dict[str, Any] | None = None
    one_trial_a_group: bool = False
    life: LifeLimits = field(default_factory=LifeLimits)
    start_timeout_s: float = 300.0


class RayFleet(Fleet):
    """See the module. `expected` are the shapes of the trials to come: a group of the first starts at once, and
    accelerators among them keep their cores free. `note` is told what the groups do; a thread calls it."""

    def __init__(
        self,
        settings: FleetSettings,
        nodes: Sequence[Node],
        expected: Sequence[DeviceShape],
        note: Callable[[str], None],
    ) -> None:
        self._settings, self._nodes, self._expected, self._note = settings, nodes, tuple(expected), note
        self._home = ray.get_runtime_context().get_node_id()
        self.queue = (
            ray.remote(TrialQueue)
            .options(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(self._home, soft=False))
            .remote(settings.rules, settings.directory)
        )
        self._scratch = Path(settings.directory) / _SCRATCH
        self._groups: dict[str, WorkerGroup] = {}
        self._started: dict[str, float] = {}
        self._broken: dict[str, float] = {}
        self._numbers = itertools.count(1)
        self._acknowledged = 0
        self._leftover: list[Event] | None = None  # what happened until the queue was closed
        self._last_gone = ""
        self._closing = threading.Event()
        self._failure: BaseException | None = None
        if expected:  # before the first trial is there, and before the queue has started
            self._start(expected[0])
        self._steward = threading.Thread(target=self._look_after_groups, name="group-steward", daemon=True)
        self._steward.start()

    def expect_proxies(self, number: int) -> None:
        """See `TrialQueue.expect`."""
        self._call(self.queue.expect.remote(number))

    def submit(self, trial: Trial) -> None:
        self._call(self.queue.submit.remote(trial))

    def events(self, timeout_s: float) -> list[Event]:
        if self._leftover is not None:
            events, self._leftover = self._leftover, []
            return events
        if self._failure is not None:
            raise RuntimeError("the worker groups are no longer looked after") from self._failure
        call = self.queue.events.remote(self._acknowledged, timeout_s)
        self._acknowledged, events = ray.get(call, timeout=timeout_s + _CALL_TIMEOUT_S)
        return events

    def stop(self, trial_id: str, status: TrialStatus, reason: str) -> None:
        self._call(self.queue.stop.remote(trial_id, status, reason))

    def stop_all(self, status: TrialStatus, reason: str) -> None:
        """End every trial, also those that are submitted later."""
        self._call(self.queue.close.remote(status, reason))

    def close(self, grace_s: float) -> None:
        if self._leftover is not None:
            return
        limit = time.monotonic() + grace_s
        self.stop_all(TrialStatus.CANCELLED, "the sweep was stopped")
        while not self._call(self.queue.is_idle.remote()) and time.monotonic() < limit:
            time.sleep(_LOOK_EVERY_S)
        self._closing.set()
        self._steward.join(timeout=_CALL_TIMEOUT_S)
        for group in list(self._groups.values()):
            group.kill()
            self._forget(group, None, "the sweep has ended")
        self._leftover = self.events(0)
        self._call(self.queue.finish_journal.remote())
        ray.kill(self.queue)
        shutil.rmtree(self._scratch, ignore_errors=True)

    # --- the steward's thread --------------------------------------------------------------------------------

    def _look_after_groups(self) -> None:
        try:
            while not self._closing.wait(_LOOK_EVERY_S):
                self._see_who_is_gone()
                self._act(self._call(self.queue.view.remote()))
        except BaseException as error:  # noqa: BLE001 (shown by events(), in the driver's thread)
            self._failure = error

    def _see_who_is_gone(self) -> None:
        for group in list(self._groups.values()):
            if gone := group.gone():
                self._forget(group, gone.cause, gone.detail)

    def _act(self, view: View) -> None:
        for group_id, reason in view.broken.items():
            since = self._broken.setdefault(group_id, time.monotonic())
            group = self._groups.get(group_id)
            if group and (group.shape.workers == 1 or time.monotonic() - since > _ENDS_ITSELF_S):
                group.kill()
                self._forget(group, Cause.OUT_OF_STEP, reason)
        self._see_who_is_late({group.id for group in view.groups if group.state is not GroupState.STARTING})
        for action in decide(view.demands, view.groups, self._nodes, self._settings.life, self._expected):
            if isinstance(action, Start):
                self._start(action.shape)
            elif isinstance(action, End):
                self._note(f"worker group {action.group} ends: {action.reason}")
                self._call(self.queue.end_group.remote(action.group))
            elif isinstance(action, GiveUp):
                reason = f"{FAILED_STARTS} worker groups in a row ended no trial; the last: {self._last_gone}"
                self._call(self.queue.fail_waiting.remote(action.shape, reason))

    def _see_who_is_late(self, joined: set[str]) -> None:
        """A group that cannot start, for want of its devices mostly, is told of now and then, and given up."""
        for group_id in joined & set(self._started):
            del self._started[group_id]
        for group_id, since in list(self._started.items()):
            waited, limit = time.monotonic() - since, self._settings.start_timeout_s
            group = self._groups[group_id]
            if waited > limit:
                group.kill()
                self._forget(group, Cause.GROUP_FAILED, f"no {group.shape} was there within {limit:g} s")
            elif (periods := int(waited // _TELL_EVERY_S)) > 0:
                self._note(
                    f"worker group {group_id} has waited {periods * _TELL_EVERY_S:g} s for {group.shape}; "
                    f"it is given up after {limit:g} s"
                )

    def _start(self, shape: DeviceShape) -> None:
        group_id = f"g{next(self._numbers)}"
        settings = WorkerSettings(
            queue=self.queue,
            group=group_id,
            shape=shape,
            file=self._settings.file,
            folder=self._settings.folder,
            name=self._settings.name,
            trials=1 if self._settings.one_trial_a_group else None,
            scratch=str(self._scratch),
        )
        self.queue.open_group.remote(group_id, shape)  # long before the group's own first call
        self._groups[group_id] = WorkerGroup(settings, self._home, self._settings.environment)
        self._started[group_id] = time.monotonic()
        self._note(f"worker group {group_id} starts: {shape}")

    def _forget(self, group: WorkerGroup, cause: Cause | None, detail: str) -> None:
        del self._groups[group.id]
        self._started.pop(group.id, None)
        if cause is not None:
            self._last_gone = detail
            self._note(f"worker group {group.id} is gone: {detail}")
        self._call(self.queue.group_gone.remote(group.id, cause, detail))

    def _call(self, call: Any) -> Any:
        try:
            return ray.get(call, timeout=_CALL_TIMEOUT_S)
        except GetTimeoutError as error:
            raise RuntimeError(f"the trial queue did not answer within {_CALL_TIMEOUT_S:g} s") from error
