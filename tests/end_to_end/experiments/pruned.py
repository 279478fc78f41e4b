"""Trials whose last score shows from the first epoch on."""

from ray import tune

from orchestrator import Experiment, Run


def train(run: Run) -> None:
    for epoch in run.epochs():
        run.report(score=run.config["x"] + epoch / 100)


experiment = Experiment(
    name="pruned",
    train=train,
    config={"epochs": 16},
    sweep={"x": tune.grid_search(list(reversed(range(30))))},
    objective="score",
)
