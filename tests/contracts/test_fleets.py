"""One suite over every fleet: trials in, events out, whatever the trials do."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from orchestrator import cluster
from orchestrator.devices import DeviceShape
from orchestrator.fleet.base import Fleet
from orchestrator.fleet.local import LocalFleet
from orchestrator.fleet.ray_fleet import FleetSettings, RayFleet
from orchestrator.loader import load
from orchestrator.results import Ended, Event, Logged, Reported, Started, TrialStatus
from orchestrator.trial import Placement, Rules, Trial

LIMIT_S = 120.0  # for all events of a test

EXPERIMENT = """
import os, sys
from pathlib import Path
import torch
import its_neighbour
from orchestrator import Experiment

def train(run):
    print("trains with", run.config["what"])
    getattr(sys.modules[__name__], run.config["what"])(run)

def report_each_epoch(run):
    for epoch in run.epochs():
        run.log(step_loss=0.5)
        run.report(loss=1 / (epoch + 1))

def raise_an_error(run):
    run.report(loss=1.0)
    raise ValueError("a fault of the user's")

def report_nan(run):
    run.report(loss=float("nan"))

def report_something_else(run):
    run.report(other=1.0)

def run_out_of_memory(run):
    raise torch.OutOfMemoryError("2 TiB")

def change_the_process(run):
    os.environ["LEFT_OVER"] = "1"
    os.chdir("/")
    torch.set_default_dtype(torch.float64)
    run.report(loss=1.0)

def look_for_changes(run):
    changed = "LEFT_OVER" in os.environ or torch.get_default_dtype() != torch.float32
    run.report(loss=float(changed), reads=float(Path("its_data.txt").read_text()))

def learn(run):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer = run.prepare(model, optimizer)
    rows = torch.utils.data.TensorDataset(torch.ones(8, 4), torch.ones(8, 1))
    for _ in run.epochs():
        for inputs, targets in run.loader(rows):
            loss = (model(inputs) - targets).square().mean()
            run.step(loss, optimizer)
        run.report(loss=loss)

experiment = Experiment(name="contract", train=train, objective="loss", mode="min")
"""


@pytest.fixture
def file(tmp_path) -> Path:
    """The experiment with a neighbour and a data file, in a folder that is not the current one."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "its_neighbour.py").write_text("x = 1\n")
    (home / "its_data.txt").write_text("42")
    (home / "contract_experiment.py").write_text(EXPERIMENT)
    return home / "contract_experiment.py"


MakeFleet = Callable[[Path, Rules, Path], Fleet]


def local_fleet(file: Path, rules: Rules, storage: Path) -> Fleet:
    return LocalFleet(load(str(file)), rules, storage)


def ray_fleet(file: Path, rules: Rules, storage: Path) -> Fleet:
    nodes = cluster.cluster_nodes()
    settings = FleetSettings(
        directory=str(storage), file=file.name, folder=str(file.parent), name="experiment", rules=rules
    )
    storage.mkdir()
    return RayFleet(settings, nodes, (), print)


@pytest.fixture(scope="module")
def private_cluster() -> Iterator[None]:
    with cluster.connected(None, cluster.local_nodes(), verbose=False):
        yield


@pytest.fixture(params=[local_fleet, ray_fleet], ids=["local", "ray"])
def fleet(request, file, tmp_path, monkeypatch) -> Iterator[Fleet]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    make: MakeFleet = request.param
    if make is ray_fleet:
        request.getfixturevalue("private_cluster")
    fleet = make(file, Rules(objective="loss", mode="min", swept=("what", "unread")), tmp_path / "storage")
    yield fleet
    fleet.close(grace_s=5)


def trial(number: int, what: str, epochs: int = 2) -> Trial:
    shape = DeviceShape(device="cpu", model=None, devices=1, workers=1, cpus_per_worker=1, framework="torch")
    config = {"what": what, "unread": 1, "epochs": epochs, "precision": "fp32", "batch_size": 4, "seed": 0}
    return Trial(id=f"t{number:04d}", config=config, placements=(Placement(shape=shape, precision="fp32"),))


def events_until(fleet: Fleet, *trial_ids: str) -> dict[str, list[Event]]:
    """Each trial's events in order, once all of them have ended."""
    found: dict[str, list[Event]] = {trial_id: [] for trial_id in trial_ids}
    until = time.monotonic() + LIMIT_S
    while not all(events and isinstance(events[-1], Ended) for events in found.values()):
        assert time.monotonic() < until, f"no end within {LIMIT_S} s: {found}"
        for event in fleet.events(timeout_s=1):
            found[event.trial_id].append(event)
    return found


def run_all(fleet: Fleet, *trials: Trial) -> dict[str, list[Event]]:
    for each in trials:
        fleet.submit(each)
    return events_until(fleet, *(each.id for each in trials))


def end_of(events: list[Event]) -> Ended:
    assert isinstance(events[-1], Ended)
    return events[-1]


def reports_of(events: list[Event]) -> list[Reported]:
    return [event for event in events if isinstance(event, Reported)]


def test_a_trial_starts_reports_logs_and_ends(fleet):
    (events,) = run_all(fleet, trial(1, "report_each_epoch")).values()
    assert isinstance(events[0], Started)
    assert {"device.type", "device.model", "framework", "framework.version"} <= set(events[0].facts)
    reports = reports_of(events)
    assert [(report.number, report.epoch, report.metrics["loss"]) for report in reports] == [
        (1, 1, 1.0),
        (2, 2, 0.5),
    ]
    logged = [value[:2] for event in events if isinstance(event, Logged) for value in event.values]
    assert logged == [("step_loss", 0.5)] * 2
    assert end_of(events).status is TrialStatus.FINISHED
    assert end_of(events).measured["perf/wall_time_s"] > 0


def test_events_are_told_once_and_in_time(fleet):
    run_all(fleet, trial(1, "report_each_epoch"))
    began = time.monotonic()
    assert fleet.events(timeout_s=0.2) == []
    assert time.monotonic() - began < 5


def test_an_unhappy_trial_ends_alone_and_the_others_finish(fleet):
    whats = [
        "raise_an_error", "report_nan", "report_something_else", "run_out_of_memory", "report_each_epoch"
    ]  # fmt: skip
    events = run_all(fleet, *(trial(number, what) for number, what in enumerate(whats)))
    error, nan, unreported, memory, good = (end_of(each) for each in events.values())
    assert error.status is TrialStatus.FAILED
    assert 'raise ValueError("a fault of the user\'s")' in (error.error or "")
    assert "contract_experiment.py:" in (error.error or "")
    assert nan.status is TrialStatus.FINISHED and nan.facts["diverged_at"]
    assert math.isnan(reports_of(events["t0001"])[0].metrics["loss"])
    assert unreported.error == "train never reported 'loss' (reported: other)"
    assert memory.status is TrialStatus.DOES_NOT_FIT
    assert good.status is TrialStatus.FINISHED


def test_what_a_trial_changes_in_its_process_is_undone_for_the_next(fleet):
    events = run_all(fleet, trial(1, "change_the_process"), trial(2, "look_for_changes"))
    assert reports_of(events["t0002"])[0].metrics == {"loss": 0.0, "reads": 42.0}


def test_a_trial_that_waits_is_stopped_at_once(fleet):
    fleet.submit(trial(1, "report_each_epoch"))
    fleet.submit(trial(2, "report_each_epoch"))
    fleet.stop("t0002", TrialStatus.CANCELLED, "not needed")
    events = events_until(fleet, "t0001", "t0002")
    assert [type(event) for event in events["t0002"]] == [Ended]
    end = end_of(events["t0002"])
    assert (end.status, end.error) == (TrialStatus.CANCELLED, "not needed")
    assert end_of(events["t0001"]).status is TrialStatus.FINISHED


def test_stopping_a_trial_that_has_ended_changes_nothing(fleet):
    run_all(fleet, trial(1, "report_each_epoch"))
    fleet.stop("t0001", TrialStatus.CANCELLED, "too late")
    assert fleet.events(timeout_s=0.2) == []


def test_equal_trials_give_equal_numbers(fleet):
    first, second = run_all(fleet, trial(1, "learn"), trial(2, "learn")).values()
    losses = [[report.metrics["loss"] for report in reports_of(events)] for events in (first, second)]
    assert losses[0] == losses[1] and losses[0][1] < losses[0][0]


def test_a_trial_leaves_settings_output_and_a_checkpoint_in_its_folder(fleet, tmp_path):
    (events,) = run_all(fleet, trial(1, "learn")).values()
    folder = tmp_path / "storage" / "trials" / "t0001"
    assert '"what": "learn"' in (folder / "config.json").read_text()
    assert "trains with learn" in (folder / "log.txt").read_text()
    checkpoint = end_of(events).checkpoint
    assert checkpoint is not None and Path(checkpoint).is_relative_to(folder) and os.path.exists(checkpoint)


def test_settings_that_were_swept_and_never_read_are_named(fleet):
    (events,) = run_all(fleet, trial(1, "report_each_epoch")).values()
    assert end_of(events).unread == ("unread",)


def test_closing_twice_is_harmless_and_leaves_no_process(fleet):
    run_all(fleet, trial(1, "report_each_epoch"))
    fleet.close(grace_s=5)
    fleet.close(grace_s=5)
    until = time.monotonic() + 5
    while (left := processes_of_trials()) and time.monotonic() < until:
        time.sleep(0.1)
    assert left == []


def processes_of_trials() -> list[str]:
    """Below this one; what Ray itself keeps running as long as its cluster is up does not count."""
    titles = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            titles.append(" ".join(child.cmdline()))
    return [title for title in titles if "GroupHost" in title or "TrialQueue" in title or "ray" not in title]
