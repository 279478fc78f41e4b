"""Learns a little from random numbers: equal settings must give equal numbers."""

import random

import numpy
import torch
from ray import tune
from torch import nn
from torch.utils.data import TensorDataset

from orchestrator import Experiment, Run


def train(run: Run) -> None:
    inputs = torch.randn(64, 4)
    model = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=run.config["lr"])
    model, optimizer = run.prepare(model, optimizer)
    dataset = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    for _ in run.epochs():
        total = 0.0
        for batch, targets in run.loader(dataset):
            loss = (model(batch) - targets).square().mean()
            run.step(loss, optimizer)
            total += loss.item()
        run.report(loss=total, numpy=numpy.random.rand(), python=random.random(), width=run.config["width"])


experiment = Experiment(
    name="noise",
    train=train,
    config={"epochs": 3, "batch_size": 16},
    sweep={"lr": tune.loguniform(1e-4, 1e-1), "width": tune.randint(1, 1000)},
    objective="loss",
    mode="min",
)
