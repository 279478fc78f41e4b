"""The command on input that is wrong: short lines, exit code 2, nothing started."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator import run
from orchestrator.errors import UserError

TWO = """
from orchestrator import Experiment
def train(run): ...
one = Experiment(name="one", train=train, objective="accuracy", config={"lr": 0.1})
two = Experiment(name="two", train=train, objective="accuracy")
"""


def command(*argv, cwd, module="orchestrator.run"):
    root = str(Path(__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, argv)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "experiments" / "two.py"
    path.parent.mkdir()
    path.write_text(TWO)
    return path


def assert_refused(done, *parts):
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert all(line.startswith(("error: ", "  ")) for line in done.stderr.splitlines()), done.stderr
    for part in parts:
        assert part in done.stderr


def test_help_is_quick_and_loads_no_large_library(tmp_path):
    began = time.monotonic()
    done = command("--help", cwd=tmp_path)
    print(f"--help took {time.monotonic() - began:.2f} s")
    assert done.returncode == 0
    assert "--tracking-uri" in done.stdout
    code = "import sys; from orchestrator import run, overrides, loader; print(sorted(sys.modules))"
    root = str(Path(__file__).parents[1])
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for library in ("torch", "ray", "mlflow", "numpy", "rich"):
        assert f"'{library}'" not in loaded


def test_a_missing_file_is_named(tmp_path):
    assert_refused(command("none.py", cwd=tmp_path), "none.py")


def test_two_experiments_need_a_name(file):
    assert_refused(command(file, cwd=file.parent), "one", "two")


def test_a_misspelt_setting_is_refused_with_the_nearest(file):
    done = command(f"{file}:one", "--set", "lrr=1", "--set", "batch_size=0", cwd=file.parent)
    assert_refused(done, '(did you mean "lr"?)', "batch_size = 0 is not allowed")
    assert len(done.stderr.splitlines()) == 2


def test_faults_of_the_command_line_are_all_listed(tmp_path):
    done = command("x.py", "--samples", "0", "--serch", "optuna", cwd=tmp_path)
    assert_refused(done, "--samples 0", "--serch")


def test_a_syntax_error_shows_its_own_line(file):
    file.write_text("from orchestrator import Experiment\nexperiment = Experiment(\n    name=)\n")
    assert_refused(command(file, cwd=file.parent), "name=)")


def test_nothing_is_left_behind_by_a_refused_command(file):
    command(f"{file}:one", "--set", "lrr=1", cwd=file.parent)
    assert [path.name for path in file.parent.iterdir() if path.name != "__pycache__"] == ["two.py"]


def test_what_the_file_prints_stays_out_of_a_summary_on_standard_output(file):
    file.write_text(f"print('loading')\n{TWO}")
    done = command(f"{file}:one", "--set", "lrr=1", "--json", "-", cwd=file.parent)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "loading" in done.stderr


def test_the_console_script_knows_its_commands(tmp_path):
    assert "run" in command(cwd=tmp_path, module="orchestrator").stdout
    done = command("rn", cwd=tmp_path, module="orchestrator")
    assert done.returncode == 2
    assert "there is no command 'rn' (did you mean \"run\"?)" in done.stderr


def test_a_users_fault_is_masked_and_gives_its_exit_code(monkeypatch, capsys):
    def refuse(argv):
        raise UserError("cannot reach https://user:hunter2@mlflow.example")

    monkeypatch.setattr(run, "parse", refuse)
    assert run.main([]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: cannot reach https://")
    assert "hunter2" not in shown


def test_an_unforeseen_fault_shows_its_traceback_and_asks_for_a_report(capsys):
    try:
        raise RuntimeError("https://user:hunter2@mlflow.example")
    except RuntimeError as error:
        run.show_own_fault(type(error), error, error.__traceback__)
    shown = capsys.readouterr().err
    assert "Traceback" in shown and "RuntimeError" in shown and "please report it" in shown
    assert "hunter2" not in shown


def test_an_interruption_before_the_start_is_no_traceback(monkeypatch, capsys):
    def interrupt(argv):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "parse", interrupt)
    assert run.main([]) == 130
    assert "interrupted" in capsys.readouterr().err
