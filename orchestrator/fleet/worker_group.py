"""A worker group: one long Ray Train run of a device shape, started, watched and ended by the driver."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import NodeDiedError, OutOfMemoryError, RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from orchestrator.decide.retry import Cause
from orchestrator.devices import DEVICE_TYPES
from orchestrator.fleet.worker import WorkerSettings, worker_loop

_ENDED = "its process ended: killed, crashed or out of memory"

logger = logging.getLogger(__name__)


def _in_ray_train(config: dict[str, Any]) -> None:
    from ray import train

    context = train.get_context()
    worker_loop(config["settings"], context.get_world_rank(), context.get_world_size(), context.get_local_rank())


class GroupHost:
    """The actor that runs Ray Train. With one worker it is the worker itself (Ray Train's local mode: one process
    instead of six); with several it holds nothing and Ray Train places them, all or none."""

    def run(self, settings: WorkerSettings) -> None:
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchConfig
        from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

        shape = settings.shape
        if shape.workers == 1:
            backend, scaling = None, ScalingConfig(num_workers=0)
        else:
            backend = TorchConfig(backend="nccl" if shape.device == "gpu" else "gloo")
            scaling = ScalingConfig(
                num_workers=shape.workers,
                use_gpu=shape.device == "gpu",
                resources_per_worker=DEVICE_TYPES[shape.device].bundle(shape),
            )
        DataParallelTrainer(
            _in_ray_train,
            train_loop_config={"settings": settings},
            backend_config=backend,
            scaling_config=scaling,
            run_config=RunConfig(
                name=settings.group,
                storage_path=settings.scratch,
                failure_config=FailureConfig(max_failures=0, controller_failure_limit=0),
            ),
        ).fit()


@dataclass(frozen=True, kw_only=True)
class Gone:
    """A group that is no more. `cause` is None where it left as it was told."""

    cause: Cause | None
    detail: str


class WorkerGroup:
    """The driver's handle of a group."""

    def __init__(self, settings: WorkerSettings, home: str, environment: dict[str, Any] | None) -> None:
        """Start it. `home` is the driver's node, `environment` Ray's runtime environment for the workers."""
        shape = settings.shape
        options: dict[str, Any] = {"runtime_env": environment} if environment else {}
        if shape.workers > 1:
            options |= {
                "num_cpus": 0,
                "scheduling_strategy": NodeAffinitySchedulingStrategy(home, soft=False),
            }
        else:
            bundle = DEVICE_TYPES[shape.device].bundle(shape)
            options |= {
                "num_cpus": bundle.pop("CPU"),
                "num_gpus": bundle.pop("GPU", 0),
                "resources": bundle,
            }
        self.id, self.shape = settings.group, shape
        self._host = ray.remote(GroupHost).options(**options).remote()
        self._run = self._host.run.remote(settings)

    def gone(self) -> Gone | None:
        """How the group ended; None while it lives."""
        done, _ = ray.wait([self._run], timeout=0)
        if not done:
            return None
        try:
            ray.get(self._run)
        except NodeDiedError as error:
            return Gone(cause=Cause.NODE_LOST, detail=_last_line(error))
        except OutOfMemoryError:
            return Gone(cause=Cause.WORKER_DIED, detail="the node ran out of memory and Ray ended its process")
        except RayActorError as error:
            logger.info("worker group %s: %s", self.id, error)
            if error.preempted:
                return Gone(cause=Cause.NODE_LOST, detail="its node was taken away")
            return Gone(cause=Cause.WORKER_DIED, detail=_ENDED)
        except RayTaskError as error:
            logger.info("worker group %s: %s", self.id, error)
            died = "actor is dead" in str(error)
            return Gone(cause=Cause.WORKER_DIED, detail=_ENDED if died else _last_line(error))
        finally:
            ray.kill(self._host)
        return Gone(cause=None, detail="left")

    def kill(self) -> None:
        """End all its processes now."""
        ray.kill(self._host)


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
