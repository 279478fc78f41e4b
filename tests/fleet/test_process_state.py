"""After a trial the process is as it was before it."""

from __future__ import annotations

import gc
import importlib
import logging
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import DataLoader

from orchestrator.fleet.process_state import ProcessState

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
DEAF = [
    sys.executable,
    "-uc",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1); time.sleep(60)",
]


@pytest.fixture
def state():
    state = ProcessState.capture()
    yield state
    state.restore()


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_an_untouched_process_has_nothing_to_tell(state):
    assert state.restore() == []


def test_environment_variables_are_restored(state, monkeypatch):
    monkeypatch.setenv("CHANGED", "before")
    monkeypatch.setenv("REMOVED", "before")
    state = ProcessState.capture()
    os.environ.update(CHANGED="after", ADDED="after")
    del os.environ["REMOVED"]
    state.restore()
    assert (os.environ["CHANGED"], os.environ["REMOVED"]) == ("before", "before")
    assert "ADDED" not in os.environ


def test_current_directory_and_module_path_are_restored(state, tmp_path):
    here, path = os.getcwd(), list(sys.path)
    os.chdir(tmp_path)
    sys.path.insert(0, str(tmp_path))
    state.restore()
    assert (os.getcwd(), sys.path) == (here, path)


def test_a_current_directory_that_is_gone_is_told(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path / "folder")
    state = ProcessState.capture()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").rmdir()
    (fault,) = state.restore()
    assert "folder is gone" in fault


def test_random_states_are_restored(state):
    expected = random.random(), np.random.rand()
    state.restore()
    random.seed(1)
    np.random.seed(1)
    state.restore()
    assert (random.random(), np.random.rand()) == expected


def test_logging_levels_and_handlers_are_restored(state, tmp_path):
    root, library = logging.getLogger(), logging.getLogger("orchestrator.test_library")
    state = ProcessState.capture()
    level, handlers = root.level, list(root.handlers)
    file = logging.FileHandler(tmp_path / "own.log")
    logging.basicConfig(level=logging.DEBUG, handlers=[file], force=True)
    library.setLevel(logging.ERROR)
    library.propagate = False
    logging.disable(logging.CRITICAL)
    state.restore()
    assert (root.level, root.handlers) == (level, handlers)
    assert (library.level, library.propagate) == (logging.NOTSET, True)
    assert logging.root.manager.disable == 0
    assert file.stream is None, "the handler was not closed"


def test_a_logger_that_the_trial_made_prints_no_line_twice_in_the_next(state):
    def train() -> int:
        logger = logging.getLogger("a_logger_of_the_trial")
        logger.addHandler(logging.StreamHandler())
        return len(logger.handlers)

    assert train() == 1
    state.restore()
    assert train() == 1


def test_a_logger_that_an_import_set_up_keeps_its_handlers(state, tmp_path, monkeypatch):
    (tmp_path / "library_with_logger.py").write_text(
        "import logging\nlogging.getLogger(__name__).addHandler(logging.StreamHandler())\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    state = ProcessState.capture()
    importlib.import_module("library_with_logger")
    state.restore()
    assert len(logging.getLogger("library_with_logger").handlers) == 1


def test_warning_filters_are_restored(state):
    before = list(warnings.filters)
    warnings.simplefilter("error")
    state.restore()
    assert list(warnings.filters) == before


def test_signal_handlers_are_restored(state):
    before = signal.getsignal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    assert state.restore() == []
    assert signal.getsignal(signal.SIGUSR1) == before


def test_streams_hooks_and_garbage_collection_are_restored(state):
    before = sys.stdout, sys.excepthook, threading.excepthook
    sys.stdout = sys.excepthook = threading.excepthook = None
    gc.disable()
    state.restore()
    assert (sys.stdout, sys.excepthook, threading.excepthook) == before
    assert gc.isenabled()


def test_child_processes_of_the_trial_are_ended_and_others_are_not():
    kept = subprocess.Popen(SLEEP)
    try:
        state = ProcessState.capture()
        through_shell = subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE)
        assert through_shell.stdout is not None
        below = int(through_shell.stdout.readline())
        assert state.restore() == []
        assert is_gone(through_shell.pid) and is_gone(below)
        assert kept.poll() is None
    finally:
        kept.kill()
        kept.wait(10)
        through_shell.stdout.close()


def test_a_child_that_ignores_the_signal_is_killed(state, monkeypatch):
    monkeypatch.setattr("orchestrator.fleet.child_processes.LIMIT_S", 0.3)
    with subprocess.Popen(DEAF, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert state.restore() == []
        assert is_gone(child.pid)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing_are_ended_whatever_their_start(state, method):
    context = multiprocessing.get_context(method)
    child = context.Process(target=time.sleep, args=(60,))
    child.start()
    assert state.restore() == []
    assert not child.is_alive() and is_gone(child.pid)
    assert child not in multiprocessing.active_children()


def test_what_multiprocessing_keeps_for_life_is_left(state):
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()
    before = resource_tracker._resource_tracker._pid  # type: ignore[attr-defined]
    state.restore()
    assert psutil.pid_exists(before) and not is_gone(before)


def test_loaders_with_processes_of_their_own_end_with_the_trial_and_work_in_the_next(state):
    for _ in range(2):
        loader = DataLoader(torch.arange(8), batch_size=2, num_workers=2, persistent_workers=True)
        iterator = iter(loader)
        next(iterator)
        children = [child.pid for child in psutil.Process().children() if "python" in child.name()]
        assert len(children) >= 2
        assert state.restore() == []
        assert not [child for child in multiprocessing.active_children() if child.is_alive()]
        del iterator, loader


def test_a_thread_that_goes_on_is_named(state):
    go = threading.Event()
    thread = threading.Thread(target=go.wait, args=(30,), name="a left thread")
    thread.start()
    (fault,) = state.restore()
    go.set()
    thread.join(10)
    assert "a left thread" in fault
