"""The checkpoints of one trial on disk: written as a whole or not at all, and only as many as are kept."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from orchestrator.results import is_better


class CheckpointKeeper:
    """`keep`: "best_and_last", "last", "all" or "none". The best is the objective's by `mode`; NaN never is."""

    def __init__(self, directory: Path, *, keep: str, mode: str) -> None:
        self._directory, self._keep, self._mode = directory, keep, mode
        self._best_value: float | None = None
        self.best: str | None = None
        self.last: str | None = None

    def save(self, epoch: int, objective: float | None, write: Callable[[Path], bool]) -> str | None:
        """Let `write` fill a folder and put it in place as the checkpoint of `epoch` (from 1); returns its path.

        None if nothing is kept, or `write` says that there is nothing to save.
        """
        if self._keep == "none":
            return None
        self._directory.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=self._directory))
        try:
            if not write(draft):
                return None
            _sync(draft)
            place = self._directory / f"epoch-{epoch:06d}"
            if place.exists():  # of an attempt that was lost
                shutil.rmtree(place)
            draft.rename(place)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        self.last = str(place)
        if objective is not None and is_better(objective, self._best_value, self._mode):
            self.best, self._best_value = self.last, objective
        self._remove_others()
        return self.last

    def _remove_others(self) -> None:
        if self._keep == "all":
            return
        kept = {self.last, self.best if self._keep == "best_and_last" else self.last}
        for place in self._directory.glob("epoch-*"):
            if str(place) not in kept:
                shutil.rmtree(place)


def _sync(folder: Path) -> None:
    """Make the files durable before the folder gets its name."""
    for file in folder.iterdir():
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
