"""One sweep in which trials go wrong in every way: each ends alone, and the record says what happened."""

from __future__ import annotations

import re

import psutil
import pytest

FAILED = ["raises", "exits", "reports_something_else", "reports_a_text", "dies"]
FINISHED = [
    "good", "is_nan", "is_infinite", "prints", "starts_processes", "loads_in_processes", "changes_its_process",
    "looks_at_its_process", "dies_once",
]  # fmt: skip


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture(scope="module")
def mishaps(run, scratch):
    return run("mishaps.py", "--set", f"scratch={scratch}")


def of(mishaps, what: str) -> dict:
    return mishaps.trial(what=what)


def test_the_others_finish_and_the_exit_code_says_that_some_failed(mishaps):
    """R38."""
    assert mishaps.code == 1, mishaps.err
    assert (mishaps.summary["status"], mishaps.summary["exit_code"]) == ("partly_failed", 1)
    statuses = {trial["config"]["what"]: trial["status"] for trial in mishaps.trials}
    assert statuses == {**dict.fromkeys(FAILED, "failed"), **dict.fromkeys(FINISHED, "finished")}
    assert mishaps.summary["counts"]["failed"] == len(FAILED)
    assert mishaps.summary["counts"]["finished"] == len(FINISHED)


def test_no_process_is_left(mishaps):
    assert mishaps.left == []


def test_the_state_of_every_run_in_mlflow_is_true(mishaps):
    """R14, R15: one run a trial, whatever became of it, and none that is still running."""
    for trial in mishaps.trials:
        found = mishaps.run(trial)
        assert found.info.status == {"failed": "FAILED", "finished": "FINISHED"}[trial["status"]]
        assert found.data.tags["trial.status"] == trial["status"]
    assert mishaps.parent.info.status == "FAILED"
    assert mishaps.parent.data.metrics["trials.failed"] == len(FAILED)
    assert len(mishaps.runs) == 1 + len(mishaps.trials)


def test_an_exception_shows_the_users_own_line_once(mishaps):
    """R46."""
    error = of(mishaps, "raises")["error"]
    line = re.fullmatch(
        r"mishaps\.py:\d+: raise ValueError\(\"the user's own fault\"\)\nValueError: the user's own fault", error
    )
    assert line, error
    assert mishaps.out.count("the user's own fault\")") == 2, "when it happens, and under the final table"
    assert "Traceback" not in mishaps.out + mishaps.err
    assert "Traceback" in mishaps.log(of(mishaps, "raises"))


def test_a_trial_that_failed_does_not_win(mishaps):
    """R35: nor does one that was infinite."""
    assert of(mishaps, "raises")["best"]["value"] == 0.9
    assert mishaps.summary["answer"]["value"] == 0.5


def test_a_trial_that_never_reports_the_objective_fails_with_that_reason(mishaps):
    assert of(mishaps, "reports_something_else")["error"] == "train never reported 'score' (reported: accuracy)"


def test_a_metric_that_is_no_number_is_named(mishaps):
    error = of(mishaps, "reports_a_text")["error"]
    assert "metric score = 'high' (str) is no number" in error and "mishaps.py:" in error


def test_ending_the_process_by_exit_fails_the_trial_alone(mishaps):
    assert "train ended the process; it should return" in of(mishaps, "exits")["error"]


def test_a_trial_that_kills_its_process_is_tried_once_more(mishaps):
    dies, once = of(mishaps, "dies"), of(mishaps, "dies_once")
    assert (dies["restarts"], once["restarts"]) == (1, 1)
    assert dies["error"].startswith("worker died: ")
    assert once["best"]["value"] == 0.4
    causes = [one["cause"] for one in mishaps.journal if one["kind"] == "restarted"]
    assert len(causes) == 2 and all(cause.startswith("worker died: ") for cause in causes)


def test_the_neighbours_of_a_trial_that_killed_its_process_were_not_started_again(mishaps):
    for trial in mishaps.trials:
        assert trial["restarts"] == (trial["config"]["what"] in ("dies", "dies_once"))


def test_nan_and_infinity_are_kept_and_marked_and_never_win(mishaps):
    """R18, R35."""
    nan, infinite = of(mishaps, "is_nan"), of(mishaps, "is_infinite")
    assert (nan["metrics"]["score"], nan["best"], nan["diverged_at"]) == ("NaN", {"value": 0.3, "epoch": 1}, 2)
    assert (infinite["metrics"]["score"], infinite["best"]["value"], infinite["diverged_at"]) == (
        "Infinity", None, 1
    )  # fmt: skip
    assert mishaps.run(nan).data.tags["diverged_at"] == "2"
    assert mishaps.summary["answer"]["diverged"] == 1


def test_whatever_a_trial_prints_is_in_its_log_and_nowhere_else(mishaps):
    log = mishaps.results / "trials" / of(mishaps, "prints")["id"] / "log.txt"
    text = log.read_bytes().decode(errors="backslashreplace")
    for part in (
        "Größe: 3 µm \N{SNOWMAN} \\ud800", "to the error stream", "\\xff\\xfe raw bytes", "from a child process"
    ):  # fmt: skip
        assert part in text
        assert part not in mishaps.out + mishaps.err
    assert (mishaps.artifacts(mishaps.run(of(mishaps, "good")))["log.txt"]) == mishaps.log(of(mishaps, "good"))


def test_processes_that_a_trial_starts_end_with_it(mishaps):
    """R12: a command that was left running, and the processes of data loaders."""
    (child,) = re.findall(r"^child (\d+)$", mishaps.log(of(mishaps, "starts_processes")), re.MULTILINE)
    assert not psutil.pid_exists(int(child))
    loaders = re.findall(
        r"^loaders, .*: (\d+) (\d+)$", mishaps.log(of(mishaps, "loads_in_processes")), re.MULTILINE
    )
    assert len(loaders) == 2
    assert not any(psutil.pid_exists(int(pid)) for pair in loaders for pid in pair)


def test_a_trial_finds_its_folder_its_neighbours_and_nothing_of_the_trial_before(mishaps, scratch):
    """R10, R12: relative paths start at the file's folder; one thread for each of the worker's cores."""
    log = mishaps.log(of(mishaps, "looks_at_its_process"))
    home = mishaps.process.args[3].rpartition("/")[0]
    assert f"directory {home}\n" in log
    assert "left None torch.float32\n" in log
    assert re.search(r"^threads (\d+) \1$", log, re.MULTILINE)
    assert "read 42 the mishaps' neighbour" in log


def test_a_worker_has_as_many_threads_as_cores(mishaps):
    log = mishaps.log(of(mishaps, "looks_at_its_process"))
    threads = int(re.findall(r"^threads (\d+)", log, re.MULTILINE)[0])
    assert threads == min(4, max(1, psutil.cpu_count() // 2))
    assert mishaps.run(of(mishaps, "good")).data.tags["torch.threads"] == str(threads)


def test_a_swept_setting_that_nobody_reads_is_reported(mishaps):
    """R45."""
    (warning,) = [line for line in mishaps.out.splitlines() if line.startswith("warning: ")]
    assert warning == "warning: the sweep varies nobody_reads_this, but the train function never reads it"
