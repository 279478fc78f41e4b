"""The plan, the debugger, and bad input: none of them starts Ray or leaves anything behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parent / "experiments"
MLP = Path(__file__).parents[2] / "experiments" / "mlp.py"


def test_the_plan_shows_trials_and_starts_nothing(run):
    command = run(MLP, "--plan", "--json", "plan.json")
    assert command.code == 0, command.err
    plan = json.loads((command.folder / "plan.json").read_text())
    assert plan["counts"] == {"trials": 4, "excluded": 0, "infeasible": 0}
    assert "4 trials would run" in command.out
    assert_nothing_started(command, besides={"plan.json"})


def test_the_plan_says_what_cannot_run(run):
    command = run(MLP, "--plan", "--devices", "cpu,gpu")
    assert command.code == 1
    assert "needs gpu, the cluster has" in command.out


def test_debug_trains_in_the_process_of_the_command(run):
    command = run("debugged.py", "--debug")
    assert command.code == 0, command.err
    assert f"process {command.process.pid} x 41\n" in command.out
    assert not [title for title in command.family.titles() if "ray" in title]
    assert {path.name for path in command.folder.iterdir()} == {"results"}
    assert command.summary["trials"][0]["best"]["value"] == 41


def test_a_breakpoint_stops_in_the_train_function(tmp_path):
    # Where a test before this one has used Ray in this process, Ray has put its own debugger there.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONBREAKPOINT"}
    done = subprocess.run(
        [
            sys.executable, "-m", "orchestrator.run", str(EXPERIMENTS / "debugged.py"), "--debug",
            "--set", "stops=true",
        ],
        input="x = x + 1\nc\n", capture_output=True, text=True, timeout=120, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "(Pdb)" in done.stdout and " x 42\n" in done.stdout


BAD = {
    "a file that is not there": (["nowhere.py"], "does not exist"),
    "a file without an experiment": (["neighbour.py"], "holds no experiment"),
    "a file with two experiments and no name": (
        ["quick.py"],
        "name one, quick.py:NAME (experiment, own_processes)",
    ),
    "a name that the file does not have": (["quick.py:own_process"], 'did you mean "own_processes"?'),
    "a setting that is not there": (["bad.py:fine", "--set", "ler=1"], 'did you mean "lr"?'),
    "an option that is not there": (["bad.py:fine", "--sampels", "2"], "--samples"),
    "a precision that is not there": (["bad.py:fine", "--set", "precision=fp7"], "bf16"),
    "a device that is not there": (["bad.py:fine", "--devices", "abacus"], "cpu"),
    "a batch size of 0": (["bad.py:fine", "--set", "batch_size=0"], "a whole number of at least 1"),
    "a batch size below 0": (["bad.py:fine", "--set", "batch_size=-32"], "a whole number of at least 1"),
    "a fraction as batch size": (["bad.py:fine", "--set", "batch_size=2.5"], "a whole number of at least 1"),
    "a batch that does not divide": (
        ["bad.py:fine", "--set", "batch_size=5", "--set", "workers=2"],
        "batch_size = 5 is not divisible by workers = 2",
    ),
    "an empty search space": (["bad.py:fine", "--sweep", "x="], "x"),
    "a function as a setting": (["bad.py:function"], '"activation"'),
    "an open file as a setting": (["bad.py:open_file"], '"file"'),
    "a tracking server that does not answer": (
        ["bad.py:fine", "--tracking-uri", "http://127.0.0.1:9"],
        "127.0.0.1:9",
    ),
    "a storage that cannot be written": (["bad.py:fine", "--storage", "/proc/results"], "/proc"),
    "a cluster that does not answer": (["bad.py:fine", "--address", "127.0.0.1:9"], "nobody answers there"),
    "an address of Ray Client": (["bad.py:fine", "--address", "ray://127.0.0.1:10001"], "Ray Client"),
    "too many points": (["bad.py:large"], "15,625 configurations"),
}


@pytest.mark.parametrize(("words", "said"), BAD.values(), ids=BAD)
def test_bad_input_gets_a_short_message_and_starts_nothing(run, words, said):
    command = run(*words)
    assert_refused(command, said)


WRONG_FILES = {
    "a syntax error": ("x = 1\nfor in range(3):\n", ["wrong_file.py:2", "for in range(3):"]),
    "an unknown field, and a wrong one": (
        "from orchestrator import Experiment\n"
        "e = Experiment(name='e', train=print, objektive='x', objective='score', mode='best')\n",
        ['no field "objektive" (did you mean "objective"?)', "mode = 'best' is not allowed", "max, min"],
    ),
    "an empty grid": (
        "from ray import tune\nfrom orchestrator import Experiment\n"
        "e = Experiment(name='e', train=print, objective='x', sweep={'lr': tune.grid_search([])})\n",
        ['sweep["lr"] is empty'],
    ),
}


@pytest.mark.parametrize(("text", "said"), WRONG_FILES.values(), ids=WRONG_FILES)
def test_a_wrong_file_is_refused_with_all_that_is_wrong(run, tmp_path, text, said):
    (tmp_path / "wrong_file.py").write_text(text)
    command = run(tmp_path / "wrong_file.py")
    assert_refused(command, *said)


def assert_refused(command, *said: str) -> None:
    assert command.code == 2, command.out + command.err
    for part in said:
        assert part in command.err
    assert command.out == ""
    assert "Traceback" not in command.err
    assert len(command.err.splitlines()) <= 4
    assert all(line.startswith(("error: ", "  ")) for line in command.err.splitlines())
    assert_nothing_started(command)


def assert_nothing_started(command, besides: frozenset[str] | set[str] = frozenset()) -> None:
    """Neither Ray nor folders or stores; and it took less than the minutes that Ray and MLflow retry for."""
    assert command.took_s < 30
    assert {path.name for path in command.folder.iterdir()} == set(besides)
    assert not [title for title in command.family.titles() if re.search("raylet|gcs_server|ray::", title)]
    assert command.left == []


def test_help_needs_neither_torch_nor_ray(tmp_path):
    code = "import sys; from orchestrator.run import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += "print([name for name in ('ray', 'torch', 'mlflow') if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=os.environ
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
