"""The fleet in this process: trials run one after the other, in the thread that asks for events."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from orchestrator.channel import Channel, Decision
from orchestrator.decide.stop import stop_reason
from orchestrator.fleet.base import Fleet
from orchestrator.fleet.trial_log import copied
from orchestrator.fleet.trial_runner import process_facts, run_trial
from orchestrator.frameworks import Framework, WorkerFacts, create_framework
from orchestrator.loader import LoadedExperiment
from orchestrator.results import Ended, Event, Logged, Reported, Started, TrialStatus
from orchestrator.trial import Lease, Placement, Rules, Trial


class LocalFleet(Fleet):
    """Trains without Ray, so that breakpoints work; output is shown and kept.

    `events` returns once a trial has ended, however long that takes. A trial may be stopped meanwhile from
    `decide`, from the train function's own calls or from a signal handler.
    """

    def __init__(
        self,
        loaded: LoadedExperiment,
        rules: Rules,
        directory: Path,
        decide: Callable[[Reported], bool] = lambda report: False,
    ) -> None:
        """`directory` is the sweep's folder. `decide` is asked after each report whether the trial scheduler
        would stop the trial."""
        self._loaded, self._rules, self._decide = loaded, rules, decide
        self._directory = directory.absolute()
        self._waiting: dict[str, Trial] = {}
        self._happened: deque[Event] = deque()
        self._frameworks: dict[str, Framework] = {}
        self._running: _LocalChannel | None = None
        self._trials_run = 0

    def submit(self, trial: Trial) -> None:
        self._waiting[trial.id] = trial

    def events(self, timeout_s: float) -> list[Event]:
        """Runs the next trial, unless something has happened already."""
        if not self._happened and self._waiting:
            self._run(self._waiting.pop(next(iter(self._waiting))))
        happened = list(self._happened)
        self._happened.clear()
        return happened

    def stop(self, trial_id: str, status: TrialStatus, reason: str) -> None:
        if self._running is not None and self._running.trial_id == trial_id:
            self._running.stop = self._running.stop or (status, reason)
        elif trial := self._waiting.pop(trial_id, None):
            self._happened.append(_unstarted(trial, status, reason))

    def close(self, grace_s: float) -> None:
        """Trials that wait are cancelled; their ends can still be read. No trial runs between two calls."""
        for trial_id in list(self._waiting):
            self.stop(trial_id, TrialStatus.CANCELLED, "the fleet was closed")

    def _run(self, trial: Trial) -> None:
        placement = next((place for place in trial.placements if place.shape.workers == 1), None)
        if placement is None:
            reason = f"workers = {trial.config.get('workers')}: one process holds one worker"
            self._happened.append(_unstarted(trial, TrialStatus.INFEASIBLE, reason))
            return
        shape = placement.shape
        worker = WorkerFacts(device_type=shape.device, cpus=shape.cpus_per_worker)
        framework = self._framework(placement, worker)
        facts = {
            **process_facts(framework, shape),
            "device.emulated": "false",
            "group.trial_index": str(self._trials_run),
        }
        started = Started(trial_id=trial.id, attempt=1, time=time.time(), group="local", facts=facts)
        self._happened.append(started)
        self._running = _LocalChannel(trial.id, self._happened, self._decide, self._rules)
        try:
            ended = run_trial(
                self._lease(trial, placement), self._running, framework, worker, self._loaded, log=copied
            )
            self._happened.append(_named(ended, self._running.stop))
        finally:
            stopped, self._running = self._running.stop, None
        self._trials_run += 1
        if ended.status is TrialStatus.CANCELLED and stopped is None:  # Ctrl-C means all of them
            self.close(0)

    def _framework(self, placement: Placement, worker: WorkerFacts) -> Framework:
        device = placement.shape.device
        if device not in self._frameworks:
            framework = create_framework(placement.shape.framework, device)
            framework.start(worker)
            self._frameworks[device] = framework
        return self._frameworks[device]

    def _lease(self, trial: Trial, placement: Placement) -> Lease:
        return Lease(
            trial=trial,
            placement=placement,
            rules=self._rules,
            attempt=1,
            index=self._trials_run,
            directory=str(self._directory / "trials" / trial.id),
        )


class _LocalChannel(Channel):
    """A trial's line to the fleet; `stop` is what the trial is to end with."""

    def __init__(
        self, trial_id: str, happened: deque[Event], decide: Callable[[Reported], bool], rules: Rules
    ) -> None:
        self.trial_id, self._rules = trial_id, rules
        self.stop: tuple[TrialStatus, str] | None = None
        self._happened, self._decide = happened, decide

    def report(self, number: int, epoch: int, metrics: Mapping[str, float], checkpoint: str | None) -> Decision:
        report = Reported(
            trial_id=self.trial_id, attempt=1, time=time.time(), number=number, epoch=epoch, metrics=metrics
        )
        self._happened.append(report)
        if reason := stop_reason(report, self._rules):
            self.stop = self.stop or (TrialStatus.PRUNED, reason)
        if self._decide(report):
            self.stop = self.stop or (TrialStatus.PRUNED, "the trial scheduler stopped it")
        return Decision(stop=self.stop is not None)

    def follow(self, number: int) -> Decision:
        raise RuntimeError("there is one worker, and it is rank 0")

    def boundary(self, epoch: int, stopped: bool) -> bool:
        return stopped or self.stop is not None

    def log(self, values: list[tuple[str, float, int, float]]) -> None:
        self._happened.append(Logged(trial_id=self.trial_id, attempt=1, time=time.time(), values=tuple(values)))


def _named(ended: Ended, stop: tuple[TrialStatus, str] | None) -> Ended:
    """A trial that was told to stop and did ends with the status that it was stopped with."""
    if stop is None or ended.status is not TrialStatus.PRUNED:
        return ended
    status, reason = stop
    return replace(ended, status=status, error=None if status.did_its_job() else reason)


def _unstarted(trial: Trial, status: TrialStatus, reason: str) -> Ended:
    error = None if status.did_its_job() else reason
    return Ended(trial_id=trial.id, attempt=1, time=time.time(), status=status, error=error)
