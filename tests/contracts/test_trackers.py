"""What every tracker promises: see `orchestrator.tracking.base`."""

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.results import Ended, Event, Logged, Reported, Restarted, Started, SweepStatus, TrialStatus
from orchestrator.tracking import create_tracker
from orchestrator.tracking.base import NoTracker, Tracker, TrackingIds
from orchestrator.trial import Trial

MAKERS: dict[str, Callable[[Path], Tracker]] = {
    "none": lambda folder: NoTracker(),
    "mlflow": lambda folder: create_tracker(f"sqlite:///{folder}/mlflow.db", folder),
}


@pytest.fixture(params=MAKERS)
def tracker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tracker]:
    made = MAKERS[request.param](tmp_path)
    made.start("contract", "s1", {"sweep.name": "s1"}, {"objective": "acc"})
    yield made
    made.end(SweepStatus.INTERRUPTED, {})


def add(tracker: Tracker, trial_id: str) -> None:
    tracker.add_trial(Trial(id=trial_id, config={"lr": 0.1}, placements=()), {"trial.id": trial_id})


def events(trial_id: str, reports: int) -> Iterator[Event]:
    now = time.time()
    yield Started(trial_id=trial_id, attempt=0, time=now, group="g", facts={"device.type": "cpu"})
    yield Restarted(trial_id=trial_id, attempt=0, time=now, cause="worker died")
    yield Started(trial_id=trial_id, attempt=1, time=now, group="g", facts={"device.type": "cpu"})
    yield Logged(trial_id=trial_id, attempt=1, time=now, values=(("step_loss", math.nan, 1, now),))
    for number in range(1, reports + 1):
        metrics = {"acc": number / reports, "loss": math.inf}
        yield Reported(trial_id=trial_id, attempt=1, time=now, number=number, epoch=number, metrics=metrics)
    yield Ended(trial_id=trial_id, attempt=1, time=now, status=TrialStatus.FINISHED, measured={"perf/a_s": 1.0})


def test_no_call_waits_or_raises_and_each_costs_little(tracker: Tracker, tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("hello\n")
    began, used = time.monotonic(), time.process_time()
    for number in range(100):
        add(tracker, f"t{number}")
        for event in events(f"t{number}", reports=5):
            tracker.record(event)
        tracker.attach(f"t{number}", log)
        tracker.run_id(f"t{number}")
    tracker.attach(None, tmp_path / "not-there.txt")
    tracker.attach(None, log, folder="sub")
    assert time.monotonic() - began < 5
    tracker.end(SweepStatus.FINISHED, {"finished": 100})
    assert (time.process_time() - used) / 100 < 0.012


def test_events_out_of_date_and_trials_that_never_run_are_taken(tracker: Tracker) -> None:
    add(tracker, "t1")
    add(tracker, "t2")
    *_, end = events("t1", reports=1)
    tracker.record(end)
    tracker.record(end)
    for event in events("t1", reports=1):
        tracker.record(event)
    tracker.refuse("t2", TrialStatus.INFEASIBLE, "no such node")
    assert tracker.run_id("unknown") is None


def test_ids_are_known_while_the_sweep_runs_and_a_second_end_changes_nothing(tracker: Tracker) -> None:
    before = tracker.ids()
    tracker.end(SweepStatus.FINISHED, {})
    tracker.end(SweepStatus.FAILED, {})
    assert tracker.ids() == before
    assert before == TrackingIds() or (before.experiment_id and before.parent_run_id)
