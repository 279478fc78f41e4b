"""One trial on one worker, from a clean process back to a clean process."""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from orchestrator.channel import Channel, Decision
from orchestrator.devices import DEVICE_TYPES, DeviceShape
from orchestrator.errors import StopTrial
from orchestrator.fleet.process_state import ProcessState
from orchestrator.fleet.trial_log import captured, log_name
from orchestrator.frameworks import Framework, Session, TrialSettings, WorkerFacts
from orchestrator.loader import LoadedExperiment
from orchestrator.precision import Precision
from orchestrator.results import Ended, TrialStatus, jsonable
from orchestrator.run_context import Run
from orchestrator.trial import Lease
from orchestrator.user_code import describe_error

UNCLEAN = "process.unclean"
"""The fact that says why a process should take no further trial: something could not be put back."""


def run_trial(
    lease: Lease,
    channel: Channel,
    framework: Framework,
    worker: WorkerFacts,
    loaded: LoadedExperiment,
    *,
    log: Callable[[Path], AbstractContextManager[None]] = captured,
) -> Ended:
    """Train, and turn whatever happens into the trial's end on this worker; raises nothing.

    A trial that was told to stop ends as pruned: the fleet knows what it was stopped with. The trial's folder
    gets `config.json` and what `log` makes of the output.
    """
    began = time.perf_counter()
    directory = Path(lease.directory).absolute()
    attempt = _Attempt(lease, channel, framework, worker, loaded)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if worker.rank == 0:
            settings = json.dumps(jsonable(lease.trial.config), indent=2)
            (directory / "config.json").write_text(settings + "\n", encoding="utf-8")
        with log(directory / log_name(worker.rank)):
            attempt.make()
    except OSError as error:
        attempt.fail(f"the folder of the trial cannot be used: {error}")
    attempt.measured["perf/wall_time_s"] = time.perf_counter() - began
    return attempt.end()


def process_facts(framework: Framework, shape: DeviceShape) -> dict[str, str]:
    """Tags of a worker's process: device, framework, versions, host."""
    return {
        "framework": framework.name,
        **framework.facts(),
        "python.version": platform.python_version(),
        "hosts": socket.gethostname(),
        "device.type": shape.device,
        "device.model": DEVICE_TYPES[shape.device].local_model() or "unknown",
        "device.count": str(max(shape.devices, shape.workers)),
    }


class _Attempt:
    """What becomes of one attempt, gathered while it is made."""

    def __init__(
        self,
        lease: Lease,
        channel: Channel,
        framework: Framework,
        worker: WorkerFacts,
        loaded: LoadedExperiment,
    ) -> None:
        self._lease, self._framework, self._worker, self._loaded = lease, framework, worker, loaded
        self._line = _Line(channel)
        self._status, self._error = TrialStatus.FINISHED, ""
        self._checkpoint: str | None = None
        self._unread: tuple[str, ...] = ()
        self._tracebacks: list[str] = []
        self._unclean: list[str] = []
        self._facts: dict[str, str] = {}
        self.measured: dict[str, float] = {}

    def make(self) -> None:
        """Train in the experiment's folder, and leave the process as it was found."""
        state = ProcessState.capture()
        try:
            os.chdir(self._loaded.file.parent)
            self._with_session()
        finally:
            self._unclean += state.restore()
            for line in (*self._tracebacks, *(f"warning: {fault}" for fault in self._unclean)):
                print(line, file=sys.stderr)

    def _with_session(self) -> None:
        config = self._lease.trial.config
        settings = TrialSettings(
            precision=Precision(self._lease.placement.precision),
            batch_size=config["batch_size"],
            seed=config["seed"],
        )
        try:
            session = self._framework.session(settings)
        except Exception as error:  # noqa: BLE001 - a device may fail in any way; it becomes the trial's end
            self._judge(error)
            return
        try:
            self._train(session)
        except Exception as error:  # noqa: BLE001 - as above: a fault on the device may show only after `train`
            self._judge(error)
        try:
            session.close()
        except Exception as error:  # noqa: BLE001 - as above
            self._unclean.append(f"the device could not be cleared: {error}")

    def _train(self, session: Session) -> None:
        run = Run(session, self._line, self._lease, self._worker)
        try:
            self._loaded.experiment.train(run)
        except BaseException as error:  # noqa: BLE001 - whatever the user's code raises ends its trial alone
            self._judge(error)
        self._checkpoint = run.best_checkpoint or run.last_checkpoint
        self._unread = run.unread()
        if run.diverged_at is not None:
            self._facts["diverged_at"] = str(run.diverged_at)
        run.flush()
        self._facts |= session.facts()
        self.measured |= session.measured()
        if self._status is TrialStatus.FINISHED:
            self._judge_reports()

    def _judge(self, error: BaseException) -> None:
        """The trial's state after an exception; of several the first counts."""
        if not isinstance(error, StopTrial):
            self._tracebacks.append("".join(traceback.format_exception(error)))
        if self._status is not TrialStatus.FINISHED:
            return
        folder = self._loaded.file.parent
        if isinstance(error, StopTrial):
            self._status = TrialStatus.PRUNED
        elif isinstance(error, KeyboardInterrupt):
            self._status, self._error = TrialStatus.CANCELLED, "interrupted"
        elif self._framework.is_out_of_memory(error):
            self._status, self._error = TrialStatus.DOES_NOT_FIT, describe_error(error, folder)
        elif isinstance(error, SystemExit):
            self.fail(f"{describe_error(error, folder)}: train ended the process; it should return")
        else:
            self.fail(describe_error(error, folder))

    def _judge_reports(self) -> None:
        """The trial's state where `train` returned."""
        objective = self._lease.rules.objective
        was_done = self._lease.checkpoint is not None and not self._line.reported  # by the attempt before
        if self._line.told_to_stop:
            self._status = TrialStatus.PRUNED
        elif self._worker.rank == 0 and objective not in self._line.reported and not was_done:
            names = ", ".join(sorted(self._line.reported)) or "nothing"
            self.fail(f"train never reported '{objective}' (reported: {names})")

    def fail(self, error: str) -> None:
        self._status, self._error = TrialStatus.FAILED, error

    def end(self) -> Ended:
        lease, shape = self._lease, self._lease.placement.shape
        facts = {
            **process_facts(self._framework, shape),
            "config.hash": lease.trial.hash,
            "precision.requested": lease.placement.converted_from or lease.placement.precision,
            "batch.global": str(lease.trial.config["batch_size"]),
            "batch.per_worker": str(lease.trial.config["batch_size"] // self._worker.workers),
            "workers": str(self._worker.workers),
            "seed": str(lease.trial.config["seed"]),
            "group.trial_index": str(lease.index),
            **self._facts,
        }
        if self._unclean:
            facts[UNCLEAN] = "; ".join(self._unclean)
        return Ended(
            trial_id=lease.trial.id,
            attempt=lease.attempt,
            time=time.time(),
            status=self._status,
            error=self._error or None,
            checkpoint=self._checkpoint,
            facts=facts,
            measured=self.measured,
            unread=self._unread,
        )


class _Line(Channel):
    """The worker's line to the fleet; remembers what was reported and whether the trial was told to stop."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.reported: set[str] = set()
        self.told_to_stop = False

    def report(self, number: int, epoch: int, metrics: Mapping[str, float], checkpoint: str | None) -> Decision:
        self.reported |= metrics.keys()
        return self._note(self._channel.report(number, epoch, metrics, checkpoint))

    def follow(self, number: int) -> Decision:
        return self._note(self._channel.follow(number))

    def boundary(self, epoch: int, stopped: bool) -> bool:
        ends = self._channel.boundary(epoch, stopped)
        self.told_to_stop |= ends
        return ends

    def log(self, values: list[tuple[str, float, int, float]]) -> None:
        self._channel.log(values)

    def _note(self, decision: Decision) -> Decision:
        self.told_to_stop |= decision.stop
        return decision
