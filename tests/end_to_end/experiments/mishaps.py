"""Trials that go wrong in every way, and some that do not. Each does what its setting `what` says."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import neighbour
import torch
from ray import tune
from torch.utils.data import DataLoader, Dataset

from orchestrator import Experiment, Run


class Rows(Dataset):
    """Rows that name the process that read them."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return os.getpid()


def train(run: Run) -> None:
    print("trial", run.config["what"], "in process", os.getpid())
    globals()[run.config["what"]](run)


def good(run: Run) -> None:
    run.report(score=0.5)


def raises(run: Run) -> None:
    run.report(score=0.9)
    raise ValueError("the user's own fault")


def dies(run: Run) -> None:
    os._exit(7)


def dies_once(run: Run) -> None:
    mark = Path(run.config["scratch"]) / "died"
    if not mark.exists():
        mark.touch()
        os._exit(7)
    run.report(score=0.4)


def exits(run: Run) -> None:
    sys.exit(3)


def is_nan(run: Run) -> None:
    run.report(score=0.3)
    run.report(score=float("nan"))


def is_infinite(run: Run) -> None:
    run.report(score=float("inf"))


def reports_something_else(run: Run) -> None:
    run.report(accuracy=1.0)


def reports_a_text(run: Run) -> None:
    run.report(score="high")


def prints(run: Run) -> None:
    print("Größe: 3 µm \N{SNOWMAN} \ud800")
    print("to the error stream", file=sys.stderr)
    os.write(1, b"\xff\xfe raw bytes\n")
    subprocess.run(["echo", "from a child process"], check=True)
    run.report(score=0.5)


def starts_processes(run: Run) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print("child", child.pid)
    threading.Thread(target=lambda: None).start()
    run.report(score=0.5)


def changes_its_process(run: Run) -> None:
    os.environ["LEFT_BY_A_TRIAL"] = "1"
    os.chdir("/")
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(7)
    run.report(score=0.5)


def looks_at_its_process(run: Run) -> None:
    """Runs after the one above, in the same process or in a fresh one: both must look alike."""
    print("directory", Path.cwd())
    print("left", os.environ.get("LEFT_BY_A_TRIAL"), torch.get_default_dtype())
    print("threads", torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS"))
    print("read", Path("neighbour.txt").read_text().strip(), neighbour.NAME)
    run.report(score=0.5)


def loads_in_processes(run: Run) -> None:
    loaders = {
        "ours": run.loader(Rows(), train=False, num_workers=2),
        "torch's own": DataLoader(Rows(), batch_size=2, num_workers=2, multiprocessing_context="spawn"),
    }
    for name, loader in loaders.items():
        pids = sorted({int(pid) for batch in loader for pid in batch})
        assert os.getpid() not in pids
        print(f"loaders, {name}:", *pids)
    run.report(score=0.5)


experiment = Experiment(
    name="mishaps",
    train=train,
    config={"batch_size": 4, "scratch": ""},
    sweep={
        "what": tune.grid_search(
            [
                "good", "raises", "exits", "is_nan", "is_infinite", "reports_something_else", "reports_a_text",
                "prints", "starts_processes", "loads_in_processes", "changes_its_process",
                "looks_at_its_process", "dies", "dies_once",
            ]
        ),
        "nobody_reads_this": tune.grid_search([1]),
    },
    objective="score",
)  # fmt: skip
