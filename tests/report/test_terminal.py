import contextlib
import math
import os
import pty
import re
import threading

import pytest

from orchestrator.options import STANDARD_OUTPUT, Options, Verbosity
from orchestrator.report.terminal import LiveConsole, PlainConsole, open_console
from orchestrator.results import Restarted, TrialStatus
from orchestrator.tracking.base import TrackingIds

ERROR = "mlp.py:31: model(x)\nValueError: bad [luck]"


def play(sweep, verbosity=Verbosity.NORMAL, **more):
    """Two trials, of which one fails, through the console that `open_console` chooses."""
    console = open_console(Options(file="mlp.py", verbosity=verbosity, **more))
    sweep.on_event = console.event
    sweep.refuse("fp8 on gpu: no library")
    console.plan(experiment="mlp", sweep="mlp-1", trials=2, ledger=sweep.ledger)
    console.note("starting a worker group for cpu")
    console.note("starting a worker group for cpu")
    sweep.whole("t1", 0.5, 0.6, measured={"perf/samples_per_s": 12345.0, "perf/step_time_s_p50": 0.00321})
    sweep.whole("t2", 0.9, status=TrialStatus.FAILED, error=ERROR)
    console.final(sweep.ledger, sweep.ending())
    console.close()
    return console


def test_a_file_gets_plain_lines_without_control_characters(sweep, capsys):
    assert type(play(sweep)) is PlainConsole
    text = capsys.readouterr().out
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    assert text.count("starting a worker group") == 1
    assert len(re.findall(r"trial t1 started", text)) == 1
    assert len(re.findall(r"trial t1 finished", text)) == 1
    assert "epoch 2" not in text.split("step p50")[0]


def test_colours_are_not_forced_on_a_file(sweep, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    play(sweep)
    assert "\x1b" not in capsys.readouterr().out


def test_the_final_table_compares_device_precision_batch_size_and_speed(sweep, capsys):
    play(sweep)
    end = capsys.readouterr().out.split("step p50")[1]
    for part in ("t1", "cpu", "fp32", "32", "0.6000 *", "12,345", "3.21", "finished"):
        assert part in end
    assert "fp8 on gpu: no library" in end
    assert "mlflow ui --backend-store-uri sqlite:///mlflow.db" in end
    assert end.rstrip().endswith("Best accuracy 0.6000 (epoch 2): trial t1 on cpu, fp32, batch size 32.")


def test_an_error_is_shown_when_it_happens_and_again_at_the_end(sweep, capsys):
    play(sweep)
    during, end = capsys.readouterr().out.split("step p50")
    assert during.count("ValueError: bad [luck]") == end.count("ValueError: bad [luck]") == 1
    assert "mlp.py:31" in during and "mlp.py:31" in end


def test_the_same_error_of_many_trials_is_told_once(sweep, capsys):
    console = open_console(Options(file="mlp.py"))
    sweep.on_event = console.event
    for number in range(20):
        sweep.whole(f"t{number}", 0.1, status=TrialStatus.FAILED, error=ERROR)
    during = capsys.readouterr().out
    assert during.count("ValueError") == 1
    assert during.count("the same error as trial t0") == 19
    console.final(sweep.ledger, sweep.ending())
    end = capsys.readouterr().out
    assert end.count("ValueError") == 1
    assert "trials t0, t1, t2, t3, t4 and 15 more: mlp.py:31" in end


def test_quiet_shows_errors_and_the_final_table_only(sweep, capsys):
    play(sweep, Verbosity.QUIET)
    text = capsys.readouterr().out
    assert "started" not in text and "worker group" not in text
    assert text.count("ValueError") == 2
    assert "samples" in text


def test_verbose_shows_every_report(sweep, capsys):
    play(sweep, Verbosity.VERBOSE)
    assert "trial t1 epoch 2  accuracy 0.6000" in capsys.readouterr().out


def test_with_the_summary_on_standard_output_the_console_is_on_standard_error(sweep, capsys):
    play(sweep, json=STANDARD_OUTPUT)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "trial t1 finished" in captured.err


def test_credentials_are_not_printed(sweep, capsys):
    address = "https://user:hunter2@mlflow.example"
    console = open_console(Options(file="mlp.py", verbosity=Verbosity.VERBOSE))
    sweep.ledger.swept = ("api_token",)
    sweep.on_event = console.event
    console.note(f"waiting for {address}")
    sweep.add("t1", api_token="hunter2")
    sweep.start("t1")
    sweep.event(Restarted(trial_id="t1", attempt=1, time=1.0, cause=f"no answer from {address}"))
    sweep.start("t1", attempt=2)
    sweep.report("t1", 1, attempt=2, accuracy=0.5)
    sweep.end("t1", attempt=2, error=f"cannot reach {address}")
    console.plan_only([sweep.trial("t1", api_token="hunter2")], [], ("api_token",))
    console.final(sweep.ledger, sweep.ending(tracking=TrackingIds(tracking_uri=address, experiment_id="1")))
    text = capsys.readouterr().out
    assert "mlflow.example" in text
    assert "hunter2" not in text


def test_diverged_and_restarted_trials_and_settings_that_nobody_reads_are_told(sweep, capsys):
    console = open_console(Options(file="mlp.py"))
    sweep.add("t1")
    sweep.start("t1")
    sweep.event(Restarted(trial_id="t1", attempt=1, time=1.0, cause="the worker died"))
    sweep.start("t1", attempt=2)
    sweep.report("t1", 3, attempt=2, accuracy=math.nan)
    sweep.end("t1", attempt=2, unread=("wd",))
    console.final(sweep.ledger, sweep.ending())
    text = capsys.readouterr().out
    assert "trial t1: diverged at epoch 3" in text
    assert "trial t1: restarted: the worker died" in text
    assert "warning: the sweep varies wd, but the train function never reads it" in text
    assert "NaN" in text
    assert "No answer: no trial has a finite accuracy" in text


def test_a_long_table_is_cut_and_says_so(sweep, capsys):
    console = open_console(Options(file="mlp.py"))
    for number in range(100):
        sweep.whole(f"t{number:03}", number / 100)
    console.final(sweep.ledger, sweep.ending())
    text = capsys.readouterr().out
    assert "t099" in text and "t075" in text and "t074 " not in text
    assert "75 more trials" in text


def test_the_plan_shows_every_trial_with_its_place_and_why_others_are_left_out(sweep, capsys):
    console = open_console(Options(file="mlp.py"))
    sweep.refuse("fp8 on gpu: no library")
    console.plan_only(
        [sweep.trial("t1"), sweep.trial("t2", batch_size=128)], sweep.ledger.left_out, ("batch_size",)
    )
    text = capsys.readouterr().out
    assert re.search(r"t2 +cpu +fp32 +128 +1 +1 x 128 +1", text)
    assert "fp8 on gpu: no library" in text
    assert "2 trials would run, 1 left out" in text


@pytest.fixture
def in_terminal(monkeypatch):
    """Calls a function while standard output is a terminal; returns its result and what was written."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("CI", raising=False)

    def call(function):
        leader, follower = pty.openpty()
        parts: list[bytes] = []

        def read() -> None:  # a terminal that nobody reads is full after 4 KiB and blocks the writer
            with contextlib.suppress(OSError):  # the writer has closed
                while part := os.read(leader, 65536):
                    parts.append(part)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        with os.fdopen(follower, "w") as stream, monkeypatch.context() as patch:
            patch.setattr("sys.stdout", stream)
            result = function()
        reader.join(timeout=10)
        os.close(leader)
        return result, b"".join(parts).decode()

    return call


def test_a_terminal_gets_a_live_table_that_goes_at_the_end(sweep, in_terminal):
    console, text = in_terminal(lambda: play(sweep))
    assert type(console) is LiveConsole
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor comes back"
    assert "2 of 2 ended" in text
    assert "trial t1 started" not in text
    assert "trial t1 on cpu, fp32, batch size 32." in text.splitlines()[-1]


def test_a_build_server_gets_plain_lines_even_in_a_terminal(sweep, in_terminal, monkeypatch):
    monkeypatch.setenv("CI", "true")
    console, text = in_terminal(lambda: play(sweep))
    assert type(console) is PlainConsole
    assert "\x1b" not in text


def test_a_debugger_has_the_terminal_for_itself(sweep, in_terminal):
    console, _ = in_terminal(lambda: play(sweep, debug=True))
    assert type(console) is PlainConsole


def test_a_narrow_terminal_gets_fewer_columns_and_no_broken_lines(sweep, in_terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "62")
    sweep.ledger.swept = ("learning_rate",)
    sweep.add("t0", learning_rate=0.123456)
    _, text = in_terminal(lambda: play(sweep))
    end = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text).split("samples")[-1]
    assert "learning_rate" not in end.split("left out")[0]
    assert re.search(r"t1 .*0\.6000 \* .*finished", end)
