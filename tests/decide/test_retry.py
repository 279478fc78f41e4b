"""Which lost attempts are tried again."""

from orchestrator.decide.retry import Cause, is_given_up, is_retried


def test_a_dead_worker_is_retried_once():
    assert is_retried(Cause.WORKER_DIED, {Cause.WORKER_DIED: 1})
    assert not is_retried(Cause.WORKER_DIED, {Cause.WORKER_DIED: 2})


def test_a_lost_node_does_not_use_up_the_retry_of_a_dead_worker():
    assert is_retried(Cause.WORKER_DIED, {Cause.WORKER_DIED: 1, Cause.NODE_LOST: 3})


def test_ranks_that_part_ways_are_not_retried():
    assert not is_retried(Cause.OUT_OF_STEP, {Cause.OUT_OF_STEP: 1})


def test_a_shape_is_given_up_after_three_fruitless_groups():
    assert [is_given_up(number) for number in (2, 3)] == [False, True]
