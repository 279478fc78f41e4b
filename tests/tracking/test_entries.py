import json
import math
import re
from pathlib import Path

import pytest

from orchestrator.tracking.batches import MOST_CHARACTERS, batches, count, halves
from orchestrator.tracking.entries import LONGEST_PARAM, Entries, MetricValue, Upload, cut, param_value, safe_key


@pytest.mark.parametrize("key", ["lr", "optimizer.lr", "perf/step_time_s_p50", "val acc", "a:b", "größe"])
def test_a_key_that_mlflow_takes_stays_as_it_is(key: str) -> None:
    assert safe_key(key) == key


def test_odd_keys_become_safe_and_never_the_same() -> None:
    odd = ["a(b", "a)b", "a_b", "", "/", "..", "../x", "x/", "//x", "./x", "a\nb", "a" * 300, "a" * 301, "\ud800"]
    safe = [safe_key(key) for key in odd]
    assert len(set(safe)) == len(odd)
    for key in safe:
        assert re.fullmatch(r"[/\w.\- :]{1,250}", key)
        assert not key.startswith("/") and not key.endswith("/")
        assert not {"", ".", ".."} & set(key.split("/"))


def test_values_are_written_as_a_reader_expects_and_long_ones_end_in_a_mark() -> None:
    assert [param_value(value) for value in ("a", 1e-05, True, None, [1, {"b": (2, math.nan)}])] == [
        "a", "1e-05", "True", "None", '[1, {"b": [2, "NaN"]}]',
    ]  # fmt: skip
    assert param_value("x" * (LONGEST_PARAM + 1)) == "x" * (LONGEST_PARAM - 1) + "…"
    assert cut("a\ud800", 10) == "a?"


def test_settings_are_flattened_masked_and_kept_in_full() -> None:
    entries = Entries()
    entries.add_settings({"opt": {"lr": 0.1}, "password": "hunter2", "text": "x" * 7000})
    assert entries.params["opt.lr"] == "0.1"
    assert entries.params["password"] == "***"
    (upload,) = entries.uploads
    assert upload.path.name == "config.json"
    assert json.loads(upload.text or "") == {"opt": {"lr": 0.1}, "password": "***", "text": "x" * 7000}


def test_infinity_never_becomes_a_number() -> None:
    entries = Entries()
    entries.add_metric("loss", -math.inf, 1.5, 3)
    (metric,) = entries.metrics
    assert math.isnan(metric.value)
    assert (metric.key, metric.time_ms, metric.step) == ("loss", 1500, 3)


def test_later_entries_follow_and_their_tags_win() -> None:
    first = Entries(tags={"a": "1", "b": "1"}, params={"p": "1"}, metrics=[MetricValue("m", 1.0, 0, 0)])
    second = Entries(tags={"b": "2"}, metrics=[MetricValue("m", 2.0, 1, 1)])
    both = first.then(second)
    assert both.tags == {"a": "1", "b": "2"}
    assert [metric.value for metric in both.metrics] == [1.0, 2.0]
    assert both.params == {"p": "1"}


def test_batches_hold_everything_within_the_limits_of_a_request() -> None:
    entries = Entries(
        tags={f"t{n}": "x" * 5000 for n in range(150)},
        params={f"p{n}": "1" for n in range(250)},
        metrics=[MetricValue("m", float(n), n, n) for n in range(2500)],
        uploads=[Upload(Path("log.txt"))],
    )
    made = list(batches(entries))
    assert {key: value for batch in made for key, value in batch.tags.items()} == entries.tags
    assert {key: value for batch in made for key, value in batch.params.items()} == entries.params
    assert [metric for batch in made for metric in batch.metrics] == entries.metrics
    for batch in made:
        assert len(batch.params) <= 100 and len(batch.tags) <= 100 and count(batch) <= 1000
        assert sum(len(value) for value in batch.tags.values()) <= MOST_CHARACTERS


def test_a_short_trial_is_one_batch() -> None:
    entries = Entries(
        tags={f"t{n}": "v" for n in range(30)},
        params={f"p{n}": "1" for n in range(20)},
        metrics=[MetricValue("m", float(n), n, n) for n in range(50)],
    )
    assert list(batches(entries)) == [entries]


def test_halves_hold_each_item_once() -> None:
    batch = Entries(tags={"a": "1"}, params={"b": "2"}, metrics=[MetricValue("m", 1.0, 0, 0)])
    first, second = halves(batch)
    assert (count(first), count(second)) == (1, 2)
    assert first.then(second) == batch
