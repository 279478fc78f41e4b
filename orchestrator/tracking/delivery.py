"""Brings entries to the store: a thread merges what belongs to a run, sends it in batches, and tries again."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

from orchestrator.masking import mask, mask_uri
from orchestrator.tracking.entries import Entries
from orchestrator.tracking.exchange import (
    SWEEP,
    Answer,
    Destination,
    Outcome,
    ProcessLost,
    Request,
    RunRef,
)
from orchestrator.tracking.mlflow_process import StoreProcess
from orchestrator.tracking.undelivered import Undelivered

_INTERVAL_S = 0.5
_LONGEST_PAUSE_S = 30.0  # between two tries while the store is away
_LONGEST_PAUSE_AT_END_S = 1.0
_RUNS_A_REQUEST = 50
_REQUEST_TIMEOUT_S = 180.0

_logger = logging.getLogger(__name__)


class Delivery:
    """Holds what is not delivered yet in memory; while the store is away it is merged and sent later."""

    def __init__(self, destination: Destination, undelivered: Undelivered) -> None:
        self.experiment_id: str | None = None
        self._destination, self._undelivered = destination, undelivered
        self._lock = threading.Lock()
        self._runs: dict[str, RunRef] = {}
        self._pending: dict[str, Entries] = {}
        self._in_flight: dict[str, Entries] = {}
        self._wake = threading.Event()
        self._sweep_is_open = threading.Event()
        self._is_closing = self._is_given_up = False
        self._last_progress = time.monotonic()
        self._pause_s = _INTERVAL_S
        self._away: str | None = None
        self._has_refused = False
        self._thread = threading.Thread(target=self._deliver, name="tracking", daemon=True)
        self._thread.start()

    def add(self, key: str, name: str) -> None:
        """A run that is to be created; its time of start is now."""
        with self._lock:
            self._runs[key] = RunRef(key=key, name=name, start_ms=int(time.time() * 1000))
            self._pending[key] = Entries()

    @contextlib.contextmanager
    def entries(self, key: str) -> Iterator[Entries]:
        """The run's entries, to add to."""
        with self._lock:
            yield self._pending.setdefault(key, Entries())

    def run_id(self, key: str) -> str | None:
        run = self._runs.get(key)
        return run.run_id if run else None

    def wait_for_sweep(self, timeout_s: float) -> None:
        """Until the sweep's own run is there, at most so long."""
        self._sweep_is_open.wait(timeout_s)

    def close(self, stall_s: float, limit_s: float) -> None:
        """Deliver what is left: at most `limit_s`, and no longer than `stall_s` without any progress. What
        does not arrive is kept in a file."""
        end = time.monotonic() + limit_s
        self._last_progress = time.monotonic()
        self._is_closing = True
        self._wake.set()
        try:
            while self._thread.is_alive() and time.monotonic() < min(end, self._last_progress + stall_s):
                self._thread.join(0.1)
        finally:
            self._is_given_up = True
            self._wake.set()
            self._sweep_is_open.set()
            self._keep_the_rest()

    def _keep_the_rest(self) -> None:
        with self._lock:
            rest = [
                (key, self._in_flight.get(key, Entries()).then(self._pending.get(key, Entries())))
                for key in dict.fromkeys([*self._in_flight, *self._pending])
            ]
            self._pending.clear()
        rest = [(key, entries) for key, entries in rest if entries or self.run_id(key) is None]
        for key, entries in rest:
            self._keep(key, entries, self._away or "no answer in time")
        if rest:
            _logger.warning(
                "%d runs could not be delivered in full to MLflow at %s (%s); what is missing is in %s",
                len(rest), self._shown_uri(), self._away or "no answer in time", self._undelivered.path,
            )  # fmt: skip

    # --- the thread ------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        process = StoreProcess(self._destination)
        try:
            while not self._is_given_up:
                batch = self._take()
                if batch:
                    self._settle(batch, self._ask(process, batch))
                elif self._is_closing:
                    break
                if not self._is_closing or self._away:
                    self._wake.wait(
                        min(self._pause_s, _LONGEST_PAUSE_AT_END_S) if self._is_closing else self._pause_s
                    )
                    self._wake.clear()
        finally:
            process.close()

    def _take(self) -> list[RunRef]:
        """The next runs to write, in flight from now on; the sweep's own run first, alone until it is there."""
        with self._lock:
            keys = [SWEEP] if SWEEP in self._pending else []
            if self.run_id(SWEEP) is not None:
                keys += [key for key in self._pending if key != SWEEP][: _RUNS_A_REQUEST - len(keys)]
            self._in_flight = {key: self._pending.pop(key) for key in keys}
            return [self._runs[key] for key in keys]

    def _ask(self, process: StoreProcess, batch: list[RunRef]) -> Answer:
        writes = [(run, self._in_flight[run.key]) for run in batch]
        request = Request(parent_run_id=self.run_id(SWEEP), writes=writes)
        try:
            return process.ask(request, _REQUEST_TIMEOUT_S)
        except ProcessLost as lost:
            outcomes = [Outcome(run=replace(run, was_tried=True), left=entries) for run, entries in writes]
            return Answer(experiment_id=self.experiment_id, outcomes=outcomes, away=str(lost))

    def _settle(self, batch: list[RunRef], answer: Answer) -> None:
        """Note what was delivered, and put the rest back: what failed last, so that it holds up nothing else."""
        self.experiment_id = answer.experiment_id or self.experiment_id
        outcomes = {outcome.run.key: outcome for outcome in answer.outcomes}
        with self._lock:
            for run in batch:
                outcome = outcomes.get(run.key)
                left = self._in_flight[run.key] if outcome is None else outcome.left
                if outcome is not None:
                    self._runs[run.key] = outcome.run
                if left or self.run_id(run.key) is None:
                    self._pending[run.key] = left.then(self._pending.pop(run.key, Entries()))
            self._in_flight = {}
        for outcome in answer.outcomes:
            for refusal in outcome.refusals:
                self._refused(outcome.run.key, refusal.entries, refusal.reason)
        if self.run_id(SWEEP) is not None:
            self._sweep_is_open.set()
        self._note_whether_away(answer)

    def _note_whether_away(self, answer: Answer) -> None:
        progressed = answer.away is None or len(answer.outcomes) > 1
        if progressed:
            self._last_progress, self._pause_s = time.monotonic(), _INTERVAL_S
        else:
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        if answer.away is not None and self._away is None:
            _logger.warning(
                "MLflow at %s does not take what is logged (%s); it is kept and sent later",
                self._shown_uri(), mask(answer.away),
            )  # fmt: skip
        elif answer.away is None and self._away is not None:
            _logger.warning("MLflow at %s takes what is logged again", self._shown_uri())
        self._away = answer.away

    def _refused(self, key: str, entries: Entries, reason: str) -> None:
        if not self._has_refused:
            _logger.warning(
                "MLflow refused a part of run %s (%s); this and any other such part is in %s",
                self._runs[key].name, mask(reason), self._undelivered.path,
            )  # fmt: skip
            self._has_refused = True
        self._keep(key, entries, reason)

    def _keep(self, key: str, entries: Entries, reason: str) -> None:
        try:
            self._undelivered.keep(self._runs[key].name, self.run_id(key), entries, reason)
        except OSError as error:
            _logger.error(
                "what MLflow did not take cannot be kept in %s either: %s", self._undelivered.path, error
            )

    def _shown_uri(self) -> str:
        return mask_uri(self._destination.tracking_uri)
