"""The tenth trial of a warm process against the first trial of a fresh one: the same numbers, at the same speed?

Before the tenth come nine that change whatever a trial can change in torch for its whole process: the list is in
tests/frameworks/test_warm_process.py. Each of both has a process of its own; the trial is an MLP on random rows.

Usage: python tests/benchmarks/clean_state.py. About a minute on 2 cores.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parent.parent
CONFIG = {"batch_size": 32, "epochs": 300, "precision": "fp32"}
TURNS = 3


def trial_after(others: list[str]) -> None:
    """Prints the losses, bit by bit, and the speed of a trial that comes after those others in this process."""
    from test_warm_process import train
    from torch_trial import TorchTrial

    with tempfile.TemporaryDirectory() as folder:
        for nasty in others:
            trial = TorchTrial(Path(folder), {"batch_size": 32, "precision": "bf16"})
            with contextlib.closing(trial), contextlib.suppress(ValueError):
                train(trial, nasty)
        trial = TorchTrial(Path(folder), CONFIG)
        with contextlib.closing(trial):
            train(trial)
            speed = trial.session.measured()["perf/samples_per_s"]
    print(json.dumps({"losses": [row["loss"].hex() for row in trial.channel.reports], "samples_per_s": speed}))


def measured(which: str) -> dict:
    path = os.pathsep.join([str(TESTS / "frameworks"), str(TESTS.parent)])
    answer = subprocess.run(
        [sys.executable, __file__, which],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return json.loads(answer.stdout.splitlines()[-1])


def main() -> None:
    turns = [(measured("first"), measured("tenth")) for _ in range(TURNS)]
    first, tenth = turns[0]
    for name, found in (("first", first), ("tenth", tenth)):
        print(f"{name} trial: last loss {float.fromhex(found['losses'][-1]):.17f}")
    same = all(turn[0]["losses"] == turn[1]["losses"] == first["losses"] for turn in turns)
    print(f"all {len(first['losses'])} losses of {TURNS} turns equal to the last bit: {'yes' if same else 'NO'}")
    ratio = max(after["samples_per_s"] for _, after in turns) / max(before["samples_per_s"] for before, _ in turns)
    print(f"speed of the tenth over the first: {ratio:.3f}  (best of {TURNS} each)")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        from test_warm_process import NASTY

        trial_after(NASTY if sys.argv[1] == "tenth" else [])
    else:
        main()
