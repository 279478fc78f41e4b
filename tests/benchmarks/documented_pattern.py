"""The way that Ray documents: a Tune trial is a function that starts a Ray Train run. Prints JSON.

Usage: python documented_pattern.py TRIALS REPORTS [mlp]. With `mlp` a trial trains an epoch of the model of
experiments/mlp.py before each report, by hand; else it does nothing. `first_report_at` is in seconds since the
epoch (Unix), as the driver hears of it.
"""

import json
import sys
import tempfile
import time

import ray
import torch
from ray import train, tune
from ray.train.torch import TorchTrainer
from ray.tune.integration.ray_train import TuneReportCallback
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional


def noop(config: dict) -> None:
    for number in range(config["reports"]):
        train.report({"loss": config["x"] / (number + 1)})


def mlp(config: dict) -> None:
    images, labels = load_digits(return_X_y=True)
    inputs, targets = torch.tensor(images[:1500] / 16, dtype=torch.float32), torch.tensor(labels[:1500])
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    model = ray.train.torch.prepare_model(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(config["reports"]):
        for rows in torch.randperm(1500)[:1472].split(32):
            loss = functional.cross_entropy(model(inputs[rows]), targets[rows])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        train.report({"loss": loss.item()})


def trial(config: dict) -> None:
    TorchTrainer(
        mlp if config["mlp"] else noop,
        train_loop_config=config,
        scaling_config=train.ScalingConfig(num_workers=1),
        run_config=train.RunConfig(
            name=f"trial-{config['x']}",
            storage_path=config["storage"],
            callbacks=[TuneReportCallback()],
        ),
    ).fit()


class FirstReport(tune.Callback):
    def __init__(self) -> None:
        self.at: float | None = None

    def on_trial_result(self, iteration, trials, trial, result, **info) -> None:  # type: ignore[no-untyped-def]
        self.at = self.at or time.time()


def main(trials: int, reports: int, with_mlp: bool) -> None:
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    first = FirstReport()
    with tempfile.TemporaryDirectory() as storage:
        space = {
            "x": tune.grid_search(list(range(trials))),
            "reports": reports,
            "mlp": with_mlp,
            "storage": storage,
        }
        began = time.time()
        results = tune.Tuner(
            tune.with_resources(trial, {"CPU": 0.01}),
            param_space=space,
            tune_config=tune.TuneConfig(max_concurrent_trials=2),
            run_config=tune.RunConfig(name="pattern", storage_path=storage, verbose=0, callbacks=[first]),
        ).fit()
        took = time.time() - began
    ray.shutdown()
    print(
        json.dumps(
            {"trials": len(results), "errors": results.num_errors, "fit_s": took, "first_report_at": first.at}
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), "mlp" in sys.argv[3:])
