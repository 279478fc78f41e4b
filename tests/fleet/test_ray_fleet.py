"""The fleet on Ray: what it has beyond the contract of fleets."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator import cluster
from orchestrator.devices import DeviceShape
from orchestrator.fleet.ray_fleet import FleetSettings, RayFleet
from orchestrator.results import Ended, Event, Reported, Restarted, Started, TrialStatus
from orchestrator.trial import Placement, Rules, Trial

LIMIT_S = 120.0

EXPERIMENT = """
import os, sys, time
from orchestrator import Experiment

def train(run):
    what = run.config["what"]
    if what == "dies":
        os._exit(1)
    if what == "rank 1 raises" and run.rank == 1:
        raise RuntimeError("rank 1 alone")
    for epoch in run.epochs():
        run.report(loss=float(os.getpid()))
        if what == "goes on":
            time.sleep(0.1)

experiment = Experiment(name="on_ray", train=train, objective="loss", mode="min")
"""
ONLY_ON_THE_DRIVER = "import ray\nif ray.get_runtime_context().get_actor_id(): raise ImportError('not here')\n"


@pytest.fixture(scope="module")
def nodes() -> Iterator[list]:
    with cluster.connected(None, cluster.local_nodes(), verbose=False) as nodes:
        yield nodes


@pytest.fixture
def make(nodes, tmp_path) -> Iterator[Callable[..., RayFleet]]:
    fleets: list[RayFleet] = []

    def make_fleet(text: str = EXPERIMENT, **options: Any) -> RayFleet:
        (tmp_path / "on_ray.py").write_text(text)
        settings = FleetSettings(
            directory=str(tmp_path / "storage"),
            file="on_ray.py",
            folder=str(tmp_path),
            name="experiment",
            rules=Rules(objective="loss", mode="min", sync_timeout_s=5.0),
            **options,
        )
        Path(settings.directory).mkdir()
        fleets.append(RayFleet(settings, nodes, (), print))
        return fleets[-1]

    yield make_fleet
    for fleet in fleets:
        fleet.close(grace_s=0)


def trial(number: int, what: str = "", epochs: int = 1, workers: int = 1) -> Trial:
    shape = DeviceShape(device="cpu", model=None, devices=1, workers=workers, cpus_per_worker=1, framework="torch")
    config = {"what": what, "epochs": epochs, "precision": "fp32", "batch_size": 2, "seed": 0}
    return Trial(id=f"t{number}", config=config, placements=(Placement(shape=shape, precision="fp32"),))


def until(fleet: RayFleet, is_enough: Callable[[list[Event]], object]) -> list[Event]:
    found: list[Event] = []
    limit = time.monotonic() + LIMIT_S
    while not is_enough(found):
        assert time.monotonic() < limit, f"it did not happen within {LIMIT_S} s: {found}"
        found += fleet.events(timeout_s=1)
    return found


def all_ended(number: int) -> Callable[[list[Event]], bool]:
    return lambda events: sum(isinstance(event, Ended) for event in events) == number


def of(events: list[Event], kind: type[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def test_a_running_trial_is_stopped_at_its_next_report(make):
    fleet = make()
    fleet.submit(trial(1, "goes on", epochs=10_000))
    until(fleet, lambda events: of(events, Reported))
    fleet.stop("t1", TrialStatus.CANCELLED, "not needed")
    (end,) = of(until(fleet, all_ended(1)), Ended)
    assert (end.status, end.error) == (TrialStatus.CANCELLED, "not needed")


def test_trials_share_a_warm_process(make):
    fleet = make()
    for number in range(4):
        fleet.submit(trial(number))
    events = until(fleet, all_ended(4))
    cores = len(os.sched_getaffinity(0))
    assert len({event.metrics["loss"] for event in of(events, Reported)}) <= cores


def test_a_process_that_dies_is_replaced_and_its_trial_tried_once_more(make):
    fleet = make()
    fleet.submit(trial(1, "dies"))
    fleet.submit(trial(2))
    events = until(fleet, all_ended(2))
    assert [event.trial_id for event in of(events, Restarted)] == ["t1"]
    ends = {end.trial_id: end for end in of(events, Ended)}
    assert ends["t1"].status is TrialStatus.FAILED and (ends["t1"].error or "").startswith("worker died: ")
    assert ends["t2"].status is TrialStatus.FINISHED


def test_a_shape_of_which_no_group_can_start_fails_its_trials_with_the_cause(make):
    fleet = make(ONLY_ON_THE_DRIVER + EXPERIMENT)
    fleet.submit(trial(1))
    events = until(fleet, all_ended(1))
    (end,) = of(events, Ended)
    assert end.status is TrialStatus.FAILED
    assert "3 worker groups in a row ended no trial" in end.error and "not here" in end.error
    assert not of(events, Started)


def test_a_group_whose_ranks_part_ways_takes_no_other_trial_and_gives_its_cores_back(make, nodes):
    """Also the cores that Ray Train had set aside for its workers."""
    if nodes[0].cpus < 2:
        pytest.skip("needs two cores")
    fleet = make()
    fleet.submit(trial(1, "rank 1 raises", workers=2))
    fleet.submit(trial(2, workers=2))
    events = until(fleet, all_ended(2))
    ends = {end.trial_id: end for end in of(events, Ended)}
    assert "rank 1 alone" in (ends["t1"].error or "")
    assert ends["t2"].status is TrialStatus.FINISHED
    assert [event.group for event in of(events, Started)] == ["g1", "g2"]
