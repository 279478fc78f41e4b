"""The example that every user copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.devices import DeviceShape
from orchestrator.fleet.local import LocalFleet
from orchestrator.loader import load
from orchestrator.results import Ended, Reported, TrialStatus
from orchestrator.settings import with_defaults
from orchestrator.trial import Placement, Rules, Trial

FILE = Path(__file__).parents[2] / "experiments" / "mlp.py"
SHAPE = DeviceShape(device="cpu", model=None, devices=1, workers=1, cpus_per_worker=1, framework="torch")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("batch_size", [32, 128])
def test_it_learns_the_digits(tmp_path, precision, batch_size):
    loaded = load(str(FILE))
    rules = Rules(objective="val_accuracy", mode="max", swept=("precision", "batch_size"))
    fleet = LocalFleet(loaded, rules, tmp_path)
    config = with_defaults({**loaded.experiment.config, "precision": precision, "batch_size": batch_size})
    place = Placement(shape=SHAPE, precision=precision)
    fleet.submit(Trial(id="t1", config=config, placements=(place,)))
    events = fleet.events(0)
    (end,) = (event for event in events if isinstance(event, Ended))
    assert (end.status, end.error, end.unread) == (TrialStatus.FINISHED, None, ())
    assert end.facts["precision.effective"] == precision
    best = max(event.metrics["val_accuracy"] for event in events if isinstance(event, Reported))
    assert best >= 0.96


def test_it_is_short():
    assert len(FILE.read_text(encoding="utf-8").splitlines()) < 100
