"""Batches of a dataset on a worker's device."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from multiprocessing.context import BaseContext
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from orchestrator.errors import DataError
from orchestrator.frameworks.torch_nested import map_leaves
from orchestrator.frameworks.torch_share import Share

_DECIDED = ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last")


class TorchLoader:
    """Goes through the rows anew each time it is iterated, in an order that (seed, epoch) decides.

    `options` are those of torch's `DataLoader`. Its processes start by "forkserver" unless an option says
    otherwise: a worker runs many threads, with which a fork may hang. What they run must be importable by name.
    """

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
        end: Callable[[], None],
        **options: Any,
    ) -> None:
        """`epoch` is asked once at the start of each pass; then `begin` is called, and `end` when no batch is left
        or nobody wants one any more."""
        if decided := [name for name in _DECIDED if name in options]:
            raise TypeError(
                f"run.loader decides {', '.join(decided)}: it takes batches of the setting batch_size, and shuffle"
            )
        self._dataset, self._share, self._device = dataset, share, device
        self._shuffle, self._seed, self._epoch = shuffle, seed, epoch
        self._begin, self._end, self._options = begin, end, options

    def __len__(self) -> int:
        return self._share.steps

    def __iter__(self) -> Iterator[Any]:
        generator = torch.Generator().manual_seed((self._seed << 20) + self._epoch())
        self._begin()
        if self._shuffle:
            order = torch.randperm(self._share.rows, generator=generator, device="cpu")
        else:
            order = torch.arange(self._share.rows, device="cpu")
        batches = self._share.batches(order)
        if type(self._dataset) is TensorDataset and not self._options:  # a class of the user's may do more
            return self._until_the_end(self._sliced(self._dataset.tensors, batches))
        return self._until_the_end(self._loaded(batches, generator))

    def _until_the_end(self, batches: Iterator[Any]) -> Iterator[Any]:
        try:
            yield from batches
        finally:
            self._end()

    def _sliced(self, tensors: tuple[torch.Tensor, ...], batches: Iterator[torch.Tensor]) -> Iterator[Any]:
        """Whole batches by index: row by row would cost more than a small model."""
        for rows in batches:
            yield [self._moved(tensor.index_select(0, rows.to(tensor.device))) for tensor in tensors]

    def _loaded(self, batches: Iterator[torch.Tensor], generator: torch.Generator) -> Iterator[Any]:
        """What torch's own loader makes of the rows. Its processes draw their seeds from `generator`, so that
        random augmentation repeats too."""
        options = {"generator": generator, **self._options}
        if options.get("num_workers"):
            options.setdefault("multiprocessing_context", _loader_processes())
        for batch in DataLoader(self._dataset, batch_sampler=[rows.tolist() for rows in batches], **options):
            yield map_leaves(self._moved, batch)

    def _moved(self, item: Any) -> Any:
        return item.to(self._device, non_blocking=True) if isinstance(item, torch.Tensor) else item


def as_dataset(data: Any) -> Dataset[Any]:
    """A dataset of torch's with a length; a tensor or a tuple of tensors becomes one.

    Raises:
        DataError: it has no length, cannot be indexed, or is a tuple of other things than tensors of equal length.
    """
    tensors = (data,) if isinstance(data, torch.Tensor) else data
    if isinstance(tensors, tuple) and tensors and all(isinstance(item, torch.Tensor) for item in tensors):
        if len(lengths := {len(item) for item in tensors}) > 1:
            raise DataError(f"tensors of {', '.join(map(str, sorted(lengths)))} rows are no dataset")
        return TensorDataset(*tensors)
    if isinstance(data, tuple):  # of arrays, say, whose number would be taken for that of the rows
        kinds = ", ".join(type(item).__name__ for item in data)
        raise DataError(f"a tuple of ({kinds:.80}) is no dataset for run.loader: make them tensors")
    if isinstance(data, IterableDataset) or not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        raise DataError(f"a {type(data).__name__} is no dataset for run.loader: it needs a length and an index")
    return data


def _loader_processes() -> BaseContext:
    """Each pass starts its processes anew, so that their random states are those of its epoch; they are copies of
    one clean process, which lives as long as the worker and has imported torch once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "torch"])
    return context
