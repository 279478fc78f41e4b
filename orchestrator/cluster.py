"""The Ray cluster: what is in it, and the connection to it."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.devices import Node
from orchestrator.errors import ClusterError

_PROBE_TIMEOUT_S = 5.0

logger = logging.getLogger(__name__)

# Read by Ray when it is imported or started. What a user has set stays.
_QUIET = {
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    "RAY_TRAIN_ENABLE_STRUCTURED_LOGGING": "0",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300",  # as long as the fleet waits for a group
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_RUNTIME_ENV_IGNORE_GITIGNORE": "1",
}
_PRIVATE = {
    # Nothing else uses a private cluster, so no node of it is drained behind our back.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_enable_metrics_collection": "0",
    "RAY_usage_stats_enabled": "0",
}


def given_address(option: str | None) -> str | None:
    """The address of an existing cluster that the user wants: `--address`, else RAY_ADDRESS."""
    return option or os.environ.get("RAY_ADDRESS") or None


def local_nodes() -> list[Node]:
    """This machine as the one node of a private cluster; no process is started, no device touched."""
    from ray._private.accelerators import get_accelerator_manager_for_resource
    from ray._private.utils import get_num_cpus

    resources: dict[str, float] = {}
    manager = get_accelerator_manager_for_resource("GPU")
    if count := manager.get_current_node_num_accelerators():
        resources["GPU"] = float(count)
        if model := manager.get_current_node_accelerator_type():
            resources[f"accelerator_type:{model}"] = 1.0
    return [Node(id="local", address="127.0.0.1", cpus=int(get_num_cpus()), resources=resources)]


def probe(address: str) -> None:
    """Check within 5 s that something listens there: Ray's own connection tries for minutes.

    Raises:
        ClusterError: nobody answers, or the address is of a kind that is not supported.
    """
    if address.startswith("ray://"):
        raise ClusterError(
            f"--address {address} is Ray Client, which is not supported: start the command on the head node with "
            "--address HOST:6379, or submit it with `ray job submit`"
        )
    if address in ("auto", "local"):
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ClusterError(f"--address {address!r} is not allowed: HOST:PORT of a Ray head node, or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(f"--address {address}: nobody answers there ({error})") from None


@contextmanager
def connected(address: str | None, nodes: list[Node], *, verbose: bool) -> Iterator[list[Node]]:
    """A connection to the cluster at `address`, or a private cluster on this machine made of `nodes[0]`.

    Yields the nodes. At the end a private cluster is gone with all its processes, a given one runs on.
    """
    for name, value in {**_QUIET, **({} if address else _PRIVATE)}.items():
        os.environ.setdefault(name, value)
    import ray

    if not verbose:
        _silence()
    common = {
        "log_to_driver": verbose,
        "logging_level": logging.INFO if verbose else logging.ERROR,
        "include_dashboard": False,
        "namespace": "orchestrator",
    }
    if address is None:
        node = nodes[0]
        gpus = node.resources.get("GPU", 0)
        ray.init(address="local", num_cpus=node.cpus, num_gpus=int(gpus), **common)
    else:
        try:
            ray.init(address=address, **{key: common[key] for key in common if key != "include_dashboard"})
        except (ConnectionError, RuntimeError) as error:
            raise ClusterError(f"--address {address}: {error}") from error
        nodes = cluster_nodes()
    try:
        yield nodes
    finally:
        ray.shutdown()


def _silence() -> None:
    """Tune logs what goes wrong with its own files, which are not used here, and Ray prints errors of its node
    processes even with `log_to_driver=False`; what matters of them reaches the user as the cause of an end."""
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    from ray._private import worker

    assert hasattr(worker, "print_to_stdstream"), "Ray has changed how it prints errors of its nodes"
    worker.print_to_stdstream = lambda data, ignore_prefix: logger.debug("Ray: %s", data.get("lines"))


def cluster_nodes() -> list[Node]:
    """The living nodes of the connected cluster."""
    import ray

    return [
        Node(
            id=node["NodeID"],
            address=node["NodeManagerAddress"],
            cpus=int(node["Resources"].get("CPU", 0)),
            resources={name: amount for name, amount in node["Resources"].items() if name != "CPU"},
            labels=node.get("Labels") or {},
        )
        for node in ray.nodes()
        if node["Alive"]
    ]
