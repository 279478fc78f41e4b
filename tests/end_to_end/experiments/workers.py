"""Trains data-parallel, with rows that divide by nothing."""

import torch
from ray import tune
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from orchestrator import Experiment, Run


def rows(count: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 8, generator=generator)
    return TensorDataset(inputs, inputs.sum(dim=1, keepdim=True).sin(), torch.arange(count))


def train(run: Run) -> None:
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer = run.prepare(model, optimizer)
    for _ in run.epochs():
        for inputs, targets, _ in run.loader(rows(75, 1)):
            assert len(inputs) == run.local_batch_size
            loss = functional.mse_loss(model(inputs), targets)
            run.step(loss, optimizer)
        seen: list[int] = []
        total = 0.0
        with torch.no_grad():
            for inputs, targets, numbers in run.loader(rows(23, 2), train=False):
                total += functional.mse_loss(model(inputs), targets, reduction="sum").item()
                seen += numbers.tolist()
        print("validated", *seen)
        run.report(val_loss=run.average(total / len(seen), len(seen)))


experiment = Experiment(
    name="workers",
    train=train,
    config={"epochs": 4, "batch_size": 8},
    sweep={"workers": tune.grid_search([1, 2])},
    objective="val_loss",
    mode="min",
)
