"""What a trial prints, kept in a file of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

MOST_BYTES = 50 * 1024**2


def log_name(rank: int) -> str:
    """ "log.txt" for rank 0, "log-rank1.txt" for rank 1, ..."""
    return "log.txt" if rank == 0 else f"log-rank{rank}.txt"


@contextlib.contextmanager
def captured(path: Path) -> Iterator[None]:
    """Send all output of this process to `path`, also that of C++ code and of child processes.

    It is appended; beyond `MOST_BYTES` the middle is cut out at the end.
    """
    _flush()
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    streams = sys.stdout, sys.stderr
    kept = os.dup(1), os.dup(2)
    try:
        os.dup2(log, 1)
        os.dup2(log, 2)
        # The streams at hand may lead elsewhere than to 1 and 2: in a notebook, in a test.
        with _line_by_line(1) as sys.stdout, _line_by_line(2) as sys.stderr:
            yield
    finally:
        sys.stdout, sys.stderr = streams
        _flush()
        for number, former in zip((1, 2), kept, strict=True):
            os.dup2(former, number)
            os.close(former)
        os.close(log)
        cut_middle(path, MOST_BYTES)


@contextlib.contextmanager
def copied(path: Path) -> Iterator[None]:
    """Copy what Python prints to `path`, and show it as before.

    The terminal stays the real one, so that a debugger works; so what C++ code and child processes print is
    shown, but not kept.
    """
    streams = sys.stdout, sys.stderr
    try:
        with path.open("a", encoding="utf-8", errors="backslashreplace", buffering=1) as log:
            try:
                sys.stdout, sys.stderr = _Copied(sys.stdout, log), _Copied(sys.stderr, log)
                yield
            finally:
                sys.stdout, sys.stderr = streams
    finally:
        _flush()
        cut_middle(path, MOST_BYTES)


def cut_middle(path: Path, most: int) -> None:
    """Shorten a file to about `most` bytes, with a mark where something was left out."""
    size = path.stat().st_size
    if size <= most:
        return
    shortened = path.with_suffix(".part")
    with path.open("rb") as whole, shortened.open("wb") as part:
        part.write(whole.read(most // 2))
        part.write(f"\n[... {size - most} bytes left out ...]\n".encode())
        whole.seek(size - most // 2)
        shutil.copyfileobj(whole, part)
    shortened.replace(path)


class _Copied:
    """A stream that also writes to a log; in everything else it is the stream that it stands for."""

    def __init__(self, stream: IO[str], log: IO[str]) -> None:
        self._stream, self._log = stream, log

    def write(self, text: str) -> int:
        self._log.write(text)
        return self._stream.write(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _line_by_line(number: int) -> IO[str]:
    return open(number, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
