"""The fleet in this process: what it has beyond the contract of fleets."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.devices import DeviceShape
from orchestrator.fleet.local import LocalFleet
from orchestrator.loader import load
from orchestrator.results import Ended, Event, Reported, TrialStatus
from orchestrator.trial import Placement, Rules, Trial

TRAIN = """
from orchestrator import Experiment

seen = []

def train(run):
    import threading
    seen.append(threading.current_thread())
    for epoch in run.epochs():
        print("epoch", epoch)
        run.report(loss=float(epoch))

experiment = Experiment(name="local", train=train, objective="loss", mode="min")
"""


@pytest.fixture
def make(tmp_path, monkeypatch) -> Callable[..., LocalFleet]:
    monkeypatch.setattr(sys, "path", list(sys.path))

    def make_fleet(text: str = TRAIN, **options: Any) -> LocalFleet:
        file = tmp_path / "locally_run.py"
        file.write_text(text)
        rules = Rules(objective="loss", mode="min")
        return LocalFleet(load(str(file)), rules, tmp_path / "storage", **options)

    return make_fleet


def trial(number: int = 1, workers: int = 1, epochs: int = 3) -> Trial:
    shape = DeviceShape(device="cpu", model=None, devices=1, workers=workers, cpus_per_worker=1, framework="torch")
    config = {"epochs": epochs, "workers": workers, "precision": "fp32", "batch_size": 4, "seed": 0}
    return Trial(id=f"t{number}", config=config, placements=(Placement(shape=shape, precision="fp32"),))


def ends(events: list[Event]) -> list[tuple[str, TrialStatus, str | None]]:
    return [(event.trial_id, event.status, event.error) for event in events if isinstance(event, Ended)]


def test_it_trains_in_the_thread_that_asks(make):
    fleet = make()
    fleet.submit(trial())
    fleet.events(timeout_s=0)
    assert sys.modules["locally_run"].seen == [threading.current_thread()]


def test_output_is_shown_and_kept(make, tmp_path, capsys):
    fleet = make()
    fleet.submit(trial(epochs=2))
    fleet.events(timeout_s=0)
    assert capsys.readouterr().out == "epoch 0\nepoch 1\n"
    assert (tmp_path / "storage" / "trials" / "t1" / "log.txt").read_text() == "epoch 0\nepoch 1\n"


def test_one_call_runs_one_trial(make):
    fleet = make()
    fleet.submit(trial(1))
    fleet.submit(trial(2))
    assert {event.trial_id for event in fleet.events(timeout_s=0)} == {"t1"}
    assert {event.trial_id for event in fleet.events(timeout_s=0)} == {"t2"}


def test_a_decision_prunes_the_trial(make):
    fleet = make(decide=lambda report: report.number == 2)
    fleet.submit(trial(epochs=5))
    events = fleet.events(timeout_s=0)
    assert ends(events) == [("t1", TrialStatus.PRUNED, None)]
    assert sum(isinstance(event, Reported) for event in events) == 2


def test_a_running_trial_is_stopped_from_a_signal_handler(make):
    fleet = make(decide=lambda report: bool(os.kill(os.getpid(), signal.SIGUSR1)))
    former = signal.signal(signal.SIGUSR1, lambda *_: fleet.stop("t1", TrialStatus.CANCELLED, "a signal came"))
    try:
        fleet.submit(trial(epochs=5))
        events = fleet.events(timeout_s=0)
    finally:
        signal.signal(signal.SIGUSR1, former)
    assert ends(events) == [("t1", TrialStatus.CANCELLED, "a signal came")]
    assert sum(isinstance(event, Reported) for event in events) == 1


def test_an_interrupt_cancels_the_trials_that_wait_too(make):
    fleet = make(TRAIN.replace("    for epoch", "    raise KeyboardInterrupt\n    for epoch"))
    fleet.submit(trial(1))
    fleet.submit(trial(2))
    assert ends(fleet.events(timeout_s=0)) == [
        ("t1", TrialStatus.CANCELLED, "interrupted"),
        ("t2", TrialStatus.CANCELLED, "the fleet was closed"),
    ]


def test_several_workers_are_infeasible_here(make):
    fleet = make()
    fleet.submit(trial(workers=2))
    assert ends(fleet.events(timeout_s=0)) == [
        ("t1", TrialStatus.INFEASIBLE, "workers = 2: one process holds one worker")
    ]


def test_a_debugger_finds_the_stream_that_was_there_before(make, tmp_path):
    fleet = make(TRAIN.replace('"epoch", epoch', '__import__("sys").stdout.fileno()'))
    fleet.submit(trial(epochs=1))
    fleet.events(timeout_s=0)
    log = tmp_path / "storage" / "trials" / "t1" / "log.txt"
    assert log.read_text() == f"{sys.stdout.fileno()}\n"
