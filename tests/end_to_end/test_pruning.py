"""A trial scheduler ends poor trials early, and many short trials share few processes."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="module")
def pruned(run):
    return run("pruned.py", "--scheduler", "asha")


def test_poor_trials_are_pruned_and_that_is_no_failure(pruned):
    assert pruned.code == 0, pruned.out + pruned.err
    counts = {status: count for status, count in pruned.summary["counts"].items() if count}
    assert set(counts) == {"pruned", "finished"} and sum(counts.values()) == 30
    assert counts["pruned"] >= 15
    assert pruned.left == []


def test_the_winner_runs_to_its_end(pruned):
    winner = pruned.trial(x=29)
    assert winner["status"] == "finished" and winner["error"] is None
    assert len(pruned.reports(winner, "score")) == 16
    assert pruned.summary["answer"]["trial"] == winner["id"]


def test_pruned_trials_stop_at_once(pruned):
    cut = [trial for trial in pruned.trials if trial["status"] == "pruned"]
    assert all(len(pruned.reports(trial, "score")) in (1, 4) for trial in cut)
    for trial in cut:
        assert pruned.run(trial).info.status == "FINISHED"
        assert pruned.run(trial).data.tags["trial.status"] == "pruned"


def test_trials_share_few_processes(pruned):
    """Ray Tune would start a process for every trial."""
    cores = len(os.sched_getaffinity(0))
    groups = {one["group"] for one in pruned.journal if one["kind"] == "started"}
    assert len(groups) <= cores
    proxies = [title for title in pruned.family.titles() if "Proxy" in title]
    assert 1 <= len(proxies) <= 2 * cores + 2
