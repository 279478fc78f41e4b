"""The contract of a device type, over every one that is listed."""

import pytest

from orchestrator.devices import DEVICE_TYPES, DeviceShape, DeviceType, Node, parse_device

BARE = Node(id="a", address="127.0.0.1", cpus=8)
FULL = Node(id="b", address="127.0.0.1", cpus=8, resources={"GPU": 4.0, "accelerator_type:L4": 1.0})


@pytest.fixture(params=DEVICE_TYPES.values(), ids=lambda device: device.name)
def device(request) -> DeviceType:
    return request.param


def shape(device: DeviceType) -> DeviceShape:
    return DeviceShape(device=device.name, model=None, devices=1, workers=1, cpus_per_worker=3, framework="torch")


def test_it_is_listed_under_its_own_name(device: DeviceType):
    assert DEVICE_TYPES[device.name] is device
    assert parse_device(device.name) == (device.name, None)


def test_it_counts_only_what_the_node_has(device: DeviceType):
    assert device.count(FULL) > 0
    assert device.count(Node(id="c", address="127.0.0.1", cpus=0)) == 0


def test_a_worker_asks_for_its_cores_and_for_at_least_one_device(device: DeviceType):
    bundle = device.bundle(shape(device))
    assert bundle["CPU"] == 3.0
    assert bundle[device.resource] >= 1.0


def test_one_device_is_one_worker(device: DeviceType):
    assert device.workers(1, None) == 1


def test_workers_that_contradict_the_devices_are_refused_with_both_numbers(device: DeviceType):
    with pytest.raises(ValueError, match="devices = 2"):
        device.workers(2, 3)


def test_the_driver_can_ask_for_the_model_of_a_node_without_touching_the_device(device: DeviceType):
    assert device.model(BARE) is None


def test_a_gpu_node_is_known_by_the_model_that_ray_names():
    assert DEVICE_TYPES["gpu"].model(FULL) == "L4"
    bundle = DEVICE_TYPES["gpu"].bundle(
        DeviceShape(device="gpu", model="L4", devices=1, workers=1, cpus_per_worker=2, framework="torch")
    )
    assert bundle == {"CPU": 2.0, "GPU": 1.0, "accelerator_type:L4": 0.001}


def test_the_processor_has_a_name():
    assert DEVICE_TYPES["cpu"].local_model()


def test_a_device_that_does_not_exist_is_refused_with_the_list_and_the_nearest():
    with pytest.raises(ValueError, match=r'did you mean "gpu".*allowed: any, each, gpu, cpu'):
        parse_device("gpus")
