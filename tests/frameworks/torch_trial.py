"""A trial of torch in this process, without a fleet: a `Run` whose reports are kept in a list."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from orchestrator.channel import Channel, Decision
from orchestrator.devices import DeviceShape
from orchestrator.frameworks import TrialSettings, WorkerFacts
from orchestrator.frameworks.torch import Torch
from orchestrator.frameworks.torch_session import TorchSession
from orchestrator.precision import Precision
from orchestrator.run_context import Run
from orchestrator.trial import Lease, Placement, Rules, Trial


class MemoryChannel(Channel):
    """Never stops a trial."""

    def __init__(self) -> None:
        self.reports: list[dict[str, float]] = []
        self.logged: list[tuple[str, float, int, float]] = []

    def report(self, number: int, epoch: int, metrics: Mapping[str, float], checkpoint: str | None) -> Decision:
        self.reports.append(dict(metrics))
        return Decision()

    def follow(self, number: int) -> Decision:
        return Decision()

    def boundary(self, epoch: int, stopped: bool) -> bool:
        return stopped

    def log(self, values: list[tuple[str, float, int, float]]) -> None:
        self.logged += values


class TorchTrial:
    """`config` as of a trial; `run`, `session` and `channel` are there to be used, `close` ends it."""

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, Any] | None = None,
        *,
        rank: int = 0,
        workers: int = 1,
        device: str = "cpu",
        checkpoint: str | None = None,
    ) -> None:
        settings = {"epochs": 3, "batch_size": 8, "precision": "fp32", "seed": 0, **(config or {})}
        worker = WorkerFacts(device_type=device, rank=rank, workers=workers, cpus=1)
        shape = DeviceShape(
            device=device, model=None, devices=1, workers=workers, cpus_per_worker=1, framework="torch"
        )
        placement = Placement(shape=shape, precision=settings["precision"])
        lease = Lease(
            trial=Trial(id="t1", config=settings, placements=(placement,)),
            placement=placement,
            rules=Rules(objective="loss", mode="min"),
            attempt=1,
            index=0,
            directory=str(folder),
            checkpoint=checkpoint,
        )
        framework = Torch()
        framework.start(worker)
        self.channel = MemoryChannel()
        self.session: TorchSession = framework.session(
            TrialSettings(
                precision=Precision(settings["precision"]),
                batch_size=settings["batch_size"],
                seed=settings["seed"],
            )
        )
        self.run = Run(self.session, self.channel, lease, worker)

    def close(self) -> None:
        self.session.close()


def small_model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))
