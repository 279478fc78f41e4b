"""The append-only record of a sweep on the driver's disk: one JSON object a line, durable before it counts."""

from __future__ import annotations

import json
import os
import queue
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from orchestrator.errors import StorageError
from orchestrator.results import jsonable

_MOST_LINES = 10_000  # in one write: keeps the first waiter's wait short

_sync = getattr(os, "fdatasync", os.fsync)  # where there is no fdatasync (macOS), fsync does more than is needed


class Journal:
    """Appends from any thread; one thread writes, and all that waits shares one sync of the disk.

    The file is made if it is not there; a last line that a crash cut short is removed. After a disk error
    nothing more is written: the error is on every future that had not been resolved, and on all later ones.

    Raises:
        StorageError: the file cannot be opened for writing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: queue.SimpleQueue[tuple[bytes, Future[None]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._failure: Exception | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab", buffering=0)
            _remove_torn_line(path)
            _sync_folder(path.parent)
        except OSError as error:
            raise StorageError(f"the journal {path} cannot be written: {error.strerror or error}") from error
        self._writer = threading.Thread(target=self._write_all, name="journal", daemon=True)
        self._writer.start()

    def append(self, record: Mapping[str, Any]) -> Future[None]:
        """Append a record; the future is resolved once it is on the disk, or holds the error.

        NaN and infinity are written as by `results.jsonable`. The future cannot be cancelled.
        """
        line = json.dumps(jsonable(record), allow_nan=False, separators=(",", ":")).encode() + b"\n"
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._failure is not None:
                future.set_exception(self._failure)
            else:
                self._waiting.put((line, future))
        return future

    def close(self, timeout_s: float = 30.0) -> None:
        """Write what waits, then close the file. Later appends fail.

        Raises:
            TimeoutError: the disk did not take it all in time.
        """
        with self._lock:
            if self._failure is None:
                self._failure = ValueError(f"the journal {self._path} is closed")
                self._waiting.put(None)
        self._writer.join(timeout_s)
        if self._writer.is_alive():
            raise TimeoutError(f"the journal {self._path} was not written within {timeout_s:g} s")

    def _write_all(self) -> None:
        with self._file:
            is_open = True
            while is_open:
                batch, is_open = self._take()
                try:
                    self._write(b"".join(line for line, _ in batch))
                except OSError as error:
                    self._fail(batch, error)
                    return
                for _, future in batch:
                    future.set_result(None)

    def _take(self) -> tuple[list[tuple[bytes, Future[None]]], bool]:
        """All that waits, at least one record; False where the journal is closed after these."""
        batch: list[tuple[bytes, Future[None]]] = []
        while not batch or (len(batch) < _MOST_LINES and not self._waiting.empty()):
            item = self._waiting.get()
            if item is None:
                return batch, False
            batch.append(item)
        return batch, True

    def _write(self, data: bytes) -> None:
        written = 0
        while written < len(data):
            written += self._file.write(data[written:]) or 0
        if data:
            _sync(self._file.fileno())

    def _fail(self, batch: list[tuple[bytes, Future[None]]], error: OSError) -> None:
        """A line may be half on the disk, so nothing may follow it."""
        with self._lock:
            self._failure = error
            while not self._waiting.empty():
                if item := self._waiting.get():
                    batch.append(item)
        for _, future in batch:
            future.set_exception(error)


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The records in their order. A last line without its end was never acknowledged: it is left out.

    Raises:
        StorageError: the file cannot be read, or a line is damaged; names the line.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.endswith(b"\n"):
                    yield _parse(path, number, line)
    except OSError as error:
        raise StorageError(f"the journal {path} cannot be read: {error.strerror or error}") from error


def _parse(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise StorageError(f"the journal {path} is damaged: line {number} is no record")
    return record


def _remove_torn_line(path: Path) -> None:
    """Cut the file behind its last line end, so that the next record does not continue half a line."""
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        position = end
        while position > 0:
            start = max(0, position - 65536)
            file.seek(start)
            found = file.read(position - start).rfind(b"\n")
            if found >= 0:
                position = start + found + 1
                break
            position = start
        if position < end:
            file.truncate(position)
            os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Make the file's name durable too."""
    if os.name == "nt":  # Windows cannot open a folder, and has no need to
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
