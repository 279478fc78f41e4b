"""A multilayer perceptron on handwritten digits: which precision and batch size, on which device?"""

import torch
from ray import tune
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from orchestrator import Experiment, Run


def digits() -> tuple[TensorDataset, TensorDataset]:
    """1,500 images of 8 x 8 pixels to train on and 297 to validate with."""
    from sklearn.datasets import load_digits  # here, since only workers need it and it takes seconds

    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    inputs = torch.tensor(images / 16, dtype=torch.float32)[order]
    targets = torch.tensor(labels)[order]
    return TensorDataset(inputs[:1500], targets[:1500]), TensorDataset(inputs[1500:], targets[1500:])


def train(run: Run) -> None:
    train_set, validation_set = digits()
    model = nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(),
        nn.Linear(128, 64), nn.ReLU(),
        nn.Linear(64, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=run.config["lr"], momentum=0.9)
    model, optimizer = run.prepare(model, optimizer)

    for _ in run.epochs():
        model.train()
        for inputs, targets in run.loader(train_set):
            with run.autocast():
                loss = functional.cross_entropy(model(inputs), targets)
            run.step(loss, optimizer)

        model.eval()
        correct = rows = 0
        with torch.no_grad(), run.autocast():
            for inputs, targets in run.loader(validation_set, train=False):
                correct += (model(inputs).argmax(dim=1) == targets).sum().item()
                rows += len(targets)
        run.report(
            val_accuracy=run.average(correct / rows, rows),
            train_loss=run.average(loss, run.local_batch_size),  # of the epoch's last batch
        )


experiment = Experiment(
    name="mlp",
    train=train,
    config={"device": "each", "epochs": 20, "lr": 0.1},
    sweep={
        "precision": tune.grid_search(["fp32", "bf16"]),
        "batch_size": tune.grid_search([32, 128]),
    },
    objective="val_accuracy",
    mode="max",
)
