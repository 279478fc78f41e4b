"""Batches of a dataset on a worker's device: the same rows in the same steps, however many workers share them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from orchestrator.errors import DataError

# Worker processes run many threads, with which a fork may hang; "spawn" starts loader processes afresh.
START_METHOD = "spawn"


@dataclass(frozen=True, kw_only=True)
class Share:
    """Which rows of a dataset a worker trains on or evaluates. `batch_size` is global."""

    rows: int
    batch_size: int
    rank: int
    workers: int
    train: bool

    def __post_init__(self) -> None:
        assert self.batch_size % self.workers == 0, "refused before the trial was placed"
        if self.train and self.rows < self.batch_size:
            raise DataError(
                f"batch_size = {self.batch_size} is more than the {self.rows} rows to train on: "
                "batches are full, so there would be none"
            )
        if self.rows < self.workers:
            raise DataError(
                f"{self.rows} rows cannot be shared by {self.workers} workers: each needs at least one"
            )

    @property
    def steps(self) -> int:
        """Batches of an epoch on this worker."""
        if self.train:
            return self.rows // self.batch_size
        mine, local = len(range(self.rank, self.rows, self.workers)), self.batch_size // self.workers
        return -(-mine // local)

    @property
    def rows_dropped(self) -> int:
        """Rows of an epoch that no worker sees, since they would not fill a batch. Shuffling changes which."""
        return self.rows % self.batch_size if self.train else 0

    def batches(self, order: Sequence[int] | torch.Tensor) -> Iterator[torch.Tensor]:
        """The worker's row numbers of each step; in training its part of the batch that one worker would take."""
        order, local = torch.as_tensor(order), self.batch_size // self.workers
        if self.train:
            for step in range(self.steps):
                begin = step * self.batch_size + self.rank * local
                yield order[begin : begin + local]
        else:
            yield from order[self.rank :: self.workers].split(local)


class TorchLoader:
    """Goes through the dataset anew each time it is iterated, in an order that (seed, epoch) decides."""

    def __init__(
        self,
        dataset: Any,
        share: Share,
        *,
        device: torch.device,
        shuffle: bool,
        seed: int,
        epoch: Callable[[], int],
        begin: Callable[[], None],
        **options: Any,
    ) -> None:
        self._dataset, self._share, self._device = dataset, share, device
        self._shuffle, self._seed, self._epoch, self._begin = shuffle, seed, epoch, begin
        self._options = options
        self._to = {"device": device, "non_blocking": bool(options.get("pin_memory"))}

    def __len__(self) -> int:
        return self._share.steps

    def __iter__(self) -> Iterator[Any]:
        self._begin()
        batches = self._share.batches(self._order())
        if isinstance(self._dataset, TensorDataset) and not self._options:
            return self._slices(self._dataset.tensors, batches)
        return self._loaded([batch.tolist() for batch in batches])

    def _order(self) -> torch.Tensor:
        if not self._shuffle:
            return torch.arange(self._share.rows)
        generator = torch.Generator().manual_seed((self._seed << 20) + self._epoch())
        return torch.randperm(self._share.rows, generator=generator)

    def _slices(self, tensors: tuple[torch.Tensor, ...], batches: Iterator[torch.Tensor]) -> Iterator[Any]:
        """Whole batches by index: row by row would cost more than a small model."""
        if self._device.type == "cpu":
            for rows in batches:
                yield [tensor[rows] for tensor in tensors]
        else:
            for rows in batches:
                yield [tensor[rows].to(self._device, non_blocking=True) for tensor in tensors]

    def _loaded(self, batches: list[list[int]]) -> Iterator[Any]:
        options = dict(self._options)
        if options.get("num_workers"):
            options.setdefault("multiprocessing_context", START_METHOD)
        # Loader processes draw their seeds from this, so that random augmentation repeats too.
        options.setdefault("generator", torch.Generator().manual_seed((self._seed << 20) + self._epoch()))
        for batch in DataLoader(self._dataset, batch_sampler=batches, **options):
            yield self._moved(batch)

    def _moved(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(**self._to)
        if isinstance(value, dict):
            return {key: self._moved(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            moved = [self._moved(item) for item in value]
            return type(value)(*moved) if hasattr(value, "_fields") else type(value)(moved)
        return value


def as_dataset(data: Any) -> Dataset[Any]:
    """A dataset of torch's; a tensor or a tuple of tensors of equal length becomes one.

    Raises:
        DataError: it has no length or cannot be indexed.
    """
    if isinstance(data, torch.Tensor):
        return TensorDataset(data)
    if isinstance(data, tuple) and data and all(isinstance(item, torch.Tensor) for item in data):
        return TensorDataset(*data)
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        raise DataError(f"a {type(data).__name__} is no dataset for run.loader: it needs a length and an index")
    return data
