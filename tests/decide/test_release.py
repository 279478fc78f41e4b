"""Which trial is handed out next."""

from dataclasses import replace

from orchestrator.decide.release import choose
from orchestrator.devices import DeviceShape
from orchestrator.trial import Placement, Trial

CPU = DeviceShape(device="cpu", model=None, devices=1, workers=1, cpus_per_worker=1, framework="torch")
GPU = replace(CPU, device="gpu")


def trial(id: str, *shapes: DeviceShape) -> Trial:
    return Trial(id=id, config={}, placements=tuple(Placement(shape=shape, precision="fp32") for shape in shapes))


def test_a_cpu_trial_does_not_wait_behind_gpu_trials():
    held = [trial("t1", GPU), trial("t2", GPU), trial("t3", CPU)]
    index, placement = choose(held, {GPU: 1}, {GPU: 1, CPU: 1}, ahead=0)
    assert (held[index].id, placement.shape) == ("t3", CPU)


def test_nothing_is_handed_out_when_every_slot_is_taken():
    assert choose([trial("t1", CPU)], {CPU: 2}, {CPU: 2}, ahead=0) is None


def test_one_trial_more_than_slots_keeps_a_group_from_waiting():
    assert choose([trial("t1", CPU)], {CPU: 2}, {CPU: 2}, ahead=1) is not None


def test_a_trial_for_any_device_goes_where_there_is_room_now():
    _, placement = choose([trial("t1", GPU, CPU)], {GPU: 1}, {GPU: 1, CPU: 2}, ahead=1)
    assert placement.shape == CPU
    assert choose([trial("t1", GPU, CPU)], {GPU: 1, CPU: 2}, {GPU: 1, CPU: 2}, ahead=1) is None


def test_a_trial_for_any_device_prefers_the_first_place():
    _, placement = choose([trial("t1", GPU, CPU)], {}, {GPU: 1, CPU: 1}, ahead=0)
    assert placement.shape == GPU
