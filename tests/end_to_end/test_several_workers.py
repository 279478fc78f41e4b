"""Data-parallel trials on real gloo groups."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def both(run):
    """The same training with one worker and with two, which both want all cores."""
    return run("workers.py")


@pytest.fixture(scope="module")
def ranks(run):
    return run("ranks.py")


def test_shapes_that_want_the_same_cores_both_get_done(both):
    assert both.code == 0, both.out + both.err
    assert [trial["status"] for trial in both.trials] == ["finished"] * 2
    assert both.left == []


def test_two_workers_give_the_loss_curve_of_one(both):
    """R09: the batch size is global."""
    one, two = (both.reports(both.trial(workers=workers), "val_loss") for workers in (1, 2))
    assert len(set(one)) == 4
    assert two == pytest.approx(one, rel=1e-4)


def test_each_row_is_validated_once_over_all_workers(both):
    """R08: 23 rows over two workers."""
    trial = both.trial(workers=2)
    epochs = [
        [
            [int(number) for number in line.split()[1:]]
            for line in both.log(trial, rank).splitlines()
            if line.startswith("validated")
        ]
        for rank in (0, 1)
    ]
    for first, second in zip(*epochs, strict=True):
        assert sorted(first + second) == list(range(23))


def test_the_record_says_batch_sizes_rows_and_steps(both):
    """R09."""
    for workers in (1, 2):
        tags = both.run(both.trial(workers=workers)).data.tags
        assert (tags["workers"], tags["batch.global"]) == (str(workers), "8")
        assert tags["batch.per_worker"] == str(8 // workers)
        assert (tags["rows.train"], tags["rows.validation"], tags["steps_per_epoch"]) == ("75", "23", "9")
        assert tags["rows.dropped"] == "3"


def test_a_trial_has_one_run_however_many_workers(both):
    """R15."""
    assert len(both.runs) == 1 + 2
    assert both.run(both.trial(workers=2)).data.tags["device.count"] == "2"
    assert {"log.txt", "log-rank1.txt"} <= set(both.artifacts(both.run(both.trial(workers=2))))


def test_one_worker_and_two_give_metrics_of_the_same_names(both):
    one, two = (set(both.run(both.trial(workers=workers)).data.metrics) for workers in (1, 2))
    assert one == two


@pytest.mark.parametrize("what", ["all_report", "rank_0_reports"])
def test_reports_of_all_ranks_or_of_rank_0_alone_are_supported(ranks, what):
    """R05."""
    trial = ranks.trial(what=what)
    assert (trial["status"], trial["error"]) == ("finished", None)
    assert ranks.reports(trial, "loss") == [1.0, 1 / 2, 1 / 3]


def test_unequal_reports_end_the_trial_with_the_ranks_named(ranks):
    """R05."""
    trial = ranks.trial(what="reports_differ")
    assert trial["status"] == "failed"
    where, reason = trial["error"].splitlines()
    assert where.startswith("rank 1: ranks.py:")
    assert reason == (
        "RuntimeError: rank 1 made report 2, but rank 0 made no such report within 5 s: "
        "report on every rank or on rank 0 alone"
    )


def test_a_rank_that_raises_ends_the_trial_with_its_own_error(ranks):
    trial = ranks.trial(what="one_raises")
    assert trial["status"] == "failed"
    assert trial["error"].startswith("rank 1: ranks.py:") and "a fault of its own" in trial["error"]


def test_a_rank_that_never_ends_is_named(ranks):
    trial = ranks.trial(what="one_stays")
    assert trial["status"] == "failed"
    assert "ranks [1] did not reach the end within 5 s" in trial["error"]


def test_a_trial_that_waits_for_a_rank_ends_within_the_limit(ranks):
    for what in ("reports_differ", "one_raises", "one_stays"):
        trial = ranks.trial(what=what)
        assert trial["ended"] - trial["started"] < 25


def test_ranks_that_part_ways_leave_the_other_trials_and_no_process_behind(ranks):
    assert ranks.code == 1
    assert ranks.left == []
    assert "\x1b" not in ranks.out
    assert ranks.summary["counts"]["finished"] == 2
    assert all(trial["restarts"] == 0 for trial in ranks.trials)
