"""Ray Tune alone at its best for short trials: a class trainable whose processes are used again. Prints JSON.

Usage: python tune_alone.py TRIALS REPORTS. `ends` are the times at which trials ended, in seconds since the epoch.
"""

import json
import sys
import tempfile
import time

import ray
from ray import tune


class Noop(tune.Trainable):
    def setup(self, config: dict) -> None:
        self.number = 0

    def step(self) -> dict:
        self.number += 1
        return {"loss": self.config["x"] / self.number, "done": self.number == self.config["reports"]}

    def reset_config(self, new_config: dict) -> bool:
        self.number = 0
        return True

    def save_checkpoint(self, checkpoint_dir: str) -> dict:
        return {}


class Ends(tune.Callback):
    def __init__(self) -> None:
        self.times: list[float] = []

    def on_trial_complete(self, iteration, trials, trial, **info) -> None:  # type: ignore[no-untyped-def]
        self.times.append(time.time())


def main(trials: int, reports: int) -> None:
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    ends = Ends()
    with tempfile.TemporaryDirectory() as storage:
        tune.Tuner(
            Noop,
            param_space={"x": tune.grid_search(list(range(trials))), "reports": reports},
            tune_config=tune.TuneConfig(max_concurrent_trials=1, reuse_actors=True),
            run_config=tune.RunConfig(name="alone", storage_path=storage, verbose=0, callbacks=[ends]),
        ).fit()
    ray.shutdown()
    print(json.dumps({"ends": ends.times}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
