"""The contract of a framework: what a worker process does once (`Framework`) and for each trial (`Session`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from orchestrator.precision import Precision


@dataclass(frozen=True, kw_only=True)
class WorkerFacts:
    """A worker's place in its group. `device_index` is its device, or the first of its `devices`, among those the
    process sees. `emulated`: there is no such device, the CPU stands in for it."""

    device_type: str
    rank: int = 0
    workers: int = 1
    cpus: int = 1
    devices: int = 1
    device_index: int = 0
    emulated: bool = False


@dataclass(frozen=True, kw_only=True)
class TrialSettings:
    """The settings that a session acts on. `batch_size` is global."""

    precision: Precision
    batch_size: int
    seed: int


class Session(ABC):
    """One trial on one worker. `device` is the framework's own object."""

    device: Any

    @abstractmethod
    def prepare(self, objects: tuple[Any, ...], checkpoint: Path | None) -> tuple[Any, ...]:
        """Place and wrap models, keep optimizers and schedules, restore all of them from `checkpoint`."""

    @abstractmethod
    def loader(self, dataset: Any, *, shuffle: bool, train: bool, epoch: Any, **options: Any) -> Iterable[Any]:
        """Batches of this worker on its device. `epoch()` gives the epoch that seeds the shuffling."""

    @abstractmethod
    def autocast(self) -> AbstractContextManager[Any]:
        """Context of the trial's precision."""

    @abstractmethod
    def step(self, loss: Any, optimizer: Any, scheduler: Any, clip_norm: float | None) -> None:
        """One optimizer update; never waits for the device."""

    @abstractmethod
    def average(self, value: Any, count: Any) -> float:
        """The mean of `value` over all workers, weighted by `count`, in 64 bits."""

    @abstractmethod
    def number(self, value: Any) -> float:
        """A metric as a Python number; waits for the device where it must."""

    @abstractmethod
    def save(self, directory: Path, progress: Mapping[str, int]) -> bool:
        """Write all that continuing needs into `directory`; False if there is nothing to save."""

    @abstractmethod
    def progress(self, checkpoint: Path) -> Mapping[str, int]:
        """The `progress` that `save` was given."""

    @abstractmethod
    def facts(self) -> dict[str, str]:
        """Tags known at the end: effective precision, rows used and dropped, ..."""

    @abstractmethod
    def measured(self) -> dict[str, float]:
        """Numbers with units in their names (`perf/...`); what cannot be measured is absent."""

    @abstractmethod
    def close(self) -> None:
        """Undo what the trial may have changed in the framework, and free its memory."""


class Framework(ABC):
    """A framework in one worker process."""

    name: ClassVar[str]

    @abstractmethod
    def start(self, worker: WorkerFacts) -> None:
        """Once a process, before the experiment file is imported: device and threads."""

    @abstractmethod
    def sum_over_workers(self, number: int) -> int:
        """The sum of every worker's number: shows at the start that the group really reduces."""

    @abstractmethod
    def facts(self) -> dict[str, str]:
        """Tags of the process: framework version and the like."""

    @abstractmethod
    def session(self, settings: TrialSettings) -> Session:
        """Begin a trial: seeds, precision, clean counters."""

    @abstractmethod
    def is_out_of_memory(self, error: BaseException) -> bool:
        """Did the device run out of memory?"""
