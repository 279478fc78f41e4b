"""Trials that do nothing but report five times: what is left is the cost of running a trial."""

from ray import tune

from orchestrator import Experiment, Run


def train(run: Run) -> None:
    for epoch in run.epochs():
        run.report(loss=run.config["x"] / (epoch + 1))


experiment = Experiment(
    name="noop",
    train=train,
    config={"epochs": 5, "device": "cpu"},
    sweep={"x": tune.grid_search(list(range(100)))},
    objective="loss",
    mode="min",
)
