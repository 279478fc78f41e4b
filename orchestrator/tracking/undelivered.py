"""What could not be delivered to the tracking store, kept beside the sweep."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from orchestrator.masking import mask
from orchestrator.results import jsonable
from orchestrator.tracking.entries import Entries


class Undelivered:
    """A file of JSON lines; it exists only once something was kept. The place for a spool that is sent later."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def keep(self, run: str, run_id: str | None, entries: Entries, reason: str) -> None:
        """Append a run's entries. An entry may also have arrived, where an answer got lost.

        Raises:
            OSError: the file cannot be written.
        """
        waiting = {key: value for key, value in asdict(entries).items() if value}
        waiting["uploads"] = [str(upload.path) for upload in entries.uploads]
        record = {"run": run, "run_id": run_id, "reason": mask(reason), **waiting}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(jsonable(record), allow_nan=False) + "\n")
