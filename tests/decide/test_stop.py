"""When a trial is stopped for what it reports itself."""

import pytest

from orchestrator.decide.stop import stop_reason
from orchestrator.results import Reported
from orchestrator.trial import Rules


def report(**metrics: float) -> Reported:
    return Reported(trial_id="t1", attempt=1, time=0.0, number=1, epoch=3, metrics=metrics)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_diverged_trial_is_stopped_only_where_that_was_asked_for(value: float):
    stop, go_on = (Rules(objective="loss", mode="min", on_divergence=what) for what in ("stop", "continue"))
    assert stop_reason(report(loss=value, accuracy=0.5), stop) == "diverged in epoch 3: loss"
    assert stop_reason(report(loss=value), go_on) is None


def test_finite_metrics_stop_nothing():
    assert stop_reason(report(loss=1e300), Rules(objective="loss", mode="min", on_divergence="stop")) is None
