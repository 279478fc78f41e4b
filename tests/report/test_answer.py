import math

from orchestrator.report.answer import answer
from orchestrator.results import TrialStatus


def test_the_best_trial_is_named_with_device_precision_batch_size_and_value(sweep):
    sweep.whole("t1", 0.5)
    sweep.whole("t2", 0.9, 0.8)
    found = answer(sweep.ledger)
    assert (found.trial, found.device, found.precision, found.batch_size) == ("t2", "cpu", "fp32", 32)
    assert (found.value, found.epoch) == (0.9, 1)
    assert found.sentence == "Best accuracy 0.9000 (epoch 1): trial t2 on cpu, fp32, batch size 32."


def test_a_failed_trial_does_not_win(sweep):
    sweep.whole("t1", 0.5)
    sweep.whole("t2", 0.9, status=TrialStatus.FAILED)
    assert answer(sweep.ledger).trial == "t1"


def test_among_equals_the_fastest_wins_and_the_tie_is_told(sweep):
    sweep.whole("t1", 0.5, measured={"perf/samples_per_s": 10.0})
    sweep.whole("t2", 0.5, measured={"perf/samples_per_s": 30.0})
    found = answer(sweep.ledger)
    assert found.trial == "t2"
    assert found.sentence.endswith("1 other trial reached the same value; this one was the fastest.")


def test_where_less_is_better_the_smallest_wins(sweep):
    sweep.ledger.mode = "min"
    sweep.whole("t1", 0.5)
    sweep.whole("t2", 0.2)
    assert answer(sweep.ledger).trial == "t2"


def test_nan_does_not_win_and_is_counted(sweep):
    sweep.whole("t1", math.nan)
    sweep.whole("t2", 0.1)
    found = answer(sweep.ledger)
    assert (found.trial, found.diverged) == ("t2", 1)


def test_without_a_finite_value_the_answer_says_so(sweep):
    sweep.whole("t1", math.nan)
    sweep.whole("t2", math.inf)
    found = answer(sweep.ledger)
    assert found.trial is None and found.value is None
    assert found.sentence == "No answer: no trial has a finite accuracy; 2 trials ended without one."


def test_without_a_finished_trial_the_answer_counts_the_others(sweep):
    sweep.whole("t1", 0.5, status=TrialStatus.FAILED)
    sweep.refuse("no gpu", TrialStatus.INFEASIBLE, "t2")
    assert answer(sweep.ledger).sentence == "No answer: no trial finished (1 failed, 1 infeasible)."
