"""The way that Ray documents: a Tune trial is a function that starts a Ray Train run. Prints JSON.

Usage: python documented_pattern.py TRIALS REPORTS. `first_report_at` is in seconds since the epoch (Unix), as the
driver hears of it.
"""

import json
import sys
import tempfile
import time

import ray
from ray import train, tune
from ray.train.torch import TorchTrainer
from ray.tune.integration.ray_train import TuneReportCallback


def worker(config: dict) -> None:
    for number in range(config["reports"]):
        train.report({"loss": config["x"] / (number + 1)})


def trial(config: dict) -> None:
    TorchTrainer(
        worker,
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


def main(trials: int, reports: int) -> None:
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    first = FirstReport()
    with tempfile.TemporaryDirectory() as storage:
        space = {"x": tune.grid_search(list(range(trials))), "reports": reports, "storage": storage}
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
    main(int(sys.argv[1]), int(sys.argv[2]))
