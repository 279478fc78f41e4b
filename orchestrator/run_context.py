"""`Run`: what a train function gets. It knows the trial's settings, trains through the framework's session and
reports through the fleet's channel."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from orchestrator.channel import Channel, Decision
from orchestrator.checkpoint import CheckpointKeeper
from orchestrator.errors import StopTrial
from orchestrator.frameworks.base import Session, WorkerFacts
from orchestrator.results import is_finite
from orchestrator.trial import Lease

_LOG_BUFFER = 1000


class Settings(Mapping[str, Any]):
    """The trial's settings, read only. Remembers which were looked at."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        self.read.update(self._values)  # who takes all of them may use each
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __repr__(self) -> str:
        return repr(self._values)


class Run:
    """One execution of a train function with one configuration, on one of its workers.

    Attributes:
        config: the trial's settings.
        device: the framework's object for this worker's device.
        rank, workers: this worker's number (from 0) and how many there are.
    """

    def __init__(self, session: Session, channel: Channel, lease: Lease, worker: WorkerFacts) -> None:
        self._session, self._channel, self._lease = session, channel, lease
        self.config = Settings({**lease.trial.config, "precision": lease.placement.precision})
        self.device = session.device
        self.rank, self.workers = worker.rank, worker.workers
        self.diverged_at: int | None = None
        self._reports = 0
        self._first_epoch = 0  # epochs done before this attempt
        self._epoch = 0  # the one that is being trained, from 0
        self._counts_epochs = True  # by reports, unless `epochs` is used
        self._stopped = False
        self._logged: list[tuple[str, Any, int, float]] = []
        self._steps = 0
        self._has_state = False
        rules = lease.rules
        self._checkpoints = CheckpointKeeper(
            Path(lease.directory) / "checkpoints", keep=rules.keep_checkpoints, mode=rules.mode
        )
        self._resume = Path(lease.checkpoint) if lease.checkpoint else None
        if self._resume:
            self._first_epoch = self._epoch = session.progress(self._resume)["epoch"]
        self._session_step = session.step

    @property
    def precision(self) -> str:
        """The precision that the trial trains at: "fp32", "bf16", ..."""
        return self.config["precision"]

    @property
    def seed(self) -> int:
        return self.config["seed"]

    @property
    def batch_size(self) -> int:
        """Samples of one optimizer step, over all workers."""
        return self.config["batch_size"]

    @property
    def local_batch_size(self) -> int:
        """This worker's share of `batch_size`."""
        return self.batch_size // self.workers

    def prepare(self, *objects: Any) -> Any:
        """Models, optimizers and schedules, placed on the device, wrapped for data parallelism and restored from a
        checkpoint; returns them in the same order, a single one alone."""
        self.config.read.add("precision")
        self._has_state = True
        prepared = self._session.prepare(objects, self._resume)
        return prepared[0] if len(prepared) == 1 else prepared

    def loader(
        self, dataset: Any, shuffle: bool | None = None, train: bool = True, **options: Any
    ) -> Iterable[Any]:
        """Batches of this worker's share of the rows, on the device; to be iterated once an epoch.

        With `train` every batch has the same shape (what remains of the last one is dropped) and rows are shuffled
        by (seed, epoch); without it every row comes exactly once, in order, over all workers. `options` are those
        of the framework's own loader (torch: `num_workers`, `collate_fn`, `pin_memory`).

        Raises:
            DataError: there are not enough rows for the workers or for one batch.
        """
        self.config.read.add("batch_size")
        shuffled = train if shuffle is None else shuffle
        return self._session.loader(dataset, shuffle=shuffled, train=train, epoch=lambda: self._epoch, **options)

    def epochs(self) -> Iterator[int]:
        """The numbers (from 0) of the epochs still to do; ends on every worker alike when the trial is stopped."""
        self._counts_epochs = False
        for epoch in range(self._first_epoch, self.config["epochs"]):
            if self.workers > 1:
                self._stopped = self._channel.boundary(epoch, self._stopped)
            if self._stopped:
                return
            self._epoch = epoch
            yield epoch

    def autocast(self) -> AbstractContextManager[Any]:
        """A context in which the model computes at the trial's precision."""
        self.config.read.add("precision")
        return self._session.autocast()

    def step(self, loss: Any, optimizer: Any, scheduler: Any = None, clip_norm: float | None = None) -> None:
        """One optimizer update from a loss: backward, loss scaling, clipping, step, schedule, zeroed gradients."""
        self._steps += 1
        self._session_step(loss, optimizer, scheduler, clip_norm)

    def average(self, value: Any, count: Any) -> float:
        """The mean of `value`, itself a mean over `count` rows of this worker, over the rows of all workers."""
        return self._session.average(value, count)

    def report(self, **metrics: Any) -> None:
        """Once an epoch, on every worker or on rank 0 alone: metrics for the sweep, and a checkpoint.

        Raises:
            StopTrial: the trial is to end here.
            TypeError: a metric is no number.
        """
        self._reports += 1
        epoch = self._first_epoch + self._reports if self._counts_epochs else self._epoch + 1
        if self.rank == 0:
            decision = self._report(epoch, {name: self._number(name, value) for name, value in metrics.items()})
        else:
            decision = self._channel.follow(self._reports)
        if self._counts_epochs:
            self._epoch = epoch
        if decision.stop and decision.everywhere:
            raise StopTrial
        self._stopped = self._stopped or decision.stop

    def log(self, **metrics: Any) -> None:
        """Step-level metrics. Never waits: values on the device are read later."""
        now = time.time()
        for name, value in metrics.items():
            kept = value.detach() if hasattr(value, "detach") else value
            self._logged.append((name, kept, self._steps, now))
        if len(self._logged) >= _LOG_BUFFER:
            self.flush()

    def flush(self) -> None:
        """Hand on what was logged."""
        if self._logged:
            logged, self._logged = self._logged, []
            if self.rank == 0:
                self._channel.log([(name, self._number(name, value), *rest) for name, value, *rest in logged])

    def unread(self) -> tuple[str, ...]:
        """Swept settings that nobody looked at."""
        return tuple(name for name in self._lease.rules.swept if name.partition(".")[0] not in self._read())

    @property
    def best_checkpoint(self) -> str | None:
        return self._checkpoints.best

    @property
    def last_checkpoint(self) -> str | None:
        return self._checkpoints.last

    def _read(self) -> set[str]:
        """Placement and seeds are settings that the orchestrator itself acts on."""
        return self.config.read | {"device", "devices", "workers", "cpus_per_worker", "seed"}

    def _report(self, epoch: int, metrics: dict[str, float]) -> Decision:
        if self.diverged_at is None and not all(is_finite(value) for value in metrics.values()):
            self.diverged_at = epoch
        self.flush()
        checkpoint = self._save(epoch, metrics.get(self._lease.rules.objective))
        decision = self._channel.report(self._reports, epoch, metrics, checkpoint)
        if self.diverged_at is not None and self._lease.rules.on_divergence == "stop":
            return Decision(stop=True, everywhere=self.workers == 1)
        return decision

    def _save(self, epoch: int, objective: float | None) -> str | None:
        if not self._has_state:
            return None
        progress = {"epoch": epoch, "step": self._steps}
        return self._checkpoints.save(epoch, objective, lambda folder: self._session.save(folder, progress))

    def _number(self, name: str, value: Any) -> float:
        try:
            return self._session.number(value)
        except (TypeError, ValueError, RuntimeError) as error:
            kind = type(value).__name__
            raise TypeError(f"metric {name} = {value!r} ({kind}) is no number: {error}") from error
