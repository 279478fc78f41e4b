"""Made-up sweeps for the tests of the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.devices import DeviceShape
from orchestrator.report.answer import answer
from orchestrator.report.ending import Ending
from orchestrator.report.ledger import Ledger
from orchestrator.results import Ended, Reported, Started, TrialStatus
from orchestrator.tracking.base import TrackingIds
from orchestrator.trial import Placement, Refused, Trial


class MadeUpSweep:
    """A ledger with short ways to fill it; `on_event` hears every event after the ledger."""

    def __init__(self, swept: tuple[str, ...] = ("precision", "batch_size"), mode: str = "max") -> None:
        self.ledger = Ledger(objective="accuracy", mode=mode, swept=swept)
        self.on_event: Callable[[Any, Ledger], None] = lambda event, ledger: None

    def trial(self, trial_id: str, device: str = "cpu", **config: Any) -> Trial:
        shape = DeviceShape(device=device, model=None, devices=1, workers=1, cpus_per_worker=1, framework="torch")
        settings = {"precision": "fp32", "batch_size": 32, "epochs": 3, "device": device, **config}
        placement = Placement(shape=shape, precision=settings["precision"])
        return Trial(id=trial_id, config=settings, placements=(placement,))

    def add(self, trial_id: str, **config: Any) -> None:
        self.ledger.add(self.trial(trial_id, **config))

    def refuse(self, reason: str, status: TrialStatus | None = None, trial_id: str | None = None) -> None:
        config = {"precision": "fp8", "batch_size": 32}
        self.ledger.refuse(Refused(config=config, device="gpu", reason=reason, status=status, id=trial_id))

    def event(self, event: Any) -> None:
        self.ledger.record(event)
        self.on_event(event, self.ledger)

    def start(self, trial_id: str, attempt: int = 1, **facts: str) -> None:
        self.event(Started(trial_id=trial_id, attempt=attempt, time=100.0, group="g", facts=facts))

    def report(self, trial_id: str, epoch: int, attempt: int = 1, **metrics: float) -> None:
        self.event(
            Reported(
                trial_id=trial_id, attempt=attempt, time=100.0 + epoch, number=epoch, epoch=epoch, metrics=metrics
            )
        )

    def end(
        self, trial_id: str, status: TrialStatus = TrialStatus.FINISHED, attempt: int = 1, **more: Any
    ) -> None:
        self.event(Ended(trial_id=trial_id, attempt=attempt, time=110.0, status=status, **more))

    def whole(
        self, trial_id: str, *values: float, status: TrialStatus = TrialStatus.FINISHED, **more: Any
    ) -> None:
        """A trial from its start to its end, with one report for each value of the objective."""
        self.add(trial_id)
        self.start(trial_id)
        for epoch, value in enumerate(values, start=1):
            self.report(trial_id, epoch, accuracy=value)
        self.end(trial_id, status, **more)

    def ending(self, folder: Path = Path("results/s"), *, interrupted: bool = False, **more: Any) -> Ending:
        return Ending(
            experiment="mlp",
            sweep="mlp-1",
            folder=folder,
            status=self.ledger.sweep_status(interrupted=interrupted),
            wall_s=12.3,
            answer=answer(self.ledger),
            **{"tracking": TrackingIds(tracking_uri="sqlite:///mlflow.db"), **more},
        )


@pytest.fixture
def sweep() -> MadeUpSweep:
    return MadeUpSweep()
