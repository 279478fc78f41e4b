"""`Run`: what a train function gets. It knows the trial's settings, trains through the framework's session and
reports through the fleet's channel."""

from __future__ import annotations

import copy
import reprlib
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from orchestrator.channel import Channel, Decision
from orchestrator.checkpoint import CheckpointKeeper
from orchestrator.errors import StopTrial, nearest
from orchestrator.frameworks.base import Session, WorkerFacts
from orchestrator.results import is_finite
from orchestrator.trial import Lease

_LOG_BUFFER = 1000  # values of `run.log` that are handed on together

# The orchestrator itself acts on these, whatever the train function reads.
_PLACEMENT = {"device", "devices", "workers", "cpus_per_worker", "seed"}


class Settings(Mapping[str, Any]):
    """The trial's settings, read only. `read` holds the names of those that were looked at."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = copy.deepcopy(dict(values))  # nested ones may be changed by who reads them
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        try:
            return self._values[name]
        except KeyError:
            raise KeyError(f"the trial has no setting {name!r}{nearest(name, self._values)}") from None

    def __iter__(self) -> Iterator[str]:
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
        config: the trial's settings, as they hold on this device.
        device: the framework's object for this worker's device.
        rank, workers: this worker's number (from 0) and how many there are.
        diverged_at: the first epoch (from 1) that reported NaN or infinity; None so far. Known on rank 0.
    """

    def __init__(self, session: Session, channel: Channel, lease: Lease, worker: WorkerFacts) -> None:
        self._session, self._channel, self._rules = session, channel, lease.rules
        self.config = Settings(_effective(lease))
        self.device = session.device
        self.rank, self.workers = worker.rank, worker.workers
        self.diverged_at: int | None = None
        self._resume = Path(lease.checkpoint) if lease.checkpoint else None
        done = session.progress(self._resume) if self._resume else {}
        self._epochs_done = done.get("epoch", 0)  # before this attempt
        self._steps = done.get("step", 0)
        self._epoch = self._epochs_done  # the one that is being trained, from 0
        self._counts_epochs = True  # by reports and passes, unless `epochs` is used
        self._reports = self._passes = 0
        self._stopped = False
        self._has_state = False
        self._logged: list[tuple[str, Any, int, float]] = []
        self._logged_tensors = False
        self._checkpoints = CheckpointKeeper(
            Path(lease.directory) / "checkpoints",
            keep=self._rules.keep_checkpoints,
            mode=self._rules.mode,
            epochs_done=0 if self.rank else self._epochs_done,
        )
        self._update = session.step

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

    @property
    def best_checkpoint(self) -> str | None:
        """The folder of the checkpoint with the best objective. Known on rank 0."""
        return self._checkpoints.best

    @property
    def last_checkpoint(self) -> str | None:
        """The folder of the newest checkpoint. Known on rank 0."""
        return self._checkpoints.last

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
        return self._session.loader(
            dataset,
            shuffle=train if shuffle is None else shuffle,
            train=train,
            epoch=self._begin_pass if train else lambda: self._epoch,
            **options,
        )

    def epochs(self) -> Iterator[int]:
        """The numbers (from 0) of the epochs still to do; ends on every worker alike when the trial is stopped."""
        self._counts_epochs = False
        for epoch in range(self._epochs_done, self.config.get("epochs", 1)):
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
        self._update(loss, optimizer, scheduler, clip_norm)

    def average(self, value: Any, count: Any) -> float:
        """The mean of `value`, itself a mean over `count` rows of this worker, over the rows of all workers."""
        return self._session.average(value, count)

    def report(self, **metrics: Any) -> None:
        """Once an epoch, on every worker or on rank 0 alone: metrics for the sweep, and a checkpoint.

        Raises:
            StopTrial: the trial is to end here.
            TypeError: a metric is no number.
        """
        numbers = {name: self._number(name, value) for name, value in metrics.items()} if self.rank == 0 else {}
        self._reports += 1
        if self._counts_epochs:
            self._epoch = self._epochs_done + self._reports - 1
        decision = self._report(numbers) if self.rank == 0 else self._channel.follow(self._reports)
        if decision.stop and decision.everywhere:
            raise StopTrial
        self._stopped = self._stopped or decision.stop

    def log(self, **metrics: Any) -> None:
        """Step-level metrics of rank 0. Never waits: tensors are kept, and read at the next report."""
        if self.rank:
            return
        now = time.time()
        for name, value in metrics.items():
            kept = value.detach().clone() if hasattr(value, "detach") else value
            self._logged.append((name, kept, self._steps, now))
            self._logged_tensors |= kept is not value
        if len(self._logged) >= _LOG_BUFFER and not self._logged_tensors:
            self.flush()

    def flush(self) -> None:
        """Hand on what was logged.

        Raises:
            TypeError: a logged value is no number.
        """
        logged, self._logged, self._logged_tensors = self._logged, [], False
        for begin in range(0, len(logged), _LOG_BUFFER):
            values = logged[begin : begin + _LOG_BUFFER]
            self._channel.log([(name, self._number(name, value), step, at) for name, value, step, at in values])

    def unread(self) -> tuple[str, ...]:
        """Swept settings that nobody looked at. Of a nested one the outermost name counts."""
        read = self.config.read | _PLACEMENT
        return tuple(name for name in self._rules.swept if not {name, name.partition(".")[0]} & read)

    def _begin_pass(self) -> int:
        """The epoch of a pass over the training rows that begins. Without `epochs` the passes count, for they are
        the same on all workers, while reports may be made by rank 0 alone."""
        self._passes += 1
        return self._epochs_done + self._passes - 1 if self._counts_epochs else self._epoch

    def _report(self, metrics: dict[str, float]) -> Decision:
        epoch = self._epoch + 1
        if self.diverged_at is None and not all(is_finite(value) for value in metrics.values()):
            self.diverged_at = epoch
        self.flush()
        decision = self._channel.report(self._reports, epoch, metrics, self._save(epoch, metrics))
        self._checkpoints.remove_others()
        return decision

    def _save(self, epoch: int, metrics: Mapping[str, float]) -> str | None:
        if not self._has_state:
            return None
        progress = {"epoch": epoch, "step": self._steps}
        objective = metrics.get(self._rules.objective)
        return self._checkpoints.save(epoch, objective, lambda folder: self._session.save(folder, progress))

    def _number(self, name: str, value: Any) -> float:
        try:
            return self._session.number(value)
        except (TypeError, ValueError, OverflowError) as error:
            kind = type(value).__name__
            raise TypeError(f"metric {name} = {reprlib.repr(value)} ({kind}) is no number: {error}") from error


def _effective(lease: Lease) -> dict[str, Any]:
    """The settings of the trial, with those that its placement has decided."""
    config = {**lease.trial.config, "precision": lease.placement.precision}
    if config.get("device") == "any":
        config["device"] = lease.placement.shape.device
    return config
