"""The first thing that a user does: the experiment that ships, by one command, from another folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

MLP = Path(__file__).parents[2] / "experiments" / "mlp.py"
SUMMARY = {
    "sweep", "experiment", "status", "exit_code", "wall_s", "mlflow", "counts", "trials", "excluded", "answer"
}  # fmt: skip
TRIAL = {
    "id", "config", "status", "device", "precision", "metrics", "best", "mlflow_run_id", "restarts", "started",
    "ended", "checkpoint", "diverged_at", "error",
}  # fmt: skip
STATUSES = {"pending", "running", "finished", "pruned", "failed", "does_not_fit", "infeasible", "cancelled"}
TAGS = {
    "sweep.name", "trial.id", "trial.status", "device.type", "device.model", "device.count", "device.emulated",
    "framework", "framework.version", "precision.requested", "precision.effective", "batch.global",
    "batch.per_worker", "workers", "hosts", "seed", "experiment.file", "config.hash", "git.commit", "git.dirty",
    "group.trial_index", "node.neighbours", "python.version", "ray.version", "torch.version",
}  # fmt: skip
METRICS = {
    "val_accuracy", "train_loss", "perf/samples_per_s", "perf/step_time_s_p50", "perf/step_time_s_p99",
    "perf/setup_time_s", "perf/train_time_s", "perf/memory_peak_gib",
}  # fmt: skip


@pytest.fixture(scope="module")
def main_job(run):
    return run(MLP, "--json", "s.json")


@pytest.fixture(scope="module")
def runs(main_job):
    """The trials' runs in MLflow."""
    return [main_job.run(trial) for trial in main_job.trials]


def test_it_ends_well_and_learns(main_job):
    assert main_job.code == 0, main_job.err
    assert main_job.err == ""
    assert [trial["status"] for trial in main_job.trials] == ["finished"] * 4
    assert main_job.summary["answer"]["value"] >= 0.96
    assert main_job.summary["answer"]["value"] == max(trial["best"]["value"] for trial in main_job.trials)


def test_no_process_is_left(main_job):
    assert main_job.left == []


def test_the_summary_has_exactly_the_documented_keys(main_job):
    summary = main_job.summary
    assert set(summary) == SUMMARY
    assert (summary["experiment"], summary["status"], summary["exit_code"]) == ("mlp", "finished", 0)
    assert set(summary["mlflow"]) == {"tracking_uri", "experiment_id", "parent_run_id"}
    assert set(summary["counts"]) == STATUSES and summary["counts"]["finished"] == 4
    assert summary["excluded"] == []
    for trial in summary["trials"]:
        assert set(trial) == TRIAL
        assert set(trial["device"]) == {"type", "model", "count", "emulated"}
        assert set(trial["precision"]) == {"requested", "effective"}
        assert set(trial["best"]) == {"value", "epoch"}
        assert (trial["device"]["type"], trial["device"]["emulated"]) == ("cpu", False)
        assert trial["precision"] == dict.fromkeys(["requested", "effective"], trial["config"]["precision"])
        assert trial["started"] < trial["ended"]
        assert (trial["restarts"], trial["error"], trial["diverged_at"]) == (0, None, None)


def test_the_summary_is_written_where_it_was_asked_for_too(main_job):
    assert json.loads((main_job.folder / "s.json").read_text()) == main_job.summary


def test_every_point_of_the_grid_is_trained_once(main_job):
    points = {(trial["config"]["precision"], trial["config"]["batch_size"]) for trial in main_job.trials}
    assert points == {(precision, size) for precision in ("fp32", "bf16") for size in (32, 128)}


def test_nothing_is_written_but_results_and_the_mlflow_store(main_job):
    """R20: the default store is one local database in the folder of the start."""
    names = {path.name for path in main_job.folder.iterdir()}
    assert names == {"results", "mlflow.db", "mlflow.db-lock", "mlartifacts", "s.json"}
    assert main_job.summary["mlflow"]["tracking_uri"] == f"sqlite:///{main_job.folder / 'mlflow.db'}"
    assert {path.name for path in main_job.results.iterdir()} == {"summary.json", "journal.jsonl", "trials"}
    assert {path.name for path in (main_job.results / "trials").iterdir()} == {
        trial["id"] for trial in main_job.trials
    }


def test_nothing_is_written_beside_the_experiment(main_job):
    assert {path.name for path in MLP.parent.iterdir()} <= {
        "__pycache__",
        *(path.name for path in MLP.parent.glob("*.py")),
    }


def test_best_and_last_checkpoint_are_kept_and_no_other(main_job):
    """R41."""
    for trial in main_job.trials:
        kept = {path.name for path in (main_job.results / "trials" / trial["id"] / "checkpoints").iterdir()}
        assert kept == {f"epoch-{trial['best']['epoch']:06}", f"epoch-{trial['config']['epochs']:06}"}
        assert Path(trial["checkpoint"]).name == f"epoch-{trial['best']['epoch']:06}"


def test_mlflow_has_one_parent_and_a_child_for_each_trial(main_job, runs):
    assert len(main_job.runs) == 5
    assert main_job.parent.info.status == "FINISHED"
    assert main_job.parent.data.metrics["trials.finished"] == 4
    for trial, found in zip(main_job.trials, runs, strict=True):
        assert found.info.status == "FINISHED"
        assert found.data.tags["mlflow.parentRunId"] == main_job.parent.info.run_id
        assert found.data.tags["trial.id"] == trial["id"]
        assert found.data.metrics["val_accuracy"] == trial["metrics"]["val_accuracy"]


def test_every_run_has_the_documented_tags(main_job, runs):
    """R21."""
    for trial, found in zip(main_job.trials, runs, strict=True):
        assert set(found.data.tags) >= TAGS
        assert all(found.data.tags[name] for name in TAGS)
        assert found.data.tags["precision.effective"] == trial["config"]["precision"]
        assert found.data.tags["batch.global"] == str(trial["config"]["batch_size"])
        assert found.data.params == {name: str(value) for name, value in trial["config"].items()}


def test_all_runs_have_the_same_metrics_with_units_in_their_names(runs):
    assert all(set(found.data.metrics) >= METRICS for found in runs)
    assert len({frozenset(found.data.metrics) for found in runs}) == 1


def test_the_whole_configuration_is_with_its_run(main_job, runs):
    """R17."""
    for trial, found in zip(main_job.trials, runs, strict=True):
        assert json.loads(main_job.artifacts(found)["config.json"]) == trial["config"]


def test_each_epoch_is_in_the_journal_and_in_mlflow(main_job):
    trial = main_job.trials[0]
    accuracies = main_job.reports(trial, "val_accuracy")
    assert len(accuracies) == trial["config"]["epochs"]
    history = main_job._client.get_metric_history(trial["mlflow_run_id"], "val_accuracy")
    assert [point.value for point in sorted(history, key=lambda point: point.step)] == accuracies


def test_the_output_is_plain_and_names_results_store_and_answer(main_job):
    """R46: no control characters where there is no terminal; Ray's and Tune's own chatter stays out."""
    assert not [character for character in main_job.out if ord(character) < 32 and character != "\n"]
    assert f"Results: results/{main_job.summary['sweep']}" in main_job.out
    assert "mlflow ui --backend-store-uri sqlite:////" in main_job.out
    assert main_job.summary["answer"]["sentence"] in main_job.out
    assert len(main_job.out.splitlines()) < 40
    for noise in ("INFO", "WARNING", "pid=", "Tune Status", "raylet"):
        assert noise not in main_job.out
