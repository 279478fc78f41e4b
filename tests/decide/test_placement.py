"""Where a configuration may run, and why not elsewhere."""

import pytest

from orchestrator.decide.placement import PlacementRules, faults, fits, place, slots
from orchestrator.devices import Node
from orchestrator.results import TrialStatus
from orchestrator.settings import with_defaults
from orchestrator.trial import Refused

RULES = PlacementRules(framework="torch")
LAPTOP = [Node(id="a", address="127.0.0.1", cpus=2)]
WORKSTATION = [Node(id="a", address="127.0.0.1", cpus=16, resources={"GPU": 2.0, "accelerator_type:L4": 1.0})]


def placed(nodes=LAPTOP, rules=RULES, **config):
    return place(with_defaults({"device": "cpu", **config}), rules, nodes)


def test_a_cpu_trial_takes_half_of_a_small_machine_so_that_two_run_side_by_side():
    (placement,) = placed()
    assert placement.shape.cpus_per_worker == 1
    assert slots(placement.shape, LAPTOP) == 2


def test_workers_share_the_machine():
    (placement,) = placed(workers=2)
    assert (placement.shape.workers, placement.shape.cpus_per_worker) == (2, 1)
    assert slots(placement.shape, LAPTOP) == 1


def test_an_exclusive_trial_takes_the_whole_node():
    (placement,) = placed(rules=PlacementRules(framework="torch", exclusive=True))
    assert placement.shape.cpus_per_worker == 2


def test_an_exclusive_gpu_trial_leaves_the_other_gpu_of_its_node_alone():
    (placement,) = placed(WORKSTATION, PlacementRules(framework="torch", exclusive=True), device="gpu")
    assert slots(placement.shape, WORKSTATION) == 1


def test_a_missing_device_is_named_with_what_there_is():
    refused = placed(device="gpu")
    assert isinstance(refused, Refused)
    assert refused.status is TrialStatus.INFEASIBLE
    assert "needs gpu" in refused.reason and "2 CPU on 1 node" in refused.reason


def test_more_workers_than_cores_are_refused_with_both_numbers():
    refused = placed(workers=4, batch_size=32)
    assert isinstance(refused, Refused)
    assert "4 x (1 CPU)" in refused.reason and "2 CPU" in refused.reason


def test_any_device_gives_every_place_with_the_accelerator_first():
    placements = placed(WORKSTATION, device="any")
    assert [placement.shape.device for placement in placements] == ["gpu", "cpu"]


def test_a_narrower_device_only_matches_its_model():
    assert not isinstance(placed(WORKSTATION, device="gpu:L4"), Refused)
    assert isinstance(placed(WORKSTATION, device="gpu:H100"), Refused)


def test_gpu_trials_leave_cores_for_a_cpu_trial_beside_them():
    (gpu,), (cpu,) = placed(WORKSTATION, device="gpu"), placed(WORKSTATION)
    assert fits([gpu.shape, cpu.shape], WORKSTATION)


@pytest.mark.parametrize(("mode", "status"), [("skip", None), ("fail", TrialStatus.INFEASIBLE)])
def test_a_precision_that_the_device_lacks_is_skipped_or_fails(mode, status):
    refused = placed(rules=PlacementRules(framework="torch", on_unsupported=mode), precision="tf32")
    assert isinstance(refused, Refused)
    assert refused.status is status
    assert "tensor cores" in refused.reason


def test_a_precision_is_only_converted_when_asked():
    (placement,) = placed(rules=PlacementRules(framework="torch", on_unsupported="convert"), precision="tf32")
    assert (placement.precision, placement.converted_from) == ("fp32", "tf32")


def test_a_batch_that_the_workers_cannot_share_is_a_fault_that_names_both():
    (fault,) = faults(with_defaults({"device": "cpu", "workers": 2, "batch_size": 33}))
    assert "batch_size = 33" in fault and "workers = 2" in fault


def test_workers_that_contradict_the_devices_are_a_fault():
    (fault,) = faults(with_defaults({"device": "gpu", "devices": 2, "workers": 3, "batch_size": 6}))
    assert "workers = 3" in fault and "devices = 2" in fault
