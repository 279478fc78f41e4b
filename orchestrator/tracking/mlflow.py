"""Records a sweep in MLflow: a parent run for the sweep, a nested run for each trial (design section 2.5)."""

from __future__ import annotations

import getpass
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.masking import mask_uri
from orchestrator.results import (
    Ended,
    Event,
    Logged,
    Reported,
    Restarted,
    Started,
    SweepStatus,
    TrialStatus,
    is_finite,
    jsonable,
)
from orchestrator.tracking.base import Tracker, TrackingIds
from orchestrator.tracking.delivery import Delivery
from orchestrator.tracking.entries import Entries, RunEnd, Upload
from orchestrator.tracking.exchange import SWEEP, Destination
from orchestrator.tracking.undelivered import Undelivered
from orchestrator.trial import Trial

_IDS_TIMEOUT_S = 30.0
_END_STALL_S = 20.0
_END_TIMEOUT_S = 300.0

_OF_TRIAL = {
    TrialStatus.FINISHED: "FINISHED",
    TrialStatus.PRUNED: "FINISHED",
    TrialStatus.FAILED: "FAILED",
    TrialStatus.DOES_NOT_FIT: "FAILED",
    TrialStatus.INFEASIBLE: "FAILED",
    TrialStatus.CANCELLED: "KILLED",
}
_OF_SWEEP = {
    SweepStatus.FINISHED: "FINISHED",
    SweepStatus.BUDGET_REACHED: "FINISHED",
    SweepStatus.PARTLY_FAILED: "FAILED",
    SweepStatus.FAILED: "FAILED",
    SweepStatus.NOTHING_PLACED: "FAILED",
    SweepStatus.INTERRUPTED: "KILLED",
}


@dataclass
class _Progress:
    """What is remembered of a trial that has not ended. `attempt`: events of earlier ones are out of date.
    `flags` are the tags on NaN and infinity that it has already: each tells of the first time."""

    attempt: int = 0
    restarts: int = 0
    flags: set[str] = field(default_factory=set)


class MlflowTracker(Tracker):
    """See `Tracker`. `tracking_uri` is one that `tracking.probe` returned; what cannot be delivered is kept
    in `undelivered.jsonl` in `sweep_folder`. Calls only note what is to be written; `Delivery` writes it."""

    def __init__(self, tracking_uri: str, sweep_folder: Path) -> None:
        self._uri = tracking_uri
        self._undelivered = Undelivered(sweep_folder / "undelivered.jsonl")
        self._delivery: Delivery | None = None
        self._own_tags: dict[str, str] = {}
        self._open_trials: dict[str, _Progress] = {}
        self._has_ended = False

    def start(self, experiment: str, sweep: str, facts: Mapping[str, str], params: Mapping[str, Any]) -> None:
        destination = Destination(tracking_uri=self._uri, experiment=experiment)
        self._delivery = Delivery(destination, self._undelivered)
        self._own_tags = _own_tags(facts)
        self._delivery.add(SWEEP, sweep)
        with self._delivery.entries(SWEEP) as entries:
            entries.add_tags({"sweep.name": sweep, **facts, **self._own_tags, "sweep.status": "running"})
            entries.add_settings(params)

    def add_trial(self, trial: Trial, facts: Mapping[str, str]) -> None:
        delivery = self._started()
        self._open_trials[trial.id] = _Progress()
        delivery.add(trial.id, trial.id)
        with delivery.entries(trial.id) as entries:
            entries.add_tags({"trial.id": trial.id, **facts, **self._own_tags})
            entries.add_tags({"trial.status": TrialStatus.PENDING})
            entries.add_settings(trial.config)

    def record(self, event: Event) -> None:
        progress = self._open_trials.get(event.trial_id)
        if progress is None or event.attempt < progress.attempt:
            return
        with self._started().entries(event.trial_id) as entries:
            match event:
                case Started():
                    entries.add_tags({**event.facts, "trial.status": TrialStatus.RUNNING})
                case Reported():
                    values = [(name, value, event.epoch, event.time) for name, value in event.metrics.items()]
                    _add_metrics(entries, progress, values, "diverged_at")
                case Logged():
                    _add_metrics(entries, progress, event.values, "diverged_at_step")
                case Restarted():
                    progress.attempt, progress.restarts = event.attempt + 1, progress.restarts + 1
                    entries.add_tags({"trial.status": TrialStatus.PENDING})
                    entries.add_tags({"restarts": str(progress.restarts), "restart.cause": event.cause})
                case Ended():
                    entries.add_tags(event.facts)
                    for name, value in event.measured.items():
                        entries.add_metric(name, value, event.time, 0)
                    if event.unread:
                        entries.add_tags({"settings.unread": ", ".join(event.unread)})
                    self._close(event.trial_id, entries, event.status, event.error, event.time)

    def refuse(self, trial_id: str, status: TrialStatus, reason: str) -> None:
        with self._started().entries(trial_id) as entries:
            self._close(trial_id, entries, status, reason, time.time())

    def attach(self, trial_id: str | None, path: Path, folder: str = "") -> None:
        with self._started().entries(SWEEP if trial_id is None else trial_id) as entries:
            entries.uploads.append(Upload(path.absolute(), folder))

    def end(self, status: SweepStatus, counts: Mapping[str, int]) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        delivery = self._started()
        for trial_id in list(self._open_trials):
            self.refuse(trial_id, TrialStatus.CANCELLED, "the sweep ended before the trial")
        with delivery.entries(SWEEP) as entries:
            entries.add_tags({"sweep.status": status})
            for name, count in counts.items():
                entries.add_metric(f"trials.{name}", count, time.time(), 0)
            entries.end = RunEnd(_OF_SWEEP[status], int(time.time() * 1000))
        delivery.close(_END_STALL_S, _END_TIMEOUT_S)

    def ids(self) -> TrackingIds:
        delivery = self._started()
        delivery.wait_for_sweep(_IDS_TIMEOUT_S)
        return TrackingIds(
            tracking_uri=mask_uri(self._uri),
            experiment_id=delivery.experiment_id,
            parent_run_id=delivery.run_id(SWEEP),
        )

    def run_id(self, trial_id: str) -> str | None:
        return self._started().run_id(trial_id)

    def _close(
        self, trial_id: str, entries: Entries, status: TrialStatus, error: str | None, time_s: float
    ) -> None:
        self._open_trials.pop(trial_id, None)
        entries.add_tags({"trial.status": status})
        if error:
            entries.add_error(error)
        entries.end = RunEnd(_OF_TRIAL[status], int(time_s * 1000))

    def _started(self) -> Delivery:
        assert self._delivery is not None, "start comes first"
        return self._delivery


def _own_tags(facts: Mapping[str, str]) -> dict[str, str]:
    """MLflow's own tags: the experiment file as the source, not what launched the process."""
    tags = {"mlflow.user": facts.get("user") or getpass.getuser(), "mlflow.source.type": "LOCAL"}
    if file := facts.get("experiment.file"):
        tags["mlflow.source.name"] = file
    if commit := facts.get("git.commit"):
        tags["mlflow.source.git.commit"] = commit
    return tags


def _add_metrics(
    entries: Entries, progress: _Progress, values: Iterable[tuple[str, float, int, float]], flag: str
) -> None:
    """Metrics as (name, value, step, time). The first step with NaN or infinity is the tag `flag`, the first
    infinity of a metric the tag `infinite.NAME`: as a number, MLflow would store 1.8e308."""
    for name, value, step, time_s in values:
        entries.add_metric(name, value, time_s, step)
        if is_finite(value):
            continue
        if flag not in progress.flags:
            entries.add_tags({flag: str(step)})
        if math.isinf(value) and name not in progress.flags:
            entries.add_tags({f"infinite.{name}": f"{jsonable(float(value))} at step {step}"})
            progress.flags.add(name)
        progress.flags.add(flag)
