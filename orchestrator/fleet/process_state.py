"""What a trial may change in its process, taken down before it and put back after it."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import psutil

from orchestrator.fleet.child_processes import child_processes, end_child_processes
from orchestrator.fleet.logging_state import LoggingState

THREADS_LIMIT_S = 0.5

# Torch's data loaders listen to it from their first use on, and do not begin to a second time.
_LEFT_ALONE = {getattr(signal, "SIGCHLD", None)}


@dataclass(frozen=True, kw_only=True)
class ProcessState:
    """The state of this process; that of the framework is the session's business.

    Modules, and so the global variables of the user's files, are shared by the trials of a process.
    """

    environ: Mapping[str, str]
    directory: str
    path: tuple[str, ...]
    streams: tuple[Any, Any]
    hooks: tuple[Callable[..., object], Callable[..., object]]
    filters: tuple[Any, ...]
    logging: LoggingState
    signals: Mapping[int, Any]
    random: Any
    numpy_random: Any
    collects_garbage: bool
    threads: frozenset[threading.Thread]
    children: frozenset[psutil.Process]

    @classmethod
    def capture(cls) -> ProcessState:
        numpy = sys.modules.get("numpy")
        return cls(
            environ=dict(os.environ),
            directory=os.getcwd(),
            path=tuple(sys.path),
            streams=(sys.stdout, sys.stderr),
            hooks=(sys.excepthook, threading.excepthook),
            filters=tuple(warnings.filters),
            logging=LoggingState.capture(),
            signals={number: signal.getsignal(number) for number in signal.valid_signals() - _LEFT_ALONE},
            random=random.getstate(),
            numpy_random=numpy.random.get_state() if numpy else None,
            collects_garbage=gc.isenabled(),
            threads=frozenset(threading.enumerate()),
            children=child_processes(),
        )

    def restore(self) -> list[str]:
        """Put everything back and end what the trial has started; returns what could not be put back."""
        alive = end_child_processes(keep=self.children)
        faults = [f"the child process {child.pid} cannot be ended" for child in alive]
        for name in os.environ.keys() - self.environ.keys():
            del os.environ[name]
        os.environ.update(self.environ)
        sys.path[:] = self.path
        sys.stdout, sys.stderr = self.streams
        sys.excepthook, threading.excepthook = self.hooks
        warnings.resetwarnings()  # voids what Python has remembered of the filters
        warnings.filters[:] = self.filters  # type: ignore[index]
        self.logging.restore()
        random.setstate(self.random)
        if self.numpy_random is not None:
            sys.modules["numpy"].random.set_state(self.numpy_random)
        (gc.enable if self.collects_garbage else gc.disable)()
        try:
            os.chdir(self.directory)
        except OSError as error:
            faults.append(f"the current directory {self.directory} is gone: {error}")
        return faults + self._restore_signals() + self._threads_left()

    def _restore_signals(self) -> list[str]:
        faults = []
        for number, handler in self.signals.items():
            if signal.getsignal(number) == handler:
                continue
            name = signal.Signals(number).name
            if handler is None:
                faults.append(f"the handler of {name} was not Python's and cannot be put back")
            elif threading.current_thread() is not threading.main_thread():
                faults.append(f"the handler of {name} can only be put back in the main thread")
            else:
                signal.signal(number, handler)
        return faults

    def _threads_left(self) -> list[str]:
        """Threads cannot be ended from outside: those that keep a process alive are named."""
        left = [thread for thread in threading.enumerate() if thread not in self.threads and not thread.daemon]
        until = time.monotonic() + THREADS_LIMIT_S
        for thread in left:
            thread.join(max(0.0, until - time.monotonic()))
        return [f'the thread "{thread.name}" goes on after its trial' for thread in left if thread.is_alive()]
