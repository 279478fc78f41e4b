"""Step times and the speed that follows from them."""

from __future__ import annotations

import time

import pytest

from orchestrator.measure.step_timer import WARM_UP_STEPS, StepClock, speed

SLOW_START = [9.0] * WARM_UP_STEPS


def test_warm_up_steps_do_not_count():
    found = speed([*SLOW_START, 0.1, 0.1, 0.2], batch_size=32)
    assert found is not None
    assert found.step_time_s_p50 == 0.1
    assert found.step_time_s_p99 == 0.2
    assert found.samples_per_s == pytest.approx(32 * 3 / 0.4)


def test_a_trial_of_warm_up_steps_alone_has_no_speed():
    assert speed(SLOW_START, batch_size=32) is None


def test_the_99th_percentile_leaves_out_the_slowest_of_two_hundred():
    found = speed([*SLOW_START, *[0.1] * 198, 0.3, 7.0], batch_size=1)
    assert found is not None
    assert (found.step_time_s_p50, found.step_time_s_p99) == (0.1, 0.1)
    found = speed([*SLOW_START, *[0.1] * 90, *[0.3] * 10], batch_size=1)
    assert found is not None
    assert found.step_time_s_p99 == 0.3


def test_a_step_holds_the_fetching_of_its_batch_but_not_what_lies_between_passes():
    clock = StepClock()
    clock.begin_pass()
    time.sleep(0.02)  # fetch and train
    clock.end_step()
    time.sleep(0.2)  # validate
    clock.begin_pass()
    clock.end_step()
    first, second = clock.times_s()
    assert first >= 0.02
    assert second < 0.1


def test_steps_without_a_pass_are_timed_from_the_second_on():
    clock = StepClock()
    for _ in range(3):
        clock.end_step()
    assert len(clock.times_s()) == 2
    assert clock.began is not None and clock.untimed_steps == 1


def test_validation_is_timed_apart_and_belongs_to_no_step():
    clock = StepClock()
    clock.begin_pass()
    clock.end_step()
    clock.begin_validation()  # in the middle of an epoch
    time.sleep(0.1)
    clock.end_validation()
    clock.end_step()
    assert max(clock.times_s()) < 0.05
    (validation_s,) = clock.validation_times_s()
    assert validation_s >= 0.1


def test_what_follows_a_pass_over_the_users_own_loader_belongs_to_no_step():
    clock = StepClock()
    clock.end_step()
    clock.end_pass()
    time.sleep(0.1)
    clock.end_step()
    clock.end_step()
    assert clock.untimed_steps == 2 and max(clock.times_s()) < 0.05


def test_it_costs_next_to_nothing():
    clock = StepClock()
    clock.begin_pass()
    began = time.perf_counter()
    for _ in range(1000):
        clock.end_step()
    assert (time.perf_counter() - began) / 1000 < 50e-6
