"""What runs where, and what is said of that which cannot run."""

from __future__ import annotations

import itertools
import os

import pytest

CORES = len(os.sched_getaffinity(0))


@pytest.fixture(scope="module")
def mixed(run):
    """Some trials fit, some never will; a point is there twice and one is excluded."""
    return run(
        "quick.py:experiment", "--devices", "cpu,gpu", "--sweep", "workers=1,64", "--sweep", "x=1,1,13",
        "--set", "batch_size=64",
    )  # fmt: skip


@pytest.fixture(scope="module")
def nothing(run):
    return run("quick.py:experiment", "--devices", "gpu", "-q", "--json", "s.json")


@pytest.fixture(scope="module")
def whole_machine(run):
    """Every trial needs all cores."""
    return run(
        "quick.py:experiment", "--set", f"cpus_per_worker={CORES}", "--sweep", "x=1,2,3", "--set", "pause_s=0.1",
        "--max-concurrent", "5",
    )  # fmt: skip


@pytest.fixture(scope="module")
def alone(run):
    """A process for every trial, and one trial on the machine at a time."""
    return run("quick.py:own_processes", "--exclusive", "--set", "pause_s=0.1")


def test_a_device_that_is_not_there_is_named_and_the_others_run(mixed):
    """R01."""
    assert mixed.code == 1, mixed.err
    trial = mixed.trial(device="gpu", workers=1)
    assert (trial["status"], trial["device"]["type"]) == ("infeasible", "gpu")
    assert "needs gpu, the cluster has" in trial["error"] and f"{CORES} CPU" in trial["error"]
    assert mixed.trial(device="cpu", workers=1)["status"] == "finished"
    assert mixed.run(trial).info.status == "FAILED"


def test_more_workers_than_there_can_be_are_infeasible_at_once(mixed):
    """R02: requested and available are named, and nothing waits."""
    trial = mixed.trial(device="cpu", workers=64)
    assert trial["status"] == "infeasible"
    assert "needs 64 x (1 CPU)" in trial["error"] and f"{CORES} CPU on 1 node" in trial["error"]
    assert trial["started"] is None


def test_a_point_that_comes_twice_runs_once_and_is_marked(mixed):
    """R04."""
    reasons = [one["reason"] for one in mixed.summary["excluded"] if one["config"]["x"] == 1]
    first = mixed.trial(device="cpu", workers=1)["id"]
    assert f"the same as {first}" in reasons


def test_an_excluded_point_costs_no_trial_and_is_listed(mixed):
    reasons = [one["reason"] for one in mixed.summary["excluded"] if not one["reason"].startswith("the same")]
    assert sorted(reasons) == ["13 brings bad luck"] * 4 + ["a GPU has one worker"] * 2
    assert all(trial["config"]["x"] != 13 for trial in mixed.trials)


def test_a_sweep_of_which_nothing_fits_ends_at_once_with_its_own_code(nothing):
    """R01, R38."""
    assert nothing.code == 3
    assert (nothing.summary["status"], nothing.summary["exit_code"]) == ("nothing_placed", 3)
    assert nothing.summary["answer"]["trial"] is None
    assert nothing.left == []


def test_quiet_prints_the_final_part_alone(nothing, mixed):
    """R46."""
    assert "needs gpu" in nothing.out and "Results:" in nothing.out
    assert "worker group" not in nothing.out and "worker group" in mixed.out


def test_trials_that_need_the_whole_machine_run_one_after_the_other(whole_machine):
    """R03: the concurrency that was asked for is too high, and makes no difference."""
    assert whole_machine.code == 0, whole_machine.err
    assert whole_machine.summary["counts"]["finished"] == 3
    assert_one_at_a_time(whole_machine)


def test_a_process_for_each_trial(alone):
    assert alone.code == 0, alone.err
    pids = {alone.log(trial).split()[1] for trial in alone.trials}
    assert len(pids) == 3
    assert all(alone.run(trial).data.tags["group.trial_index"] == "0" for trial in alone.trials)


def test_exclusive_trials_have_the_machine_to_themselves(alone):
    assert_one_at_a_time(alone)
    assert all(alone.run(trial).data.tags["node.neighbours"] == "0" for trial in alone.trials)


def assert_one_at_a_time(command) -> None:
    spans = sorted((trial["metrics"]["began"], trial["metrics"]["ended"]) for trial in command.trials)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
