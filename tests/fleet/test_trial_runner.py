"""Whatever a train function does, its trial has one true end and the process is clean afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.channel import Channel, Decision
from orchestrator.devices import DeviceShape
from orchestrator.fleet.trial_runner import UNCLEAN, run_trial
from orchestrator.frameworks import Framework, Session, TrialSettings, WorkerFacts
from orchestrator.loader import LoadedExperiment, load
from orchestrator.results import Ended, TrialStatus
from orchestrator.trial import Lease, Placement, Rules, Trial


class BareSession(Session):
    """A session without any device; its faults are set by the test."""

    device = "none"

    def __init__(self, faults: Mapping[str, Exception]) -> None:
        self.faults, self.closed = faults, 0

    def _may_fail(self, where: str) -> None:
        if where in self.faults:
            raise self.faults[where]

    def prepare(self, objects: tuple[Any, ...], checkpoint: Path | None) -> tuple[Any, ...]:
        return objects

    def loader(self, dataset: Any, *, shuffle: bool, train: bool, epoch: Any, **options: Any) -> Any:
        return dataset

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def step(self, loss: Any, optimizer: Any, scheduler: Any, clip_norm: float | None) -> None:
        pass

    def average(self, value: Any, count: Any) -> float:
        return float(value)

    def number(self, value: Any) -> float:
        return float(value)

    def save(self, directory: Path, progress: Mapping[str, int]) -> bool:
        return False

    def progress(self, checkpoint: Path) -> Mapping[str, int]:
        self._may_fail("progress")
        return {"epoch": 0}

    def facts(self) -> dict[str, str]:
        self._may_fail("facts")
        return {"rows.used": "10"}

    def measured(self) -> dict[str, float]:
        return {"perf/samples_per_s": 5.0}

    def close(self) -> None:
        self.closed += 1
        self._may_fail("close")


class BareFramework(Framework):
    name = "bare"

    def __init__(self, **faults: Exception) -> None:
        self.faults, self.session_of_trial = faults, BareSession(faults)

    def start(self, worker: WorkerFacts) -> None:
        pass

    def sum_over_workers(self, number: int) -> int:
        return number

    def facts(self) -> dict[str, str]:
        return {"framework.version": "1"}

    def session(self, settings: TrialSettings) -> Session:
        if "session" in self.faults:
            raise self.faults["session"]
        self.settings = settings
        return self.session_of_trial

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, MemoryError)


class ListChannel(Channel):
    """Keeps what it is told; answers stop to report number `stop_at`, or before the epoch after `stop_after`."""

    def __init__(self, stop_at: int = 0, stop_after: int | None = None) -> None:
        self.reports: list[Mapping[str, float]] = []
        self.stop_at, self.stop_after = stop_at, stop_after

    def report(self, number: int, epoch: int, metrics: Mapping[str, float], checkpoint: str | None) -> Decision:
        self.reports.append(dict(metrics))
        return Decision(stop=number == self.stop_at)

    def follow(self, number: int) -> Decision:
        return Decision(stop=number == self.stop_at)

    def boundary(self, epoch: int, stopped: bool) -> bool:
        return stopped or (self.stop_after is not None and len(self.reports) >= self.stop_after)

    def log(self, values: list[tuple[str, float, int, float]]) -> None:
        pass


@pytest.fixture
def run(tmp_path, monkeypatch) -> Iterator[Any]:
    """Runs a train function given as text: `run(text, ...)` is the trial's end."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run_text(
        text: str,
        framework: Framework | None = None,
        channel: Channel | None = None,
        rank: int = 0,
        workers: int = 1,
        directory: Path | None = None,
        checkpoint: str | None = None,
    ) -> Ended:
        loaded = experiment(tmp_path, text)
        shape = DeviceShape(
            device="cpu", model=None, devices=1, workers=workers, cpus_per_worker=1, framework="torch"
        )
        trial = Trial(
            id="t0001",
            config={"lr": 0.1, "unused": 1, "batch_size": 64, "seed": 3, "epochs": 3, "precision": "tf32"},
            placements=(placement := Placement(shape=shape, precision="fp32", converted_from="tf32"),),
        )
        lease = Lease(
            trial=trial,
            placement=placement,
            rules=Rules(objective="loss", mode="min", swept=("lr", "unused")),
            attempt=2,
            index=4,
            directory=str(directory or tmp_path / "trials" / "t0001"),
            checkpoint=checkpoint,
        )
        worker = WorkerFacts(device_type="cpu", rank=rank, workers=workers)
        return run_trial(lease, channel or ListChannel(), framework or BareFramework(), worker, loaded)

    return run_text


def experiment(tmp_path: Path, text: str) -> LoadedExperiment:
    """An experiment whose train function has this body; its third line is the first of the body."""
    body = textwrap.indent(textwrap.dedent(text).strip(), "    ")
    file = tmp_path / "home" / "tested_experiment.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(
        f"from orchestrator import Experiment, StopTrial\ndef train(run):\n{body}\n\n"
        'experiment = Experiment(name="tested", train=train, objective="loss", mode="min")\n'
    )
    return load(str(file))


def log_of(tmp_path: Path) -> str:
    return (tmp_path / "trials" / "t0001" / "log.txt").read_text()


def test_a_trial_that_returns_has_finished_with_its_facts_and_numbers(run, tmp_path):
    ended = run("run.config['lr']\nfor _ in run.epochs():\n    run.report(loss=1.0)\nprint('hello')")
    assert (ended.trial_id, ended.attempt, ended.status, ended.error) == (
        "t0001",
        2,
        TrialStatus.FINISHED,
        None,
    )
    assert ended.unread == ("unused",)
    assert ended.measured["perf/samples_per_s"] == 5.0 and ended.measured["perf/wall_time_s"] > 0
    expected = {
        "precision.requested": "tf32", "batch.global": "64",
        "batch.per_worker": "64", "workers": "1", "seed": "3",
        "device.type": "cpu", "device.count": "1", "framework": "bare", "framework.version": "1",
        "group.trial_index": "4", "rows.used": "10",
    }  # fmt: skip
    assert expected.items() <= dict(ended.facts).items()
    assert {"config.hash", "device.model", "hosts", "python.version"} <= set(ended.facts)
    assert all(isinstance(value, str) for value in ended.facts.values())
    assert log_of(tmp_path) == "hello\n"


def test_a_precision_that_the_framework_did_not_find_is_not_guessed(run):
    assert "precision.effective" not in run("run.report(loss=1)").facts


def test_an_attempt_that_finds_all_epochs_done_has_finished(run):
    session = BareSession({})
    session.progress = lambda checkpoint: {"epoch": 3}
    framework = BareFramework()
    framework.session_of_trial = session
    ended = run("for _ in run.epochs():\n    run.report(loss=1)", framework, checkpoint="/checkpoints/3")
    assert (ended.status, ended.error) == (TrialStatus.FINISHED, None)


def test_the_session_gets_the_trials_settings_and_is_closed(run):
    framework = BareFramework()
    run("run.report(loss=1)", framework)
    assert framework.settings == TrialSettings(precision="fp32", batch_size=64, seed=3)
    assert framework.session_of_trial.closed == 1


def test_the_settings_are_in_a_file_in_the_trials_folder(run, tmp_path):
    run("run.report(loss=1)")
    assert json.loads((tmp_path / "trials" / "t0001" / "config.json").read_text())["lr"] == 0.1


def test_it_trains_in_the_folder_of_its_file_and_the_process_comes_back(run, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "data.txt").write_text("found it")
    here, state = os.getcwd(), random.getstate()
    run(
        "import os, random\nprint(open('data.txt').read())\nrandom.seed(1)\n"
        "os.environ['LEFT_OVER'] = '1'\nos.chdir('/')\nrun.report(loss=1)"
    )
    assert log_of(tmp_path) == "found it\n"
    assert (os.getcwd(), random.getstate(), os.environ.get("LEFT_OVER")) == (here, state, None)


def test_an_exception_fails_the_trial_with_the_users_own_line(run, tmp_path):
    framework = BareFramework()
    ended = run("import json\njson.loads('{')", framework)
    assert ended.status is TrialStatus.FAILED
    first, second = (ended.error or "").splitlines()
    assert first == "tested_experiment.py:4: json.loads('{')"
    assert second.startswith("json.decoder.JSONDecodeError: Expecting property name")
    assert "Traceback" in log_of(tmp_path) and "raw_decode" in log_of(tmp_path)
    assert framework.session_of_trial.closed == 1


def test_numbers_and_facts_of_a_failed_trial_are_kept(run):
    ended = run("run.report(loss=1)\n1 / 0")
    assert ended.status is TrialStatus.FAILED
    assert ended.measured["perf/samples_per_s"] == 5.0 and ended.facts["rows.used"] == "10"


def test_a_trial_that_is_stopped_at_a_report_is_pruned(run, tmp_path):
    channel = ListChannel(stop_at=2)
    ended = run("for _ in run.epochs():\n    run.report(loss=1)", channel=channel)
    assert (ended.status, ended.error, len(channel.reports)) == (TrialStatus.PRUNED, None, 2)
    assert log_of(tmp_path) == ""


def test_a_trial_that_is_stopped_between_epochs_is_pruned(run):
    ended = run("for _ in run.epochs():\n    pass", channel=ListChannel(stop_after=0), rank=1, workers=2)
    assert ended.status is TrialStatus.PRUNED


def test_catching_every_exception_does_not_catch_the_stop(run):
    text = """
    while True:
        try:
            run.report(loss=1)
        except Exception:
            pass
    """
    assert run(text, channel=ListChannel(stop_at=1)).status is TrialStatus.PRUNED


def test_out_of_memory_is_a_state_of_its_own(run):
    ended = run("raise MemoryError('too large')")
    assert ended.status is TrialStatus.DOES_NOT_FIT
    assert ended.error == "tested_experiment.py:3: raise MemoryError('too large')\nMemoryError: too large"


@pytest.mark.parametrize(("text", "names"), [("pass", "nothing"), ("run.report(b=1, a=2)", "a, b")])
def test_an_objective_that_is_never_reported_fails_the_trial(run, text, names):
    ended = run(text)
    assert (ended.status, ended.error) == (
        TrialStatus.FAILED,
        f"train never reported 'loss' (reported: {names})",
    )


def test_other_ranks_need_not_report(run, tmp_path):
    ended = run("print(run.rank)", rank=1, workers=2)
    assert ended.status is TrialStatus.FINISHED
    assert ended.facts["batch.per_worker"] == "32"
    assert [file.name for file in (tmp_path / "trials" / "t0001").iterdir()] == ["log-rank1.txt"]


def test_a_call_of_exit_fails_the_trial_and_not_the_process(run):
    ended = run("import sys\nsys.exit(0)")
    assert ended.status is TrialStatus.FAILED
    assert "tested_experiment.py:4: sys.exit(0)" in (ended.error or "") and "should return" in ended.error


def test_an_interrupt_cancels_the_trial(run):
    ended = run("raise KeyboardInterrupt")
    assert (ended.status, ended.error) == (TrialStatus.CANCELLED, "interrupted")


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_diverged_trial_finishes_and_says_where_it_diverged(run, value):
    ended = run(f"run.report(loss=1)\nrun.report(loss=float('{value}'))")
    assert ended.status is TrialStatus.FINISHED
    assert "diverged_at" in ended.facts


def test_a_session_that_cannot_begin_fails_the_trial(run, tmp_path):
    ended = run("run.report(loss=1)", BareFramework(session=RuntimeError("no such device")))
    assert (ended.status, ended.error) == (TrialStatus.FAILED, "RuntimeError: no such device")
    assert "Traceback" in log_of(tmp_path)


def test_a_checkpoint_that_cannot_be_read_fails_the_trial_and_the_session_is_closed(run):
    framework = BareFramework(progress=RuntimeError("cut short"))
    ended = run("run.report(loss=1)", framework, checkpoint="/checkpoints/3")
    assert (ended.status, ended.error) == (TrialStatus.FAILED, "RuntimeError: cut short")
    assert framework.session_of_trial.closed == 1


def test_a_device_fault_that_shows_after_train_fails_the_trial(run):
    ended = run("run.report(loss=1)", BareFramework(facts=RuntimeError("device-side assert")))
    assert (ended.status, ended.error) == (TrialStatus.FAILED, "RuntimeError: device-side assert")


def test_the_first_of_two_faults_is_the_trials(run):
    ended = run("1 / 0", BareFramework(facts=RuntimeError("device-side assert")))
    assert "ZeroDivisionError" in (ended.error or "")


def test_a_device_that_cannot_be_cleared_keeps_the_trials_end_and_is_told(run, tmp_path):
    ended = run("run.report(loss=1)", BareFramework(close=RuntimeError("launch failure")))
    assert ended.status is TrialStatus.FINISHED
    assert "launch failure" in ended.facts[UNCLEAN] and "launch failure" in log_of(tmp_path)


def test_a_clean_process_is_not_called_unclean(run):
    assert UNCLEAN not in run("run.report(loss=1)").facts


def test_a_folder_that_cannot_be_written_fails_the_trial(run, tmp_path):
    (tmp_path / "file").write_text("")
    ended = run("run.report(loss=1)", directory=tmp_path / "file" / "t0001")
    assert ended.status is TrialStatus.FAILED and "cannot be used" in (ended.error or "")


def test_a_train_function_that_spoils_the_streams_still_ends(run, tmp_path):
    ended = run("import sys\nsys.stdout = sys.stderr = None\n1 / 0")
    assert ended.status is TrialStatus.FAILED
    assert "ZeroDivisionError" in log_of(tmp_path)


def test_a_long_message_is_shortened(run):
    error = run("raise ValueError('x' * 100_000 + 'the end')").error or ""
    assert len(error) < 2200 and error.endswith("the end")
