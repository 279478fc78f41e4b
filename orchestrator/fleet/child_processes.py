"""The processes below this one, and how they are ended."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import psutil

LIMIT_S = 3.0

# Helpers that Python and torch start once and go on using: without them the next trial would fail.
_LASTING = ("multiprocessing.resource_tracker", "_inductor/compile_worker")
_FORK_SERVER = "multiprocessing.forkserver"


def child_processes() -> frozenset[psutil.Process]:
    """All processes below this one, except those that belong to it for life."""
    if not _has_children():
        return frozenset()
    found = set()
    for child in psutil.Process().children():
        command = _command(child)
        if any(mark in command for mark in _LASTING):
            continue
        if _FORK_SERVER not in command:
            found.add(child)
        found.update(_below(child))
    return frozenset(found)


def end_child_processes(keep: Iterable[psutil.Process]) -> list[psutil.Process]:
    """End all but those of `keep`, after `LIMIT_S` by force; returns those that live on nevertheless."""
    if not child_processes() - set(keep):
        return []
    gc.collect()  # data loaders that nobody holds any more end their own processes
    with _deaf_to_children():
        alive = _end(child_processes() - set(keep), psutil.Process.terminate)
        return _end(alive, psutil.Process.kill)


def _has_children() -> bool:
    """Asked first, since it costs nothing, while psutil reads the whole process table."""
    if not hasattr(os, "waitid"):  # macOS
        return True
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has ended, or is another user's
        return ""


def _below(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _end(processes: Iterable[psutil.Process], how: Callable[[psutil.Process], None]) -> list[psutil.Process]:
    """Ask processes to end in that way; those that still live after `LIMIT_S`."""
    asked = list(processes)
    for process in asked:
        with contextlib.suppress(psutil.NoSuchProcess):
            how(process)
    until = time.monotonic() + LIMIT_S
    ids = {process.pid for process in asked}
    for child in multiprocessing.active_children():
        if child.pid in ids:  # multiprocessing keeps account of its children, and wants to see them end itself
            child.join(max(0.0, until - time.monotonic()))
    _, alive = psutil.wait_procs(asked, max(0.0, until - time.monotonic()))
    return [process for process in alive if not _is_zombie(process)]


def _is_zombie(process: psutil.Process) -> bool:
    """Has it ended, and only its parent has not looked (in a container without an init, nobody does)?"""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@contextlib.contextmanager
def _deaf_to_children() -> Iterator[None]:
    """Torch's data loaders have a handler that raises when one of their processes is ended by others."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGCHLD"):
        yield
        return
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, handler)
