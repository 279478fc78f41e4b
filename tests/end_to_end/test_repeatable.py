"""One seed fixes what is drawn and, on the CPU, every number (R39)."""

from __future__ import annotations

import json

import pytest

NUMBERS = ("loss", "numpy", "python")


@pytest.fixture(scope="module")
def drawn(run, tmp_path_factory):
    """Random configurations, several at a time."""
    folder = tmp_path_factory.mktemp("drawn") / "here"
    return run("noise.py", "--search", "random", "--samples", "4", "--seed", "7", "--name", "drawn", folder=folder)


@pytest.fixture(scope="module")
def drawn_again(run):
    return run("noise.py", "--search", "random", "--samples", "4", "--seed", "7", "--max-concurrent", "1")


@pytest.fixture(scope="module")
def one_again(run, drawn):
    """The last trial of the sweep, alone."""
    last = drawn.trials[-1]["id"]
    return run("noise.py", "--name", "drawn", "--trial", last, "--json", "again.json", folder=drawn.folder)


@pytest.fixture(scope="module")
def searched(run):
    return run("noise.py", "--search", "optuna", "--samples", "3", "--repeat", "2", "--seed", "5")


def test_one_seed_draws_the_same_configurations(drawn, drawn_again):
    assert drawn.code == 0, drawn.err
    assert drawn_again.code == 0, drawn_again.err
    configs = [trial["config"] for trial in drawn.trials]
    assert configs == [trial["config"] for trial in drawn_again.trials]
    assert len({config["lr"] for config in configs}) == 4
    assert {config["seed"] for config in configs} == {7}


def test_numbers_do_not_depend_on_what_runs_at_the_same_time(drawn, drawn_again):
    for one, two in zip(drawn.trials, drawn_again.trials, strict=True):
        for name in NUMBERS:
            assert drawn.reports(one, name) == drawn_again.reports(two, name)


def test_max_concurrent_is_kept(drawn_again):
    running: set[str] = set()
    for one in drawn_again.journal:
        if one["kind"] == "started":
            running.add(one["trial_id"])
        elif one["kind"] == "ended":
            running.discard(one["trial_id"])
        assert len(running) <= 1


def test_a_trial_run_again_alone_gives_its_numbers_again(drawn, one_again):
    assert one_again.code == 0, one_again.err
    again = json.loads((drawn.folder / "again.json").read_text())
    (trial,) = again["trials"]
    first = drawn.trials[-1]
    assert trial["config"] == first["config"]
    assert {name: trial["metrics"][name] for name in NUMBERS} == {name: first["metrics"][name] for name in NUMBERS}
    assert again["sweep"] == f"drawn-{first['id']}"


def test_a_search_that_learns_runs_as_many_configurations_as_asked_for(searched):
    assert searched.code == 0, searched.out + searched.err
    assert [trial["status"] for trial in searched.trials] == ["finished"] * 6
    assert len({trial["config"]["lr"] for trial in searched.trials}) == 3


def test_repeats_have_seeds_that_follow_the_first(searched):
    for lr in {trial["config"]["lr"] for trial in searched.trials}:
        seeds = sorted(trial["config"]["seed"] for trial in searched.trials if trial["config"]["lr"] == lr)
        assert seeds == [5, 6]
        for seed in seeds:
            assert searched.run(searched.trial(lr=lr, seed=seed)).data.tags["seed"] == str(seed)
