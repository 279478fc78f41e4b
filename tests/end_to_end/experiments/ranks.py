"""Two workers whose ranks report alike, or do not."""

import torch
from ray import tune

from orchestrator import Experiment, Run


def train(run: Run) -> None:
    if run.config["what"] == "one_raises" and run.rank == 1:
        raise RuntimeError("rank 1 has a fault of its own")
    for epoch in run.epochs():
        run.average(torch.tensor(1.0), 1)
        if run.config["what"] == "rank_0_reports" and run.rank:
            continue
        if run.config["what"] == "reports_differ" and run.rank == 0 and epoch == 1:
            continue
        run.report(loss=1.0 / (1 + epoch))
    if run.config["what"] == "one_stays" and run.rank == 1:
        torch.distributed.barrier()


experiment = Experiment(
    name="ranks",
    train=train,
    config={"epochs": 3, "workers": 2, "batch_size": 2},
    sweep={
        "what": tune.grid_search(["all_report", "rank_0_reports", "one_raises", "reports_differ", "one_stays"])
    },
    objective="loss",
    mode="min",
    sync_timeout_s=5.0,
)
