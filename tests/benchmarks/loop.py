"""Samples per second in the steady state: a loop through `Run` against the same loop written by hand.

A goes through `run.loader`, `run.autocast` and `run.step`; B is plain PyTorch with whole batches by index. Same
model, data, order of rows and threads. They take turns in one process; the median of the turns' ratios counts.

Usage: python tests/benchmarks/loop.py [THREADS]. About a minute on 2 quiet cores.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from orchestrator.channel import Channel, Decision
from orchestrator.devices import DeviceShape
from orchestrator.frameworks import TrialSettings, WorkerFacts
from orchestrator.frameworks.torch import Torch
from orchestrator.precision import Precision
from orchestrator.run_context import Run
from orchestrator.trial import Lease, Placement, Rules, Trial

TURNS = 10
THREADS = int(sys.argv[1]) if len(sys.argv) > 1 else os.cpu_count() or 1


@dataclass(frozen=True, kw_only=True)
class Case:
    name: str
    make_model: Callable[[], nn.Module]
    data: tuple[torch.Tensor, torch.Tensor]
    batch_size: int
    epochs: int  # of one turn


class NoChannel(Channel):
    def report(self, number: int, epoch: int, metrics: Mapping[str, float], checkpoint: str | None) -> Decision:
        return Decision()

    def follow(self, number: int) -> Decision:
        return Decision()

    def boundary(self, epoch: int, stopped: bool) -> bool:
        return stopped

    def log(self, values: list[tuple[str, float, int, float]]) -> None:
        pass


def cases() -> list[Case]:
    images, labels = load_digits(return_X_y=True)
    digits = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    generator = torch.Generator().manual_seed(0)
    wide = torch.randn(1280, 1024, generator=generator), torch.randint(0, 10, (1280,), generator=generator)
    return [
        Case(name="digits MLP, batch 64", make_model=small, data=digits, batch_size=64, epochs=40),
        Case(name="4 x 1024 MLP, batch 256", make_model=large, data=wide, batch_size=256, epochs=2),
    ]


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))


def large() -> nn.Module:
    layers = [layer for _ in range(4) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(1024, 10))


def by_hand(case: Case) -> float:
    """Seconds of a turn, without what comes before the first step."""
    torch.manual_seed(0)
    model = case.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    inputs, targets = case.data
    steps, size = len(inputs) // case.batch_size, case.batch_size
    began = time.perf_counter()
    for epoch in range(case.epochs):
        order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(epoch))
        for step in range(steps):
            rows = order[step * size : (step + 1) * size]
            loss = functional.cross_entropy(model(inputs[rows]), targets[rows])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return time.perf_counter() - began


def through_run(case: Case, framework: Torch) -> float:
    """The same through a `Run`."""
    shape = DeviceShape(device="cpu", model=None, devices=1, workers=1, cpus_per_worker=THREADS, framework="torch")
    placement = Placement(shape=shape, precision="fp32")
    config = {"precision": "fp32", "batch_size": case.batch_size, "epochs": case.epochs, "seed": 0}
    with tempfile.TemporaryDirectory() as folder:
        lease = Lease(
            trial=Trial(id="t", config=config, placements=(placement,)),
            placement=placement,
            rules=Rules(objective="loss", mode="min"),
            attempt=1,
            index=0,
            directory=folder,
        )
        session = framework.session(TrialSettings(precision=Precision.FP32, batch_size=case.batch_size, seed=0))
        run = Run(session, NoChannel(), lease, WorkerFacts(device_type="cpu", cpus=THREADS))
        model = case.make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        model, optimizer = run.prepare(model, optimizer)
        batches = run.loader(case.data)
        began = time.perf_counter()
        for _ in run.epochs():
            for inputs, targets in batches:
                with run.autocast():
                    loss = functional.cross_entropy(model(inputs), targets)
                run.step(loss, optimizer)
        seconds = time.perf_counter() - began
        session.close()
    return seconds


def main() -> None:
    framework = Torch()
    framework.start(WorkerFacts(device_type="cpu", cpus=THREADS))
    for case in cases():
        by_hand(case)
        through_run(case, framework)  # both are warm
        a, b = [], []
        for turn in range(TURNS):
            if turn % 2:
                a.append(through_run(case, framework))
            b.append(by_hand(case))
            if not turn % 2:
                a.append(through_run(case, framework))
        samples = len(case.data[0]) // case.batch_size * case.batch_size * case.epochs
        ours, plain = (samples / statistics.median(seconds) for seconds in (a, b))
        ratio = statistics.median(by / through for through, by in zip(a, b, strict=True))
        print(f"{case.name:24}  A Run {ours:10,.0f}  B by hand {plain:10,.0f} samples/s  A/B = {ratio:.3f}")


if __name__ == "__main__":
    main()
