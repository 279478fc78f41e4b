"""The loop of a worker: join the group, then take trials from the queue until it is told to leave.

Runs inside Ray Train, on every rank of a worker group.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayTaskError

from orchestrator.channel import Channel, Decision
from orchestrator.devices import DeviceShape
from orchestrator.fleet.messages import Leave
from orchestrator.fleet.trial_runner import process_facts, run_trial
from orchestrator.frameworks import Framework, WorkerFacts, create_framework
from orchestrator.loader import load_in_worker
from orchestrator.results import Ended
from orchestrator.trial import Lease

_CALL_TIMEOUT_S = 120.0  # of a call that the queue answers within ASK_AGAIN_S: the queue or its node is gone


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """What a group is started with. `folder` is the experiment's folder where it lies at the same path on every
    node; None where Ray sent a copy, which then is the current directory. `trials` limits a group's life,
    `scratch` is a folder for Ray Train."""

    queue: Any
    group: str
    shape: DeviceShape
    file: str
    folder: str | None
    name: str
    scratch: str
    trials: int | None = None


class QueueChannel(Channel):
    """A worker's line to the queue, for one attempt at a trial."""

    def __init__(self, queue: Any, lease: Lease, rank: int) -> None:
        self._queue, self._rank = queue, rank
        self._attempt = (lease.trial.id, lease.attempt)
        self._patience_s = None if lease.rules.lockstep else _CALL_TIMEOUT_S

    def report(self, number: int, epoch: int, metrics: Mapping[str, float], checkpoint: str | None) -> Decision:
        call = self._queue.report.remote(*self._attempt, number, epoch, metrics, checkpoint)
        return _answer(call, self._patience_s)

    def follow(self, number: int) -> Decision:
        return _answer(self._queue.follow.remote(*self._attempt, number, self._rank))

    def boundary(self, epoch: int, stopped: bool) -> bool:
        return _answer(self._queue.boundary.remote(*self._attempt, epoch, self._rank, stopped))

    def log(self, values: list[tuple[str, float, int, float]]) -> None:
        self._queue.log.remote(*self._attempt, tuple(values))


def _answer(call: Any, timeout_s: float | None = None) -> Any:
    """What the queue answers, or raises: the user reads its words, without the trace of its own process."""
    try:
        return ray.get(call, timeout=timeout_s)
    except RayTaskError as error:
        raise error.cause from None


def worker_loop(settings: WorkerSettings, rank: int, workers: int, local_rank: int) -> None:
    """Everything that a worker does in its life.

    Raises:
        RuntimeError: the group does not reduce over its workers.
    """
    shape, queue = settings.shape, settings.queue
    facts = WorkerFacts(
        device_type=shape.device,
        rank=rank,
        workers=workers,
        cpus=shape.cpus_per_worker,
        devices=shape.devices_per_worker,
        device_index=_device_index(local_rank),
        emulated=shape.emulated,
    )
    framework = create_framework(shape.framework, shape.device)
    framework.start(facts)
    file = Path(settings.folder or os.getcwd()) / settings.file
    loaded = load_in_worker(file, settings.name)
    _check_sum_of_ranks(framework, rank, workers)
    node = ray.get_runtime_context().get_node_id()
    ray.get(queue.join.remote(settings.group, rank, node, _facts(framework, shape)), timeout=_CALL_TIMEOUT_S)

    if workers > 1:
        threading.Thread(target=_end_with_the_group, args=(settings,), name="group-watch", daemon=True).start()
    with contextlib.suppress(Leave):
        _work(
            settings,
            rank,
            lambda lease: run_trial(lease, QueueChannel(queue, lease, rank), framework, facts, loaded),
        )


def _end_with_the_group(settings: WorkerSettings) -> None:
    """End this process once the group is broken: a rank may hang in an exchange with one that has gone.

    The workers end themselves, for then Ray Train sees it and gives their devices back; if its controller were
    killed, they would stay reserved as long as the driver lives.
    """
    while not ray.get(settings.queue.is_broken.remote(settings.group), timeout=_CALL_TIMEOUT_S):
        continue
    os._exit(1)


def _work(settings: WorkerSettings, rank: int, run: Callable[[Lease], Ended]) -> None:
    """Take trials one after the other, until there is to be none any more.

    Raises:
        Leave: the group is to end.
    """
    queue, group, turn = settings.queue, settings.group, 0
    call = queue.lease.remote(group, turn, rank)
    while True:
        lease = ray.get(call, timeout=_CALL_TIMEOUT_S)
        if lease is None:
            call = queue.lease.remote(group, turn, rank)
            continue
        ended, turn = run(lease), turn + 1
        if turn == settings.trials:
            ray.get(queue.finish.remote(group, lease.attempt, rank, ended), timeout=_CALL_TIMEOUT_S)
            return
        call = queue.finish_and_lease.remote(group, lease.attempt, rank, ended, turn)


def _device_index(local_rank: int) -> int:
    """Which of the visible accelerators is this worker's: Ray Train shows a worker those of its neighbours too."""
    mine = [str(name) for name in ray.get_gpu_ids()]
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return visible.index(mine[0]) if len(mine) == 1 and mine[0] in visible else local_rank


def _check_sum_of_ranks(framework: Framework, rank: int, workers: int) -> None:
    found, right = framework.sum_over_workers(rank), workers * (workers - 1) // 2
    if found != right:
        raise RuntimeError(f"the workers do not reduce: the sum of ranks is {found}, should be {right}")


def _facts(framework: Framework, shape: DeviceShape) -> dict[str, str]:
    return {**process_facts(framework, shape), "device.emulated": str(shape.emulated).lower()}
