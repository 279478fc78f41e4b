"""A sweep on Ray: Tune in a thread of its own, the fleet's events in this one, until both have come to an end."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections import Counter
from typing import Any

from orchestrator.decide.group_life import LifeLimits
from orchestrator.decide.placement import slots
from orchestrator.devices import DeviceShape
from orchestrator.fleet.ray_fleet import FleetSettings, RayFleet
from orchestrator.options import Options
from orchestrator.results import TrialStatus
from orchestrator.sweep.interruption import Interruption
from orchestrator.sweep.preparation import Prepared
from orchestrator.sweep.recorder import Recorder
from orchestrator.trial import Refused, Trial

_EVENTS_WAIT_S = 0.2
_GRACE_S = 20.0  # after an interruption: how long trials may take to reach a report
_SHORT_GRACE_S = 3.0  # after a second one
_LOOK_AHEAD = 1000  # trials looked at to know which device shapes will be needed


class SweepOnRay:
    """Needs a connection to Ray. `environment` is Ray's runtime environment for workers on other machines."""

    def __init__(
        self, options: Options, prepared: Prepared, recorder: Recorder, environment: dict[str, Any] | None
    ) -> None:
        self._options, self._prepared, self._recorder = options, prepared, recorder
        self._notes: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._announced: queue.SimpleQueue[Trial | Refused] = queue.SimpleQueue()
        experiment, file = prepared.experiment, prepared.loaded.file
        settings = FleetSettings(
            directory=str(prepared.directory),
            file=file.name,
            folder=None if environment else str(file.parent),
            name=prepared.loaded.name,
            rules=prepared.rules,
            environment=environment,
            one_trial_a_group=experiment.isolation == "process",
            life=LifeLimits(max_groups=options.max_concurrent),
        )
        self._demand = Demand(prepared, options.max_concurrent)
        self._fleet = RayFleet(settings, prepared.nodes, self._demand.shapes, self._notes.put)

    def run(self, interruption: Interruption) -> None:
        """Run to the end, or until it is interrupted."""
        try:
            self._run(interruption)
        finally:
            self._fleet.close(grace_s=0)
            self._listen(0)

    def _run(self, interruption: Interruption) -> None:
        if not self._demand.shapes:
            for found in self._prepared.planner.trials():
                self._recorder.announce(found)
            return
        asked = self._options.max_concurrent
        if asked and asked > self._demand.most_live:
            self._recorder.console.note(f"--max-concurrent {asked} is more than fit: {self._demand.most_live} do")
        tuner = _TunerThread(self._options, self._prepared, self._demand, self._fleet, self._announced)
        tuner.start()
        while tuner.is_alive() and not interruption.count:
            self._listen(_EVENTS_WAIT_S)
        if interruption.count:
            self._stop(tuner, interruption)
        elif tuner.failure:
            raise RuntimeError("Ray Tune failed") from tuner.failure

    def _stop(self, tuner: _TunerThread, interruption: Interruption) -> None:
        self._recorder.console.note("interrupted: stopping the trials (once more: at once)")
        tuner.release_nothing_more()
        self._fleet.stop_all(TrialStatus.CANCELLED, "interrupted")
        began = time.monotonic()
        while tuner.is_alive():
            self._listen(_EVENTS_WAIT_S)
            if time.monotonic() - began > (_GRACE_S if interruption.count == 1 else _SHORT_GRACE_S):
                self._recorder.console.note("a trial did not stop in time: its processes are ended")
                break

    def _listen(self, wait_s: float) -> None:
        """Pass on what happened. A trial is announced before its first event."""
        events = self._fleet.events(wait_s)
        while not self._announced.empty():
            self._recorder.announce(self._announced.get())
        while not self._notes.empty():
            self._recorder.console.note(self._notes.get())
        for event in events:
            self._recorder.event(event)


class Demand:
    """The device shapes that a sweep needs and how many trials may be under way, as far as can be told before."""

    def __init__(self, prepared: Prepared, max_concurrent: int | None) -> None:
        trials = Counter[tuple[DeviceShape, ...]]()
        for found in itertools.islice(prepared.planner.trials(), _LOOK_AHEAD):
            if isinstance(found, Trial):
                trials[tuple(placement.shape for placement in found.placements)] += 1
        self.shapes = list(dict.fromkeys(shape for shapes in trials for shape in shapes))
        room = {shape: slots(shape, prepared.nodes) for shape in self.shapes}
        # One trial that waits keeps a lone group busy; where there are several, they keep each other's pace.
        self.ahead = 1 if sum(room.values()) == 1 and max_concurrent is None else 0
        live = sum(
            min(count, sum(room[shape] + self.ahead for shape in shapes)) for shapes, count in trials.items()
        )
        self.most_live = sum(room.values())  # shapes that want the same devices count each
        live = min(live, self.most_live + self.ahead)
        self.proxies = min(live, max_concurrent or live)


class _TunerThread(threading.Thread):
    """Tune's loop. It imports Tune while the first worker group starts."""

    def __init__(
        self,
        options: Options,
        prepared: Prepared,
        demand: Demand,
        fleet: RayFleet,
        announced: queue.SimpleQueue[Trial | Refused],
    ) -> None:
        super().__init__(name="tuner", daemon=True)
        self._options, self._prepared, self._demand = options, prepared, demand
        self._fleet, self._announced = fleet, announced
        self._stopping = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._tune()
        except BaseException as error:  # noqa: BLE001 - raised by the main thread
            self.failure = error

    def release_nothing_more(self) -> None:
        self._stopping.set()

    def _tune(self) -> None:
        from orchestrator.sweep.search import DeviceAware, LearningSource, PlannedSource, Source, optuna
        from orchestrator.sweep.tuner import run_tune

        planner = self._prepared.planner
        source: Source
        if self._options.search == "optuna":
            source = LearningSource(planner, optuna(self._prepared.experiment, planner.draws.seed))
        else:
            source = PlannedSource(planner)
        search = DeviceAware(
            source,
            self._prepared.nodes,
            announce=self._announced.put,
            is_stopped=self._stopping.is_set,
            ahead=self._demand.ahead,
            most_live=self._options.max_concurrent,
        )
        self._fleet.expect_proxies(self._demand.proxies)
        run_tune(self._fleet.queue, search, self._prepared.rules, self._options.scheduler)
