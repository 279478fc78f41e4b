"""Two processes train as one would."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed
from torch.nn import functional
from torch_trial import TorchTrial

EPOCHS = 4
ROWS, VALIDATION_ROWS = 83, 33


def data(rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    inputs = torch.randn(rows, 8, generator=generator)
    return inputs, inputs[:, :3].argmax(dim=1), torch.arange(rows)


def train(trial: TorchTrial) -> dict[str, Any]:
    run = trial.run
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 3))
    if run.config["model"] == "plain":
        del model[1]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer = run.prepare(model, optimizer)
    found: dict[str, Any] = {"losses": [], "validation": [], "seen": []}
    for _ in run.epochs():
        model.train()
        for inputs, targets, _ in run.loader(data(ROWS)):
            loss = functional.cross_entropy(model(inputs), targets)
            mean = run.average(loss, len(targets))
            run.step(loss, optimizer, clip_norm=1.0)
            found["losses"].append(mean)
        model.eval()
        total, rows = torch.zeros(()), 0
        found["seen"] = []
        for inputs, targets, numbers in run.loader(data(VALIDATION_ROWS), train=False):  # with gradients, too
            total = total + functional.cross_entropy(model(inputs), targets, reduction="sum").detach()
            rows += len(targets)
            found["seen"] += numbers.tolist()
        found["validation"].append(run.average(total / rows, rows))
        run.report(loss=found["validation"][-1])
    found["none on rank 1"] = run.average(3.0, 0 if run.rank else 2)
    found["none at all"] = str(run.average(0.0, 0))
    found["facts"] = trial.session.facts()
    found["checkpoint"] = run.last_checkpoint
    return found


def main(rank: int, workers: int, port: int, folder: str, model: str) -> None:
    torch.set_num_threads(1)
    if workers > 1:
        distributed.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=workers
        )
    trial = TorchTrial(
        Path(folder) / f"of-{workers}",
        {"epochs": EPOCHS, "batch_size": 8, "model": model},
        rank=rank,
        workers=workers,
    )
    found = train(trial)
    trial.close()
    if workers > 1:
        distributed.destroy_process_group()
    Path(folder, f"{workers}-{rank}.json").write_text(json.dumps(found))


def run_workers(workers: int, folder: Path, model: str) -> list[dict[str, Any]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, __file__]
    path = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(workers), str(port), str(folder), model],
            env={"PYTHONPATH": ":".join(path), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        )
        for rank in range(workers)
    ]
    try:
        assert [process.wait(120) for process in processes] == [0] * workers
    finally:
        for process in processes:
            process.kill()
            process.wait(10)
    return [json.loads((folder / f"{workers}-{rank}.json").read_text()) for rank in range(workers)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("workers")
    (alone,) = run_workers(1, folder, "plain")
    return alone, run_workers(2, folder, "plain")


def test_two_workers_have_the_loss_curve_of_one(trained):
    alone, together = trained
    assert len(alone["losses"]) == EPOCHS * (ROWS // 8)
    for worker in together:
        assert worker["losses"] == pytest.approx(alone["losses"], rel=1e-4)


def test_validation_counts_every_row_once(trained):
    alone, together = trained
    assert sorted(together[0]["seen"] + together[1]["seen"]) == list(range(VALIDATION_ROWS))
    for worker in together:
        assert worker["validation"] == pytest.approx(alone["validation"], rel=1e-4)


def test_a_worker_without_rows_counts_for_nothing_in_an_average(trained):
    _, together = trained
    assert [worker["none on rank 1"] for worker in together] == [3.0, 3.0]
    assert [worker["none at all"] for worker in together] == ["nan", "nan"]


def test_both_know_the_rows_of_the_whole(trained):
    alone, together = trained
    names = ("rows.train", "rows.dropped", "steps_per_epoch", "rows.validation")
    for worker in together:
        assert [worker["facts"][name] for name in names] == [alone["facts"][name] for name in names]


def test_rank_0_saves_what_one_worker_can_go_on_with(trained, begin):
    _, together = trained
    assert together[1]["checkpoint"] is None
    trial = begin({"epochs": EPOCHS + 1, "model": "plain"}, checkpoint=together[0]["checkpoint"])
    assert len(train(trial)["losses"]) == ROWS // 8


def test_odd_rows_do_not_make_layers_that_talk_wait_for_ever(tmp_path):
    """Batch normalization is kept equal over the workers in every pass of a model that tracks gradients."""
    first, second = run_workers(2, tmp_path, "batch norm")
    assert first["validation"] == second["validation"]


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5])
