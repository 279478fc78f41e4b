"""The peak of one trial is not that of the trials before it."""

from __future__ import annotations

import sys

import pytest

from orchestrator.measure.process_memory import PeakMemory

MIB = 2**20


@pytest.mark.skipif(sys.platform != "linux", reason="known on Linux only")
def test_the_peak_is_that_since_the_object_was_made():
    large = bytearray(300 * MIB)
    assert len(large) == 300 * MIB
    del large
    peak = PeakMemory()
    before = peak.bytes()
    assert before is not None
    medium = bytearray(100 * MIB)
    del medium
    after = peak.bytes()
    assert after is not None
    assert 80 * MIB < after - before < 200 * MIB


def test_where_it_cannot_be_known_it_is_none(monkeypatch, tmp_path):
    monkeypatch.setattr("orchestrator.measure.process_memory._CLEAR", tmp_path / "none" / "clear_refs")
    assert PeakMemory().bytes() is None
