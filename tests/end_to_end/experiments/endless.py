"""Goes on until it is stopped, with processes of all kinds below it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from ray import tune
from torch.utils.data import Dataset

from orchestrator import Experiment, Run

CHILD = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {!r}]); time.sleep(600)"
GRANDCHILD = "import time; time.sleep(600)"


class Rows(Dataset):
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> int:
        return index


def train(run: Run) -> None:
    subprocess.Popen([sys.executable, "-c", CHILD.format(GRANDCHILD)])
    batches = iter(run.loader(Rows(), train=False, num_workers=1))
    next(batches)
    if run.config["hears_nothing"]:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
        run.report(score=0.0)
    (Path(run.config["scratch"]) / f"trains-{os.getpid()}").touch()
    while True:
        time.sleep(600 if run.config["hears_nothing"] else 0.1)
        run.report(score=1.0)


experiment = Experiment(
    name="endless",
    train=train,
    config={"epochs": 10**6, "scratch": "", "hears_nothing": False},
    sweep={"x": tune.grid_search([1, 2, 3])},
    objective="score",
)
