"""Stops in the debugger."""

import os

from orchestrator import Experiment, Run


def train(run: Run) -> None:
    x = 41
    if run.config["stops"]:
        breakpoint()
    print("process", os.getpid(), "x", x)
    run.report(score=float(x))


experiment = Experiment(name="debugged", train=train, config={"stops": False}, objective="score")
