"""The checkpoints of one trial on disk: written as a whole or not at all, and only as many as are kept."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from orchestrator.results import is_better, jsonable

_ABOUT = "checkpoint.json"


class CheckpointKeeper:
    """Saves checkpoints as `<directory>/epoch-000005`, and removes those that are not kept.

    A second one of the same epoch is `epoch-000005-002`.

    Attributes:
        best: the checkpoint with the best finite objective, None if there is none.
        last: the newest one.
    """

    def __init__(self, directory: Path, *, keep: str, mode: str, epochs_done: int = 0) -> None:
        """`keep`: "best_and_last", "last", "all" or "none"; `mode`: "max" or "min".

        An attempt that starts after `epochs_done` epochs goes on with the checkpoints of these; later ones are
        leavings of an attempt that was lost.
        """
        self._directory, self._keep, self._mode = directory, keep, mode
        self._best_value: float | None = None
        self._saved: list[str] = []
        self.best: str | None = None
        self.last: str | None = None
        if epochs_done:
            for place in sorted(directory.glob("epoch-*")):
                about = json.loads((place / _ABOUT).read_text(encoding="utf-8"))
                if about["epoch"] <= epochs_done:
                    self._take(place, about["objective"])

    def save(self, epoch: int, objective: float | None, write: Callable[[Path], bool]) -> str | None:
        """Let `write` fill a folder and put it in place as the checkpoint of `epoch` (from 1); returns its path.

        None if nothing is kept, or `write` says that there is nothing to save.

        Raises:
            OSError: it cannot be written; what was kept before is still there.
        """
        if self._keep == "none":
            return None
        place = self._free_place(epoch)
        draft = self._directory / f".draft-{place.name}"
        _remove(draft)
        draft.mkdir(parents=True)
        try:
            if not write(draft):
                return None
            about = json.dumps(jsonable({"epoch": epoch, "objective": objective}))
            (draft / _ABOUT).write_text(about + "\n", encoding="utf-8")
            _put_in_place(draft, place)
        finally:
            _remove(draft)
        self._take(place, objective)
        return self.last

    def remove_others(self) -> None:
        """Remove all but the kept ones; to be called once whoever starts attempts knows of the newest."""
        if self.last is None:
            return
        for draft in self._directory.glob(".draft-*"):  # of an attempt that died while it wrote or removed
            _remove(draft)
        kept: set[str | None] = {self.last}
        if self._keep == "all":
            kept.update(self._saved)
        elif self._keep == "best_and_last":
            kept.add(self.best)
        for place in self._directory.glob("epoch-*"):
            if str(place) not in kept:
                _discard(place)

    def _free_place(self, epoch: int) -> Path:
        """One that no other has: until the new one is known, an attempt may have to start from the old one."""
        place = self._directory / f"epoch-{epoch:06d}"
        if place.exists() and str(place) not in self._saved:  # of an attempt that was lost
            _discard(place)
        others = (place.with_name(f"{place.name}-{number:03d}") for number in itertools.count(2))
        return place if not place.exists() else next(other for other in others if not other.exists())

    def _take(self, place: Path, objective: float | str | None) -> None:
        self.last = str(place)
        self._saved.append(self.last)
        if isinstance(objective, float | int) and is_better(objective, self._best_value, self._mode):
            self.best, self._best_value = self.last, objective


def _put_in_place(draft: Path, place: Path) -> None:
    """A folder has its name only once all that is in it is on the disk."""
    for path in (*draft.rglob("*"), draft):
        _sync(path)
    draft.rename(place)
    _sync(place.parent)


def _discard(place: Path) -> None:
    """What has its name is whole, also when this is cut short."""
    _remove(place.rename(place.with_name(f".draft-{place.name}")))


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
