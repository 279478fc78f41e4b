"""When worker groups start, stay and end."""

from dataclasses import replace

import pytest

from orchestrator.decide.group_life import (
    DemandView,
    End,
    GiveUp,
    GroupState,
    GroupView,
    LifeLimits,
    Start,
    decide,
)
from orchestrator.devices import DeviceShape, Node

ONE_CPU = DeviceShape(device="cpu", model=None, devices=1, workers=1, cpus_per_worker=1, framework="torch")
TWO_WORKERS = replace(ONE_CPU, workers=2)
GPU = replace(ONE_CPU, device="gpu", cpus_per_worker=2)
LAPTOP = [Node(id="a", address="127.0.0.1", cpus=2)]
FOUR_CORES = [Node(id="a", address="127.0.0.1", cpus=4)]
WITH_GPU = [Node(id="a", address="127.0.0.1", cpus=4, resources={"GPU": 1.0})]
LIMITS = LifeLimits(max_hold_s=60, idle_s=120)


def group(id: str, shape: DeviceShape = ONE_CPU, state: GroupState = GroupState.BUSY, **times: float) -> GroupView:
    return GroupView(id=id, shape=shape, state=state, **times)


def test_a_waiting_trial_starts_a_group_and_no_more_groups_than_trials():
    assert decide([DemandView(shape=ONE_CPU, waiting=1)], [], LAPTOP, LIMITS) == [Start(ONE_CPU)]


def test_no_more_groups_start_than_fit():
    assert decide([DemandView(shape=ONE_CPU, waiting=9)], [], FOUR_CORES, LIMITS) == [Start(ONE_CPU)] * 3
    full = [group(f"g{number}") for number in range(4)]
    assert decide([DemandView(shape=ONE_CPU, waiting=9)], full, FOUR_CORES, LIMITS) == []


def test_on_two_cores_groups_start_one_after_the_other():
    demands = [DemandView(shape=ONE_CPU, waiting=9)]
    assert decide(demands, [], LAPTOP, LIMITS) == [Start(ONE_CPU)]
    assert decide(demands, [group("g1", state=GroupState.STARTING)], LAPTOP, LIMITS) == []
    assert decide(demands, [group("g1", state=GroupState.IDLE)], LAPTOP, LIMITS) == [Start(ONE_CPU)]


def test_a_limit_on_concurrent_trials_limits_the_groups():
    limits = replace(LIMITS, max_groups=1)
    assert decide([DemandView(shape=ONE_CPU, waiting=9)], [], LAPTOP, limits) == [Start(ONE_CPU)]


def test_a_group_that_is_still_starting_serves_the_trial_that_waits():
    starting = group("g1", state=GroupState.STARTING)
    assert decide([DemandView(shape=ONE_CPU, waiting=1)], [starting], LAPTOP, LIMITS) == []


def test_an_idle_group_of_another_shape_makes_room_at_once():
    groups = [group("g1", state=GroupState.IDLE), group("g2", state=GroupState.IDLE)]
    actions = decide([DemandView(shape=TWO_WORKERS, waiting=1)], groups, LAPTOP, LIMITS)
    assert [action.group for action in actions if isinstance(action, End)] == ["g1", "g2"]


def test_a_new_group_is_left_to_wait_for_its_first_trial():
    demand = DemandView(shape=TWO_WORKERS, waiting=1)
    fresh = [group("g1", state=GroupState.IDLE, idle_s=9, is_new=True)]
    assert decide([demand], fresh, LAPTOP, LIMITS) == []
    late = [replace(fresh[0], idle_s=11)]
    assert [action.group for action in decide([demand], late, LAPTOP, LIMITS) if isinstance(action, End)] == ["g1"]


def test_a_busy_group_is_left_alone_until_the_other_shape_has_waited_long_enough():
    groups = [group("g1", held_s=500), group("g2", held_s=500)]
    assert decide([DemandView(shape=TWO_WORKERS, waiting=1, waited_s=59)], groups, LAPTOP, LIMITS) == []
    actions = decide([DemandView(shape=TWO_WORKERS, waiting=1, waited_s=61)], groups, LAPTOP, LIMITS)
    assert {action.group for action in actions if isinstance(action, End)} == {"g1", "g2"}


def test_a_group_that_has_just_taken_the_devices_keeps_them_for_a_while():
    groups = [group("g1", shape=TWO_WORKERS, held_s=5)]
    assert decide([DemandView(shape=ONE_CPU, waiting=4, waited_s=300)], groups, LAPTOP, LIMITS) == []


def test_nothing_more_is_ended_while_groups_that_make_room_are_leaving():
    groups = [group("g1", state=GroupState.ENDING), group("g2", state=GroupState.ENDING)]
    assert decide([DemandView(shape=TWO_WORKERS, waiting=1, waited_s=99)], groups, LAPTOP, LIMITS) == []


def test_an_idle_group_is_not_ended_when_that_would_not_make_enough_room():
    groups = [group("g1", state=GroupState.IDLE), group("g2", held_s=5)]
    assert decide([DemandView(shape=TWO_WORKERS, waiting=1, waited_s=1)], groups, LAPTOP, LIMITS) == []


def test_a_cpu_group_leaves_the_cores_that_a_coming_gpu_group_needs():
    demands = [DemandView(shape=ONE_CPU, waiting=9)]
    assert decide(demands, [], WITH_GPU, LIMITS, expected=[GPU]) == [Start(ONE_CPU)] * 2
    assert decide(demands, [], WITH_GPU, LIMITS) == [Start(ONE_CPU)] * 3


def test_accelerators_start_before_the_cpu():
    demands = [DemandView(shape=ONE_CPU, waiting=1, waited_s=50), DemandView(shape=GPU, waiting=1)]
    assert decide(demands, [], WITH_GPU, LIMITS)[0] == Start(GPU)


def test_a_group_without_work_ends_after_its_time():
    fresh, stale = (group(f"g{n}", state=GroupState.IDLE, idle_s=n) for n in (119, 121))
    assert [action.group for action in decide([], [fresh, stale], LAPTOP, LIMITS)] == ["g121"]


@pytest.mark.parametrize(("fruitless", "gives_up"), [(2, False), (3, True)])
def test_a_shape_is_given_up_after_three_groups_in_a_row_that_ended_no_trial(fruitless: int, gives_up: bool):
    actions = decide([DemandView(shape=ONE_CPU, waiting=1, fruitless=fruitless)], [], LAPTOP, LIMITS)
    assert actions == [GiveUp(ONE_CPU) if gives_up else Start(ONE_CPU)]
