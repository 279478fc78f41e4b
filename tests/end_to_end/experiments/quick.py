"""Trials that cost nothing: they report what their settings say, and the process that they ran in."""

import os
import time

from ray import tune

from orchestrator import Experiment, Run


def train(run: Run) -> None:
    began = time.time()
    print("process", os.getpid())
    for epoch in run.epochs():
        time.sleep(run.config["pause_s"])
        run.report(score=run.config["x"] * (1 + epoch), began=began, ended=time.time())


def left_out(config: dict) -> str | None:
    if config["x"] == 13:
        return "13 brings bad luck"
    if config.get("device") == "gpu" and config.get("workers", 1) > 1:
        return "a GPU has one worker"
    return None


experiment = Experiment(
    name="quick",
    train=train,
    config={"epochs": 1, "pause_s": 0.0, "x": 1},
    objective="score",
    exclude=left_out,
)
own_processes = Experiment(
    name="own_processes",
    train=train,
    config={"epochs": 1, "pause_s": 0.0, "x": 1},
    sweep={"x": tune.grid_search([1, 2, 3])},
    objective="score",
    isolation="process",
)
