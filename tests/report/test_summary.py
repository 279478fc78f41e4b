import json
import math
import os

import pytest

from orchestrator.report.summary import as_json, plan, publish, summary, write
from orchestrator.results import TrialStatus
from orchestrator.tracking.base import TrackingIds


def strict(text):
    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_the_summary_has_the_fields_of_the_contract(sweep):
    sweep.whole("t1", 0.5, error=None)
    sweep.refuse("fp8: not on gpu")
    record = summary(sweep.ledger, sweep.ending(run_ids={"t1": "r1"}))
    assert list(record) == [
        *(
            "sweep",
            "experiment",
            "status",
            "exit_code",
            "wall_s",
            "mlflow",
            "counts",
            "trials",
            "excluded",
            "answer",
        ),
    ]
    assert set(record["mlflow"]) == {"tracking_uri", "experiment_id", "parent_run_id"}
    assert list(record["trials"][0]) == [
        *("id", "config", "status", "device", "precision", "metrics", "best", "mlflow_run_id", "restarts"),
        *("started", "ended", "checkpoint", "diverged_at", "error"),
    ]
    assert set(record["trials"][0]["device"]) == {"type", "model", "count", "emulated"}
    assert record["trials"][0]["mlflow_run_id"] == "r1"
    assert record["trials"][0]["best"] == {"value": 0.5, "epoch": 1}
    assert record["excluded"] == [
        {"config": {"precision": "fp8", "batch_size": 32}, "device": "gpu", "reason": "fp8: not on gpu"}
    ]
    assert (record["status"], record["exit_code"]) == ("finished", 0)
    assert record["answer"]["trial"] == "t1"


def test_nan_and_infinity_are_texts_and_the_json_is_strict(sweep):
    sweep.whole("t1", 0.5, math.nan)
    sweep.whole("t2", math.inf)
    record = strict(as_json(summary(sweep.ledger, sweep.ending())))
    assert record["trials"][0]["metrics"] == {"accuracy": "NaN"}
    assert record["trials"][1]["metrics"] == {"accuracy": "Infinity"}
    assert record["trials"][1]["best"] == {"value": None, "epoch": None}
    assert record["trials"][0]["diverged_at"] == 2


def test_a_trial_that_never_ran_says_what_is_known(sweep):
    sweep.refuse("no gpu", TrialStatus.INFEASIBLE, "t1")
    trial = summary(sweep.ledger, sweep.ending())["trials"][0]
    assert trial["device"] == {"type": "gpu", "model": None, "count": None, "emulated": None}
    assert trial["precision"] == {"requested": "fp8", "effective": None}
    assert (trial["error"], trial["started"]) == ("no gpu", None)


def test_credentials_are_masked(sweep):
    address = "https://user:hunter2@mlflow.example"
    sweep.add("t1", api_token="hunter2")
    sweep.start("t1")
    sweep.end("t1", TrialStatus.FAILED, error=f"cannot reach {address}")
    ending = sweep.ending(tracking=TrackingIds(tracking_uri=address))
    assert "hunter2" not in as_json(summary(sweep.ledger, ending))


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "summary.json"
    write(path, {"a": 1})
    write(path, {"a": 2})
    assert strict(path.read_text()) == {"a": 2}
    assert os.listdir(tmp_path) == ["summary.json"]


def test_a_record_that_is_no_json_leaves_the_old_file(tmp_path):
    class Odd(dict):
        def items(self):
            raise RuntimeError("odd")

    path = tmp_path / "summary.json"
    write(path, {"a": 1})
    with pytest.raises(RuntimeError):
        write(path, Odd(a=2))
    assert strict(path.read_text()) == {"a": 1}
    assert os.listdir(tmp_path) == ["summary.json"]


def test_a_device_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        publish(str(pipe), {"a": 1})
        assert strict(os.read(reader, 1000).decode()) == {"a": 1}
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_the_plan_lists_places_and_what_does_not_run(sweep):
    sweep.refuse("no library")
    record = strict(as_json(plan("mlp", [sweep.trial("t1", batch_size=64)], sweep.ledger.left_out)))
    assert record["counts"] == {"trials": 1, "excluded": 1, "infeasible": 0}
    place = record["trials"][0]["placements"][0]
    assert place["device"]["type"] == "cpu"
    assert place["batch_size"] == {"global": 64, "per_worker": 64}
    assert record["excluded"][0]["reason"] == "no library"
