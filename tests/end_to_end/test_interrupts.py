"""R37: an interrupt at any moment ends everything in order, and leaves no process and no lie behind."""

from __future__ import annotations

import signal
import time

import pytest
import ray
from ray.cluster_utils import Cluster

from orchestrator.cluster import probe


@pytest.fixture(scope="module")
def endless(start, tmp_path_factory):
    """Starts a sweep that does not end by itself; returns it once its first trials train."""

    def start_endless(*options: str, trains: bool = True, folder=None):
        scratch = tmp_path_factory.mktemp("scratch")
        command = start("endless.py", "--set", f"scratch={scratch}", *options, folder=folder)
        if trains:
            command.wait_for(lambda: list(scratch.glob("trains-*")))
        return command

    return start_endless


def assert_interrupted(command) -> None:
    assert command.code == 130, command.out + command.err
    assert command.left == []
    assert "Traceback" not in command.out + command.err
    assert (command.summary["status"], command.summary["exit_code"]) == ("interrupted", 130)
    for trial in command.trials:
        assert trial["status"] == ("cancelled" if trial["mlflow_run_id"] else "pending")
        assert trial["mlflow_run_id"] or trial["started"] is None
    assert command.parent.info.status == "KILLED"
    assert all(found.info.status == "KILLED" for found in command.runs.values())


def test_ctrl_c_ends_running_trials_with_all_their_processes(endless):
    """The terminal sends it to every process of the group, to loaders and grandchildren too."""
    command = endless()
    assert len(command.family.titles()) > 5
    command.send(signal.SIGINT, to_group=True)
    command.wait(limit_s=40)
    assert_interrupted(command)
    assert len(command.trials) >= 1
    assert command.trials[0]["metrics"].keys() == {"score"}, "what was reported is kept"


def test_sigterm_to_the_driver_alone_does_the_same(endless):
    command = endless()
    command.send(signal.SIGTERM)
    command.wait(limit_s=40)
    assert_interrupted(command)


@pytest.mark.parametrize("to_group", [True, False], ids=["ctrl-c", "to the driver"])
def test_an_interrupt_while_the_first_worker_still_starts(endless, to_group):
    command = endless(trains=False)
    command.wait_for(lambda: "worker group g1 starts" in command.out)
    command.send(signal.SIGINT, to_group=to_group)
    command.wait(limit_s=40)
    assert_interrupted(command)


def test_an_interrupt_before_there_is_a_sweep_leaves_nothing(endless):
    command = endless(trains=False)
    time.sleep(1)  # the command is importing Ray
    command.send(signal.SIGINT)
    command.wait(limit_s=40)
    assert command.code in (130, -signal.SIGINT)
    assert command.left == []
    assert list(command.folder.iterdir()) == []


def test_a_second_signal_shortens_the_wait_and_nothing_else(endless):
    command = endless("--set", "hears_nothing=true")
    command.send(signal.SIGINT, to_group=True)
    command.wait_for(lambda: "interrupted: stopping the trials" in command.out)
    command.send(signal.SIGINT, to_group=True)
    command.wait(limit_s=18)
    assert_interrupted(command)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Somebody's cluster on this machine, of which this process knows the address alone."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    yield cluster
    cluster.shutdown()


@pytest.fixture(scope="module")
def on_cluster(endless, cluster):
    command = endless("--address", cluster.address)
    command.send(signal.SIGINT)
    return command.wait(limit_s=40)


def test_a_cluster_that_the_command_did_not_start_goes_on_and_is_free_again(on_cluster, cluster):
    """R44 too: the cluster is the one that was named."""
    assert_interrupted(on_cluster)
    probe(cluster.address)
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    try:
        assert ray.available_resources()["CPU"] == 2
        assert ray.get(ray.remote(num_cpus=2)(lambda: 42).remote(), timeout=30) == 42
    finally:
        ray.shutdown()


def test_a_private_cluster_lives_beside_another(run, cluster):
    """R44: without an address, other clusters on the machine do not matter."""
    command = run("quick.py:experiment", "--sweep", "x=1,2")
    assert command.code == 0, command.out + command.err
    assert command.left == []
    probe(cluster.address)
