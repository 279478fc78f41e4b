"""Experiments that must not start; picked by name."""

from typing import Any

from ray import tune

from orchestrator import Experiment, Run


def train(run: Run) -> None:
    raise AssertionError("it has started")


def make(**fields: Any) -> Experiment:
    return Experiment(name="bad", train=train, objective="score", **fields)


fine = make(config={"lr": 0.1}, sweep={"x": tune.grid_search([1])})
large = make(sweep={name: tune.grid_search(list(range(25))) for name in "abc"})
function = make(config={"activation": lambda x: x})
with open(__file__) as file:
    open_file = make(config={"file": file})
