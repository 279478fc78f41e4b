"""Everything is read back with MLflow's own client from real stores."""

import json
import logging
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run, ViewType

from orchestrator.results import Ended, Logged, Reported, Restarted, Started, SweepStatus, TrialStatus
from orchestrator.tracking import create_tracker, probe
from orchestrator.tracking import mlflow as tracker_module
from orchestrator.tracking.base import Tracker, TrackingIds
from orchestrator.trial import Trial

FACTS = {"user": "ann", "experiment.file": "/home/ann/mlp.py", "git.commit": "abc123", "framework": "torch"}


def started(trial_id: str, attempt: int = 0) -> Started:
    facts = {"device.type": "cpu", "group.trial_index": "0"}
    return Started(trial_id=trial_id, attempt=attempt, time=time.time(), group="g", facts=facts)


def reported(trial_id: str, epoch: int, attempt: int = 0, **metrics: float) -> Reported:
    return Reported(
        trial_id=trial_id, attempt=attempt, time=time.time(), number=epoch, epoch=epoch, metrics=metrics
    )


def ended(trial_id: str, status: TrialStatus, attempt: int = 0, error: str | None = None) -> Ended:
    return Ended(
        trial_id=trial_id, attempt=attempt, time=time.time(), status=status, error=error,
        facts={"precision.effective": "fp32"}, measured={"perf/samples_per_s": 12.5}, unread=("depth",),
    )  # fmt: skip


def add(tracker: Tracker, trial_id: str, **config: object) -> None:
    trial = Trial(id=trial_id, config={"lr": 0.1, **config}, placements=())
    tracker.add_trial(trial, {**FACTS, "sweep.name": "s1", "config.hash": trial.hash})


@dataclass
class Recorded:
    """A finished sweep: its runs by name, and where it is."""

    folder: Path
    client: MlflowClient
    ids: TrackingIds
    runs: dict[str, Run]
    run_ids: dict[str, str | None]
    log: str

    def artifacts(self, name: str) -> dict[str, str]:
        run_id = self.runs[name].info.run_id
        found = {}
        for item in self.client.list_artifacts(run_id):
            found[item.path] = Path(self.client.download_artifacts(run_id, item.path)).read_text()
        return found


def read_back(client: MlflowClient, experiment_id: str | None) -> dict[str, Run]:
    runs = client.search_runs([experiment_id], run_view_type=ViewType.ALL)
    names = [run.info.run_name for run in runs]
    assert len(names) == len(set(names)), f"a trial has two runs: {names}"
    return {run.info.run_name: run for run in runs}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """One sweep with a trial of every kind, recorded from another folder than the store's while the
    environment is set up for a user's own MLflow run."""
    folder = tmp_path_factory.mktemp("start")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    words: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: words.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("orchestrator").addHandler(handler)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.setenv("MLFLOW_RUN_ID", "f" * 32)
        patch.setenv("MLFLOW_EXPERIMENT_NAME", "of-the-user")
        patch.chdir(elsewhere)
        uri = probe(None, folder)
        tracker = create_tracker(uri, folder / "results" / "s1")
        tracker.start("mlp", "s1", FACTS, {"objective": "acc", "store": "http://u:canary@h"})
        record_every_kind(tracker, folder)
        tracker.end(SweepStatus.PARTLY_FAILED, {"finished": 3, "failed": 1})
        client, ids = MlflowClient(uri), tracker.ids()
    runs = read_back(client, ids.experiment_id)
    yield Recorded(
        folder, client, ids, runs, {name: tracker.run_id(name) for name in runs if name != "s1"}, "\n".join(words)
    )
    logging.getLogger("orchestrator").removeHandler(handler)
    assert not any(elsewhere.iterdir()), "something was written into the working folder"


def record_every_kind(tracker: Tracker, folder: Path) -> None:
    log, empty = folder / "log.txt", folder / "empty.txt"
    log.write_text("hello\n")
    empty.touch()

    add(tracker, "good", opt={"name": "sgd"}, batch_size=32)
    tracker.record(started("good"))
    for epoch in (1, 2, 3):
        tracker.record(reported("good", epoch, acc=epoch / 10))
    values = (("train_loss", 0.5, 10, time.time()), ("train_loss", 0.25, 20, time.time()))
    tracker.record(Logged(trial_id="good", attempt=0, time=time.time(), values=values))
    tracker.record(ended("good", TrialStatus.FINISHED))
    tracker.attach("good", log)
    tracker.attach("good", empty)
    tracker.attach("good", folder / "not-there.txt")

    add(tracker, "bad")
    tracker.record(started("bad"))
    tracker.record(ended("bad", TrialStatus.FAILED, error="ValueError at http://u:canary@h " + "x" * 9000))

    add(tracker, "diverged")
    tracker.record(started("diverged"))
    tracker.record(reported("diverged", 1, acc=0.5, loss=1.0))
    tracker.record(reported("diverged", 2, acc=math.nan, loss=math.inf))
    tracker.record(reported("diverged", 3, acc=math.nan, loss=-math.inf))
    tracker.record(ended("diverged", TrialStatus.PRUNED))

    add(tracker, "odd", **{"a(b": 1, "a)b": 2, "": 3, "../up": 4, "long": "y" * 7000, "password": "canary"})
    tracker.record(started("odd"))
    values = (("steps/too big", 1.0, 2**70, time.time()), ("steps/fine", 2.0, 1, time.time()))
    tracker.record(Logged(trial_id="odd", attempt=0, time=time.time(), values=values))
    tracker.record(ended("odd", TrialStatus.FINISHED))

    add(tracker, "restarted")
    tracker.record(started("restarted"))
    for attempt in (0, 1):
        tracker.record(Restarted(trial_id="restarted", attempt=attempt, time=time.time(), cause="worker died"))
    tracker.record(reported("restarted", 7, attempt=1, acc=0.9))
    tracker.record(started("restarted", attempt=2))
    tracker.record(ended("restarted", TrialStatus.CANCELLED, attempt=2, error="interrupted"))
    tracker.record(reported("restarted", 9, attempt=2, acc=0.9))

    add(tracker, "refused")
    tracker.refuse("refused", TrialStatus.INFEASIBLE, "no node has 8 GPUs")

    add(tracker, "open")
    tracker.record(started("open"))


def test_each_trial_is_exactly_one_run_under_the_one_parent(recorded: Recorded) -> None:
    parent = recorded.runs["s1"]
    assert set(recorded.runs) == {"s1", "good", "bad", "diverged", "odd", "restarted", "refused", "open"}
    assert parent.info.run_id == recorded.ids.parent_run_id
    for name, run in recorded.runs.items():
        if name != "s1":
            assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
            assert recorded.run_ids[name] == run.info.run_id
    names = {experiment.name for experiment in recorded.client.search_experiments()}
    assert names == {"Default", "mlp"}


def test_the_end_state_of_every_run_is_true(recorded: Recorded) -> None:
    states = {name: (run.info.status, run.data.tags.get("trial.status")) for name, run in recorded.runs.items()}
    assert states == {
        "s1": ("FAILED", None),
        "good": ("FINISHED", "finished"),
        "bad": ("FAILED", "failed"),
        "diverged": ("FINISHED", "pruned"),
        "odd": ("FINISHED", "finished"),
        "restarted": ("KILLED", "cancelled"),
        "refused": ("FAILED", "infeasible"),
        "open": ("KILLED", "cancelled"),
    }
    assert all(run.info.end_time for run in recorded.runs.values())


def test_the_parent_has_settings_counts_and_the_sweep_status(recorded: Recorded) -> None:
    data = recorded.runs["s1"].data
    assert data.metrics == {"trials.finished": 3, "trials.failed": 1}
    assert data.params == {"objective": "acc", "store": "http://***@h"}
    assert data.tags["sweep.status"] == "partly_failed"
    assert data.tags["sweep.name"] == "s1"


def test_settings_metrics_and_facts_of_a_trial_are_there(recorded: Recorded) -> None:
    run = recorded.runs["good"]
    assert run.data.params == {"lr": "0.1", "opt.name": "sgd", "batch_size": "32"}
    assert run.data.metrics == {"acc": 0.3, "train_loss": 0.25, "perf/samples_per_s": 12.5}
    history = recorded.client.get_metric_history(run.info.run_id, "acc")
    assert [(metric.step, metric.value) for metric in history] == [(1, 0.1), (2, 0.2), (3, 0.3)]
    steps = [metric.step for metric in recorded.client.get_metric_history(run.info.run_id, "train_loss")]
    assert steps == [10, 20]
    for key, value in {
        "trial.id": "good", "sweep.name": "s1", "framework": "torch", "device.type": "cpu",
        "precision.effective": "fp32", "settings.unread": "depth", "git.commit": "abc123",
    }.items():  # fmt: skip
        assert run.data.tags[key] == value
    assert len(run.data.tags["config.hash"]) == 12


def test_user_and_source_are_those_of_the_experiment(recorded: Recorded) -> None:
    for run in recorded.runs.values():
        assert run.data.tags["mlflow.user"] == run.info.user_id == "ann"
        assert run.data.tags["mlflow.source.name"] == "/home/ann/mlp.py"
        assert run.data.tags["mlflow.source.git.commit"] == "abc123"


def test_artifacts_lie_beside_the_database_and_empty_files_are_left_out(recorded: Recorded) -> None:
    artifacts = recorded.artifacts("good")
    assert set(artifacts) == {"config.json", "log.txt"}
    assert artifacts["log.txt"] == "hello\n"
    assert json.loads(artifacts["config.json"]) == {"lr": 0.1, "opt": {"name": "sgd"}, "batch_size": 32}
    assert recorded.runs["good"].info.artifact_uri.startswith((recorded.folder / "mlartifacts").as_uri())


def test_a_long_error_is_a_cut_tag_and_a_whole_file(recorded: Recorded) -> None:
    tag = recorded.runs["bad"].data.tags["error"]
    assert tag.startswith("ValueError at http://***@h xxx") and tag.endswith("…") and len(tag) == 1000
    assert recorded.artifacts("bad")["error.txt"].endswith("x" * 9000)
    assert recorded.runs["refused"].data.tags["error"] == "no node has 8 GPUs"


def test_nan_and_infinity_stay_recognisable_and_flag_the_run(recorded: Recorded) -> None:
    run = recorded.runs["diverged"]
    assert math.isnan(run.data.metrics["acc"]) and math.isnan(run.data.metrics["loss"])
    history = recorded.client.get_metric_history(run.info.run_id, "loss")
    assert [metric.value for metric in history if math.isfinite(metric.value)] == [1.0]
    assert [metric.step for metric in history] == [1, 2, 3]
    assert run.data.tags["diverged_at"] == "2"
    assert run.data.tags["infinite.loss"] == "Infinity at step 2"
    assert "infinite.acc" not in run.data.tags
    assert "diverged_at" not in recorded.runs["good"].data.tags


def test_any_configuration_is_logged(recorded: Recorded) -> None:
    params = recorded.runs["odd"].data.params
    assert sorted(value for value in params.values() if len(value) == 1) == ["1", "2", "3", "4"]
    assert params["long"] == "y" * 5999 + "…"
    assert params["password"] == "***"
    assert json.loads(recorded.artifacts("odd")["config.json"])["long"] == "y" * 7000


def test_what_mlflow_refuses_stops_nothing_else_and_is_kept(recorded: Recorded) -> None:
    assert recorded.runs["odd"].data.metrics == {"steps/fine": 2.0, "perf/samples_per_s": 12.5}
    kept = [
        json.loads(line) for line in (recorded.folder / "results/s1/undelivered.jsonl").read_text().splitlines()
    ]
    assert {(record["run"], bool(record["reason"])) for record in kept} == {("odd", True), ("good", True)}
    (metrics,) = (record["metrics"] for record in kept if record["run"] == "odd")
    assert [metric[0] for metric in metrics] == ["steps/too big"]
    (uploads,) = (record["uploads"] for record in kept if record["run"] == "good")
    assert uploads == [str(recorded.folder / "not-there.txt")]
    assert recorded.log.count("refused") == 1


def test_restarts_are_counted_and_events_of_a_lost_attempt_or_after_the_end_are_dropped(
    recorded: Recorded,
) -> None:
    data = recorded.runs["restarted"].data
    assert (data.tags["restarts"], data.tags["restart.cause"]) == ("2", "worker died")
    assert "acc" not in data.metrics


def test_credentials_are_nowhere(recorded: Recorded) -> None:
    assert "canary" not in recorded.log
    for path in recorded.folder.rglob("*"):
        if path.is_file():
            assert b"canary" not in path.read_bytes(), path


def test_a_deleted_experiment_is_restored_and_used(recorded: Recorded) -> None:
    recorded.client.delete_experiment(recorded.ids.experiment_id)
    tracker = create_tracker(recorded.ids.tracking_uri or "", recorded.folder / "results" / "s2")
    tracker.start("mlp", "s2", FACTS, {})
    tracker.end(SweepStatus.FINISHED, {})
    assert tracker.ids().experiment_id == recorded.ids.experiment_id
    assert recorded.client.get_run(tracker.ids().parent_run_id).info.status == "FINISHED"


_ONE_SWEEP = """
import json, os, sys, time
from pathlib import Path
from orchestrator.results import Started, SweepStatus, TrialStatus
from orchestrator.tracking import create_tracker, probe
from orchestrator.trial import Trial
folder, name, end = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
tracker = create_tracker(probe("sqlite:///mlflow.db", folder), folder / name)
tracker.start("raced", name, {"user": "ann"}, {})
tracker.add_trial(Trial(id=name + "-t1", config={"lr": 0.1}, placements=()), {})
tracker.record(Started(trial_id=name + "-t1", attempt=0, time=time.time(), group="g"))
if end == "end":
    tracker.end(SweepStatus.FINISHED, {})
while tracker.run_id(name + "-t1") is None:
    time.sleep(0.05)
print(json.dumps([tracker.ids().experiment_id, tracker.ids().parent_run_id]), flush=True)
os._exit(0)
"""


def start_sweep(folder: Path, name: str, end: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _ONE_SWEEP, str(folder), name, end]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_four_commands_may_start_together_on_a_fresh_database(tmp_path: Path) -> None:
    sweeps = [start_sweep(tmp_path, f"s{number}", "end") for number in range(4)]
    answers = [json.loads(sweep.communicate(timeout=120)[0]) for sweep in sweeps]
    assert len({experiment for experiment, _ in answers}) == 1
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    runs = read_back(client, answers[0][0])
    assert set(runs) == {name for number in range(4) for name in (f"s{number}", f"s{number}-t1")}
    for number, (_, parent_run_id) in enumerate(answers):
        assert runs[f"s{number}-t1"].data.tags["mlflow.parentRunId"] == parent_run_id
    assert not list(tmp_path.rglob("undelivered.jsonl"))


def test_a_driver_that_vanishes_leaves_no_run_that_seems_to_go_on(tmp_path: Path) -> None:
    experiment, _ = json.loads(start_sweep(tmp_path, "s1", "vanish").communicate(timeout=120)[0])
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")

    def all_killed() -> bool:
        return {run.info.status for run in read_back(client, experiment).values()} == {"KILLED"}

    wait_until(all_killed)
    assert read_back(client, experiment)["s1-t1"].data.tags["trial.status"] == "cancelled"


def test_a_writer_that_dies_is_replaced_and_no_run_is_there_twice(tmp_path: Path) -> None:
    tracker = create_tracker(f"sqlite:///{tmp_path}/mlflow.db", tmp_path)
    tracker.start("mlp", "s1", FACTS, {})
    experiment_id = tracker.ids().experiment_id
    for number in range(20):
        add(tracker, f"t{number}")
        tracker.record(started(f"t{number}"))
    wait_until(lambda: tracker.run_id("t0") is not None)
    (writer,) = [child for child in psutil.Process().children() if "mlflow_process" in " ".join(child.cmdline())]
    writer.kill()
    add(tracker, "after")
    for name in [*(f"t{number}" for number in range(20)), "after"]:
        tracker.record(ended(name, TrialStatus.FINISHED))
    tracker.end(SweepStatus.FINISHED, {})
    runs = read_back(MlflowClient(f"sqlite:///{tmp_path}/mlflow.db"), experiment_id)
    assert len(runs) == 22
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    assert not (tmp_path / "undelivered.jsonl").exists()
    assert not writer.is_running()


def wait_until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


@dataclass
class Server:
    """A real tracking server over HTTP on a port of its own."""

    folder: Path
    port: int

    def start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--backend-store-uri", f"sqlite:///{self.folder}/server.db", "--workers", "1"]
        command += ["--artifacts-destination", str(self.folder / "artifacts")]
        log = (self.folder / "server.log").open("a")
        with log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, cwd=self.folder, env=without_mlflow()
            )
        wait_until(self.answers)

    def answers(self) -> bool:
        with socket.socket() as line:
            line.settimeout(1)
            return line.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(20)


def without_mlflow() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = Server(tmp_path, port)
    running.start()
    yield running
    running.stop()


def test_a_server_that_is_away_for_a_while_gets_everything_once(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    uri = f"http://ann:canary@127.0.0.1:{server.port}"
    log = tmp_path / "log.txt"
    log.write_text("hello\n")
    tracker = create_tracker(probe(uri, tmp_path), tmp_path / "s1")
    tracker.start("mlp", "s1", FACTS, {})
    add(tracker, "before")
    tracker.record(started("before"))
    assert tracker.ids().tracking_uri == f"http://***@127.0.0.1:{server.port}"
    wait_until(lambda: tracker.run_id("before") is not None)

    server.stop()
    tracker.record(reported("before", 1, acc=0.5))
    tracker.record(ended("before", TrialStatus.FINISHED))
    add(tracker, "during")
    tracker.record(ended("during", TrialStatus.FINISHED))
    tracker.attach("during", log)
    wait_until(lambda: "is kept and sent later" in caplog.text)

    server.start()
    tracker.end(SweepStatus.FINISHED, {"finished": 2})
    client = MlflowClient(f"http://127.0.0.1:{server.port}")
    runs = read_back(client, tracker.ids().experiment_id)
    assert {name: run.info.status for name, run in runs.items()} == dict.fromkeys(
        ("s1", "before", "during"), "FINISHED"
    )
    assert runs["before"].data.metrics["acc"] == 0.5
    assert {item.path for item in client.list_artifacts(runs["during"].info.run_id)} == {"config.json", "log.txt"}
    assert not (tmp_path / "s1" / "undelivered.jsonl").exists()
    assert "canary" not in caplog.text
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"canary" in path.read_bytes()]


def test_what_never_arrives_is_kept_and_the_end_comes_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracker_module, "_END_STALL_S", 1.0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        tracker = create_tracker(f"http://ann:canary@127.0.0.1:{taken.getsockname()[1]}", tmp_path)
        tracker.start("mlp", "s1", FACTS, {"lr": 0.1})
        add(tracker, "t1")
        tracker.record(reported("t1", 1, acc=0.5))
        tracker.record(ended("t1", TrialStatus.FINISHED))
        began = time.monotonic()
        tracker.end(SweepStatus.FINISHED, {"finished": 1})
        assert time.monotonic() - began < 15
    assert tracker.ids().parent_run_id is None
    kept = {record["run"]: record for record in map(json.loads, (tmp_path / "undelivered.jsonl").open())}
    assert set(kept) == {"s1", "t1"}
    assert kept["t1"]["metrics"][0][:2] == ["acc", 0.5]
    assert kept["t1"]["end"][0] == "FINISHED"
    assert "undelivered.jsonl" in caplog.text
    assert "canary" not in caplog.text + (tmp_path / "undelivered.jsonl").read_text()
