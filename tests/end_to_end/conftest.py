"""Runs the real command as a user does, from a folder of its own, and gives what it leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil
import pytest

from orchestrator import journal

LIMIT_S = 240.0  # of one command
CLEAN_S = 5.0  # how long Ray's own processes may take to end after the command
EXPERIMENTS = Path(__file__).parent / "experiments"


class Family:
    """The processes below one, gathered while it runs; also those that lose their parent later."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self.members: dict[psutil.Process, str] = {}
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def alive(self) -> list[psutil.Process]:
        return [one for one in list(self.members) if one.is_running() and not _is_zombie(one)]

    def titles(self) -> list[str]:
        """What each process called itself when it was seen last."""
        return list(self.members.values())

    def left(self) -> list[str]:
        """Those that live on after the command, as soon as `CLEAN_S` have passed."""
        self._over.set()
        self._watcher.join()
        until = time.monotonic() + CLEAN_S
        while (alive := self.alive()) and time.monotonic() < until:
            time.sleep(0.1)
        return [f"{one.pid} {self.members[one]}" for one in alive]

    def end(self) -> None:
        for one in self.alive():
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            with contextlib.suppress(psutil.NoSuchProcess):
                for one in self._root.children(recursive=True):
                    with contextlib.suppress(psutil.Error):
                        self.members[one] = " ".join(one.cmdline())[:200]


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@dataclass(kw_only=True)
class Command:
    """A command that runs, or has run."""

    folder: Path
    process: subprocess.Popen[bytes]
    family: Family
    began: float = field(default_factory=time.monotonic)
    took_s: float = 0.0
    left: list[str] = field(default_factory=list)

    @property
    def out(self) -> str:
        return (self.folder.parent / f"{self.folder.name}.out").read_text(errors="replace")

    @property
    def err(self) -> str:
        return (self.folder.parent / f"{self.folder.name}.err").read_text(errors="replace")

    @property
    def code(self) -> int:
        assert self.process.returncode is not None
        return self.process.returncode

    def wait(self, limit_s: float = LIMIT_S) -> Command:
        """Until it has ended; afterwards `left` names processes of it that live on, and they are ended."""
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            pytest.fail(f"the command did not end within {limit_s:g} s:\n{self.out}\n{self.err}")
        finally:
            self.took_s = time.monotonic() - self.began
            self.left = self.family.left()
            self.family.end()
        return self

    def wait_for(self, condition: Callable[[], object], limit_s: float = LIMIT_S) -> None:
        until = time.monotonic() + limit_s
        while not condition():
            assert self.process.poll() is None, f"the command has ended:\n{self.out}\n{self.err}"
            assert time.monotonic() < until, f"it did not happen within {limit_s:g} s:\n{self.out}\n{self.err}"
            time.sleep(0.1)

    def send(self, number: signal.Signals, *, to_group: bool = False) -> None:
        (os.killpg if to_group else os.kill)(self.process.pid, number)

    # --- what it leaves behind -------------------------------------------------------------------------------

    @cached_property
    def summary(self) -> dict[str, Any]:
        def refuse(constant: str) -> None:
            raise ValueError(f"{constant} is no JSON")

        file = self.results / "summary.json"
        assert file.exists(), f"no summary:\n{self.out}\n{self.err}"
        return json.loads(file.read_text(), parse_constant=refuse)

    @property
    def results(self) -> Path:
        """The folder of the sweep."""
        (folder,) = (self.folder / "results").iterdir()
        return folder

    @property
    def trials(self) -> list[dict[str, Any]]:
        return self.summary["trials"]

    def trial(self, **settings: Any) -> dict[str, Any]:
        """The one trial with these settings."""
        found = [one for one in self.trials if settings.items() <= one["config"].items()]
        assert len(found) == 1, f"{len(found)} trials with {settings}:\n{self.out}\n{self.err}"
        return found[0]

    def log(self, trial: Mapping[str, Any], rank: int = 0) -> str:
        name = "log.txt" if rank == 0 else f"log-rank{rank}.txt"
        return (self.results / "trials" / trial["id"] / name).read_text()

    @cached_property
    def journal(self) -> list[dict[str, Any]]:
        return list(journal.read(self.results / "journal.jsonl"))

    def reports(self, trial: Mapping[str, Any], metric: str) -> list[float]:
        return [
            one["metrics"][metric]
            for one in self.journal
            if one["kind"] == "reported" and one["trial_id"] == trial["id"]
        ]

    @cached_property
    def _client(self) -> Any:
        from mlflow import MlflowClient

        return MlflowClient(self.summary["mlflow"]["tracking_uri"])

    @cached_property
    def runs(self) -> dict[str, Any]:
        """All runs of the store by their ids."""
        ids = [one.experiment_id for one in self._client.search_experiments()]
        return {one.info.run_id: one for one in self._client.search_runs(ids)}

    def run(self, trial: Mapping[str, Any]) -> Any:
        return self.runs[trial["mlflow_run_id"]]

    @property
    def parent(self) -> Any:
        return self.runs[self.summary["mlflow"]["parent_run_id"]]

    def artifacts(self, run: Any) -> dict[str, str]:
        """Names and texts."""
        return {
            one.path: Path(self._client.download_artifacts(run.info.run_id, one.path)).read_text()
            for one in self._client.list_artifacts(run.info.run_id)
            if not one.is_dir
        }


Start = Callable[..., Command]


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> Iterator[Start]:
    """Starts the command on a file of `experiments/`, or on a path, in a new folder unless one is given."""
    started: list[Command] = []

    def start_command(file: str | Path, *options: str, folder: Path | None = None, **environ: str) -> Command:
        folder = folder or tmp_path_factory.mktemp("start") / "here"
        folder.mkdir(exist_ok=True)
        reference = str(file) if str(file).startswith(("/", "-")) else str(EXPERIMENTS / file)
        with (
            (folder.parent / f"{folder.name}.out").open("wb") as out,
            (folder.parent / f"{folder.name}.err").open("wb") as err,
        ):
            process = subprocess.Popen(
                [sys.executable, "-m", "orchestrator.run", reference, *options],
                cwd=folder,
                env={**os.environ, **environ},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        command = Command(folder=folder, process=process, family=Family(process.pid))
        started.append(command)
        return command

    yield start_command
    for command in started:
        if command.process.poll() is None:
            command.process.kill()
            command.process.wait()
        command.family.end()


@pytest.fixture(scope="module")
def run(start) -> Start:
    """`start`, and wait for the end."""

    def run_command(file: str | Path, *options: str, folder: Path | None = None, **environ: str) -> Command:
        return start(file, *options, folder=folder, **environ).wait()

    return run_command
