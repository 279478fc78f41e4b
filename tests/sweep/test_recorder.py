"""What is written down about a sweep, however it ends."""

import json

import pytest

from orchestrator.cluster import local_nodes
from orchestrator.command_line import parse
from orchestrator.loader import load
from orchestrator.report.terminal import open_console
from orchestrator.sweep.preparation import prepare
from orchestrator.sweep.recorder import Recorder
from orchestrator.tracking.base import NoTracker

FILE = """
from orchestrator import Experiment
experiment = Experiment(name="recorded", train=print, objective="loss", mode="min")
"""


def test_a_fault_of_the_orchestrator_itself_leaves_a_summary_and_is_raised(tmp_path):
    (tmp_path / "recorded.py").write_text(FILE)
    options = parse([str(tmp_path / "recorded.py"), "--storage", str(tmp_path / "results"), "--name", "broken"])
    prepared = prepare(options, load(options.file), local_nodes())
    prepared.directory.mkdir(parents=True)
    recorder = Recorder(options, prepared, open_console(options), NoTracker())
    with pytest.raises(ZeroDivisionError), recorder:
        recorder.open(1)
        recorder.announce(next(prepared.planner.trials()))
        raise ZeroDivisionError
    summary = json.loads((prepared.directory / "summary.json").read_text())
    assert (summary["status"], summary["exit_code"]) == ("partly_failed", 1)
    assert [trial["status"] for trial in summary["trials"]] == ["pending"]
