import math

import pytest

from orchestrator.results import Restarted, SweepStatus, TrialStatus

NAN = math.nan


def test_a_trial_goes_from_pending_to_finished(sweep):
    sweep.add("t1")
    assert sweep.ledger.row("t1").status == TrialStatus.PENDING
    sweep.start(
        "t1", **{"device.type": "cpu", "device.model": "Xeon", "device.count": "2", "device.emulated": "true"}
    )
    row = sweep.ledger.row("t1")
    assert (row.status, row.started) == (TrialStatus.RUNNING, 100.0)
    assert (row.device.model, row.device.count, row.device.emulated) == ("Xeon", 2, True)
    sweep.report("t1", 1, accuracy=0.8, loss=2.0)
    sweep.report("t1", 2, accuracy=0.7)
    sweep.end("t1", facts={"precision.effective": "bf16"}, measured={"perf/samples_per_s": 5.0}, checkpoint="c")
    row = sweep.ledger.row("t1")
    assert row.metrics == {"accuracy": 0.7, "loss": 2.0}
    assert (row.best.value, row.best.epoch) == (0.8, 1)
    assert (row.requested, row.effective, row.checkpoint, row.ended) == ("fp32", "bf16", "c", 110.0)
    assert row.measured == {"perf/samples_per_s": 5.0}


def test_the_best_value_is_the_smallest_where_less_is_better(sweep):
    sweep.ledger.mode = "min"
    sweep.whole("t1", 0.5, 0.2, 0.3)
    assert sweep.ledger.row("t1").best.value == 0.2


@pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
def test_nan_and_infinity_are_never_best_and_the_first_epoch_with_one_is_kept(sweep, bad):
    sweep.whole("t1", 0.5, bad, bad, 0.4)
    row = sweep.ledger.row("t1")
    assert row.best.value == 0.5
    assert row.diverged_at == 2


def test_a_lost_attempt_is_counted_and_its_late_reports_are_dropped(sweep):
    sweep.add("t1")
    sweep.start("t1")
    sweep.event(Restarted(trial_id="t1", attempt=1, time=1.0, cause="worker died"))
    assert sweep.ledger.row("t1").status == TrialStatus.PENDING
    sweep.report("t1", 9, accuracy=0.99, attempt=1)
    sweep.start("t1", attempt=2)
    sweep.end("t1", TrialStatus.FAILED, attempt=1)
    row = sweep.ledger.row("t1")
    assert (row.status, row.best, row.restarts) == (TrialStatus.RUNNING, None, ("worker died",))


def test_the_first_end_counts(sweep):
    sweep.whole("t1", 0.5)
    sweep.end("t1", TrialStatus.FAILED, error="late")
    assert sweep.ledger.row("t1").status == TrialStatus.FINISHED


def test_what_is_only_left_out_is_no_row(sweep):
    sweep.refuse("not on gpu")
    assert sweep.ledger.rows == ()
    assert sweep.ledger.left_out[0].reason == "not on gpu"


def test_the_device_stays_unknown_while_the_trial_may_run_on_several(sweep):
    one, other = sweep.trial("t1", device="cpu"), sweep.trial("t1", device="gpu")
    sweep.ledger.add(type(one)(id="t1", config=one.config, placements=(*one.placements, *other.placements)))
    assert sweep.ledger.row("t1").device.type is None


def test_counts_name_every_status(sweep):
    sweep.whole("t1", 0.5)
    sweep.refuse("no gpu", TrialStatus.INFEASIBLE, "t2")
    counts = sweep.ledger.counts()
    assert counts == {**dict.fromkeys(map(str, TrialStatus), 0), "finished": 1, "infeasible": 1}


F, P, X = TrialStatus.FINISHED, TrialStatus.PRUNED, TrialStatus.FAILED


@pytest.mark.parametrize(
    ("trials", "expected"),
    [
        ([(F, 0.5), (P, 0.4)], SweepStatus.FINISHED),
        ([(F, 0.5), (F, NAN)], SweepStatus.FINISHED),
        ([(F, 0.5), (X, 0.4)], SweepStatus.PARTLY_FAILED),
        ([(F, 0.5), (TrialStatus.DOES_NOT_FIT, NAN)], SweepStatus.PARTLY_FAILED),
        ([(F, 0.5), (TrialStatus.INFEASIBLE, NAN)], SweepStatus.PARTLY_FAILED),
        ([(X, 0.5), (X, 0.4)], SweepStatus.FAILED),
        ([(F, NAN), (F, NAN)], SweepStatus.FAILED),
        ([(X, 0.5), (TrialStatus.INFEASIBLE, NAN)], SweepStatus.FAILED),
        ([(TrialStatus.INFEASIBLE, NAN)] * 2, SweepStatus.NOTHING_PLACED),
        ([], SweepStatus.NOTHING_PLACED),
    ],
)
def test_the_status_of_a_sweep_follows_from_its_trials(sweep, trials, expected):
    sweep.refuse("left out")
    for number, (status, value) in enumerate(trials):
        if status == TrialStatus.INFEASIBLE:
            sweep.refuse("no gpu", status, f"t{number}")
        else:
            sweep.whole(f"t{number}", value, status=status)
    assert sweep.ledger.sweep_status(interrupted=False) == expected
    assert sweep.ledger.sweep_status(interrupted=True) == SweepStatus.INTERRUPTED


def test_a_swept_setting_counts_as_never_read_only_if_no_trial_read_it(sweep):
    sweep.whole("t1", 0.5, unread=("wd", "lr"))
    sweep.whole("t2", 0.5, unread=("wd",))
    sweep.whole("t3", 0.5, status=TrialStatus.FAILED, unread=())
    assert sweep.ledger.never_read() == ["wd"]
