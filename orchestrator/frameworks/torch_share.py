"""Which rows a worker takes in which step: the same rows in the same steps, however many workers share them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from orchestrator.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Share:
    """A worker's share of a dataset with `rows` rows. `batch_size` is global: the rows of all workers in a step.

    In training the shares of a step together are the batch that one worker alone would take, and rows that do not
    fill a last batch are left out. Otherwise every row comes once over all workers. All workers take the same
    number of steps: an odd row joins the last batch.

    Raises:
        DataError: a worker would have no row, or training no batch.
    """

    rows: int
    batch_size: int
    rank: int
    workers: int
    train: bool

    def __post_init__(self) -> None:
        assert self.batch_size % self.workers == 0, "refused before the trial was placed"
        least, what = (self.batch_size, "a batch") if self.train else (self.workers, "each worker")
        if self.rows < least:
            raise DataError(
                f"{self.rows} rows are not enough for {what}: batch_size = {self.batch_size}, "
                f"workers = {self.workers}"
            )

    @property
    def steps(self) -> int:
        """Batches of an epoch."""
        if self.train:
            return self.rows // self.batch_size
        return -(-(self.rows // self.workers) // self._local)

    @property
    def rows_dropped(self) -> int:
        """Rows of an epoch that no worker sees. Shuffling changes which."""
        return self.rows % self.batch_size if self.train else 0

    def batches(self, order: torch.Tensor) -> Iterator[torch.Tensor]:
        """The worker's row numbers of each step, out of all row numbers in their order."""
        if self.train:
            begin = self.rank * self._local
            for step in range(self.steps):
                yield order.narrow(0, step * self.batch_size + begin, self._local)
        else:
            mine = order[self.rank :: self.workers]
            for step in range(self.steps - 1):
                yield mine.narrow(0, step * self._local, self._local)
            yield mine[(self.steps - 1) * self._local :]

    @property
    def _local(self) -> int:
        return self.batch_size // self.workers
