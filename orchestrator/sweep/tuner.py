"""Ray Tune on top of the fleet: a light proxy for each trial that runs, the trial scheduler, the search."""

from __future__ import annotations

import math
import tempfile
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler

from orchestrator.results import TrialStatus
from orchestrator.sweep.search import OBJECTIVE, TRIAL, DeviceAware
from orchestrator.trial import Rules

_CALL_TIMEOUT_S = 120.0  # the queue answers within 10 s
_WORST = 1e300  # what the trial scheduler sees of NaN and infinity: percentiles of these stay finite
_NEVER = 10**9


class Proxy(tune.Trainable):
    """Stands for a trial in Tune: hands it to the queue on its first step, then passes its reports on."""

    def setup(self, config: dict[str, Any], queue: Any = None, rules: Rules | None = None) -> None:
        assert rules is not None
        self._queue, self._rules = queue, rules
        self._me = ray.get_runtime_context().get_actor_id()
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._trial, self._is_submitted = new_config[TRIAL], False
        return True

    def step(self) -> dict[str, Any]:
        if self._is_submitted:
            call = self._queue.next.remote(self._trial.id, True)
        else:
            self._is_submitted = True
            call = self._queue.submit_and_wait.remote(self._trial, self._me, None)
        while (progress := ray.get(call, timeout=_CALL_TIMEOUT_S)) is None:
            call = self._queue.next.remote(self._trial.id, False)
        value = progress.metrics.get(self._rules.objective)
        diverged = value is not None and not math.isfinite(value)
        if diverged:
            value = -_WORST if self._rules.mode == "max" else _WORST
        failed = progress.ended is not None and not progress.ended.did_its_job()
        result = {"epoch": progress.epoch, "done": progress.ended is not None, "diverged": diverged or failed}
        return result if value is None else {**result, OBJECTIVE: value}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"trial": self._trial.id}

    def load_checkpoint(self, checkpoint: Any) -> None:
        """The queue knows a trial's last checkpoint."""


class _TellQueue(tune.Callback):
    """A reused proxy never hears that its trial was stopped: the driver tells the queue."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        reason = "stopped by the trial scheduler"
        self._queue.stop.remote(trial.config[TRIAL].id, TrialStatus.PRUNED, reason)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        reason = "its proxy in Ray Tune failed"
        self._queue.stop.remote(trial.config[TRIAL].id, TrialStatus.FAILED, reason)


def trial_scheduler(name: str, mode: str) -> TrialScheduler:
    """Tune's trial scheduler of that name. All of them count epochs, never seconds."""
    if name == "asha":
        return ASHAScheduler(
            time_attr="epoch", metric=OBJECTIVE, mode=mode, max_t=_NEVER, grace_period=1, reduction_factor=4
        )
    return FIFOScheduler()


def run_tune(queue: Any, search: DeviceAware, rules: Rules, scheduler: str) -> None:
    """Run the sweep to its end; blocks. Tune's own state is not kept: the journal and the tracker have it all.

    Raises:
        RuntimeError: Tune itself failed.
    """
    head = tune.PlacementGroupFactory([{"CPU": 0, "node:__internal_head__": 0.001}])
    trainable = tune.with_resources(tune.with_parameters(Proxy, queue=queue, rules=rules), head)
    with tempfile.TemporaryDirectory(prefix="tune-") as scratch:
        tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(
                search_alg=search,
                scheduler=trial_scheduler(scheduler, rules.mode),
                num_samples=-1,
                max_concurrent_trials=None,
                reuse_actors=True,
                trial_name_creator=lambda trial: trial.config[TRIAL].id,
                trial_dirname_creator=lambda trial: trial.config[TRIAL].id,
            ),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=scratch,
                verbose=0,
                callbacks=[_TellQueue(queue)],
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                failure_config=tune.FailureConfig(max_failures=0),
            ),
        ).fit()
