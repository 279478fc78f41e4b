"""Writes runs into an MLflow store, in few requests. Lives in a process of its own: see `mlflow_process`."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import filelock
import requests
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repo import ArtifactRepository
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

from orchestrator.results import TrialStatus
from orchestrator.tracking.address import sqlite_file
from orchestrator.tracking.batches import batches, count, halves
from orchestrator.tracking.entries import Entries, Upload
from orchestrator.tracking.exchange import SWEEP, Answer, Destination, Outcome, Refusal, Request, RunRef

_OPEN_TIMEOUT_S = 60.0
_MOST_TRIES = 3  # of one file

# What will be refused again next time. Anything else (busy, unreachable, not signed in) may pass.
_REFUSALS = {
    "INVALID_PARAMETER_VALUE",
    "MALFORMED_REQUEST",
    "BAD_REQUEST",
    "INVALID_STATE",
    "RESOURCE_DOES_NOT_EXIST",
    "RESOURCE_ALREADY_EXISTS",
}

_logger = logging.getLogger(__name__)


class MlflowStore:
    """One experiment of one tracking store, opened by the first request."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._client: MlflowClient | None = None
        self._experiment_id: str | None = None
        self._unended: dict[str, str] = {}

    def answer(self, request: Request) -> Answer:
        """Write as much as can be written; stops at the first run for which the store is away."""
        try:
            client, experiment_id = self._open()
        except Exception as error:
            _logger.debug("cannot open", exc_info=True)
            return Answer(experiment_id=None, away=str(error))
        outcomes: list[Outcome] = []
        parent = request.parent_run_id
        for run, entries in request.writes:
            outcome = _Writer(client, self._destination.tracking_uri, experiment_id, parent).write(run, entries)
            outcomes.append(outcome)
            if run.key == SWEEP:
                parent = outcome.run.run_id
            self._remember(outcome, ended=entries.end is not None)
            if outcome.away:
                break
        return Answer(experiment_id=experiment_id, outcomes=outcomes, away=outcomes[-1].away if outcomes else None)

    def abandon(self) -> None:
        """The driver is gone: no run that it left open may look as if it went on."""
        if self._client is None:
            return
        for run_id, key in self._unended.items():
            if key != SWEEP:
                self._client.set_tag(run_id, "trial.status", str(TrialStatus.CANCELLED))
            self._client.set_terminated(run_id, "KILLED")

    def _remember(self, outcome: Outcome, *, ended: bool) -> None:
        run = outcome.run
        if run.run_id is not None:
            self._unended[run.run_id] = run.key
            if ended and outcome.left.end is None:
                del self._unended[run.run_id]

    def _open(self) -> tuple[MlflowClient, str]:
        if self._client is None or self._experiment_id is None:
            with self._alone():
                self._client = MlflowClient(self._destination.tracking_uri)
                self._experiment_id = self._find_or_create_experiment(self._client)
        return self._client, self._experiment_id

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """MLflow's creation of a SQLite file is not safe when several commands start together."""
        file = sqlite_file(self._destination.tracking_uri)
        if file is None:
            yield
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(f"{file}-lock", timeout=_OPEN_TIMEOUT_S):
            yield

    def _find_or_create_experiment(self, client: MlflowClient) -> str:
        name = self._destination.experiment
        experiment = client.get_experiment_by_name(name)
        if experiment is None:
            try:
                return str(client.create_experiment(name, artifact_location=self._artifact_folder()))
            except MlflowException as error:  # another command was faster
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
                experiment = client.get_experiment_by_name(name)
        if experiment.lifecycle_stage == "deleted":
            client.restore_experiment(experiment.experiment_id)
        return str(experiment.experiment_id)

    def _artifact_folder(self) -> str | None:
        """Beside a SQLite file; a server has its own. MLflow's default counts from the current directory."""
        file = sqlite_file(self._destination.tracking_uri)
        if file is None:
            return None
        name = self._destination.experiment
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        return (file.parent / "mlartifacts" / f"{re.sub('[^A-Za-z0-9-]', '-', name)[:40]}-{digest}").as_uri()


class _Writer:
    """Writes the entries of runs under one parent."""

    def __init__(self, client: MlflowClient, uri: str, experiment_id: str, parent_run_id: str | None) -> None:
        self._client, self._uri, self._experiment_id = client, uri, experiment_id
        self._parent_run_id = parent_run_id
        self._refusals: list[Refusal] = []

    def write(self, run: RunRef, entries: Entries) -> Outcome:
        """Takes out of `entries` what was written or refused. The files come last: a slow or broken artifact
        store must not keep the run's numbers and its end from being seen."""
        away = None
        try:
            if run.run_id is None:
                run, entries = self._create(run, entries)
            assert run.run_id is not None
            for batch in batches(entries):
                self._log(run.run_id, batch)
            entries = replace(entries, params={}, tags={}, metrics=[])
            if entries.end is not None:
                self._end(run.run_id, entries)
            entries = replace(entries, end=None)
            entries = self._upload(run, entries)
        except Exception as error:
            _logger.debug("cannot write", exc_info=True)
            away = str(error)
            run = replace(run, was_tried=True)
        return Outcome(run=run, left=entries, refusals=tuple(self._refusals), away=away)

    def _create(self, run: RunRef, entries: Entries) -> tuple[RunRef, Entries]:
        """The run with all tags known so far, in one request."""
        if run.was_tried and (found := self._find(run)):
            return found, entries
        own = {key: value for key, value in entries.tags.items() if key.startswith("mlflow.")}
        if run.key != SWEEP:
            assert self._parent_run_id is not None
            own[MLFLOW_PARENT_RUN_ID] = self._parent_run_id
        left = replace(entries, tags={})
        try:
            created = self._client.create_run(
                self._experiment_id, start_time=run.start_ms, tags={**entries.tags, **own}, run_name=run.name
            )
        except MlflowException as error:
            if not self._is_refusal(error):
                raise
            created = self._client.create_run(
                self._experiment_id, start_time=run.start_ms, tags=own, run_name=run.name
            )
            left = entries  # the tag that was refused is found among these
        return replace(run, run_id=created.info.run_id, artifact_uri=created.info.artifact_uri), left

    def _find(self, run: RunRef) -> RunRef | None:
        """The run, if creating it succeeded although the answer got lost."""
        for found in self._client.search_runs([self._experiment_id], f"attributes.start_time = {run.start_ms}"):
            if found.info.run_name == run.name:
                return replace(run, run_id=found.info.run_id, artifact_uri=found.info.artifact_uri)
        return None

    def _log(self, run_id: str, batch: Entries) -> None:
        """One request; where MLflow refuses it, halves of it, until only what is refused is left out."""
        try:
            self._client.log_batch(
                run_id,
                metrics=[Metric(item.key, item.value, item.time_ms, item.step) for item in batch.metrics],
                params=[Param(key, value) for key, value in batch.params.items()],
                tags=[RunTag(key, value) for key, value in batch.tags.items()],
            )
        except MlflowException as error:
            if not self._is_refusal(error):
                raise
            if count(batch) == 1:
                self._refusals.append(Refusal(entries=batch, reason=str(error)))
                return
            for half in halves(batch):
                self._log(run_id, half)

    def _end(self, run_id: str, entries: Entries) -> None:
        assert entries.end is not None
        try:
            self._client.set_terminated(run_id, entries.end.status, entries.end.time_ms)
        except MlflowException as error:
            if not self._is_refusal(error):
                raise
            self._refusals.append(Refusal(entries=Entries(end=entries.end), reason=str(error)))

    def _upload(self, run: RunRef, entries: Entries) -> Entries:
        """Store the files. Each is tried a few times in all, then refused."""
        if not entries.uploads:
            return entries
        assert run.artifact_uri is not None
        repository = get_artifact_repository(run.artifact_uri, tracking_uri=self._uri)
        left: list[Upload] = []
        for upload in entries.uploads:
            try:
                _store(repository, upload)
            except (requests.ConnectionError, requests.Timeout):
                raise
            except Exception as error:
                _logger.debug("cannot store %s", upload.path, exc_info=True)
                if upload.tries + 1 < _MOST_TRIES:
                    left.append(upload._replace(tries=upload.tries + 1))
                else:
                    self._refusals.append(Refusal(entries=Entries(uploads=[upload]), reason=str(error)))
        return replace(entries, uploads=left)

    def _is_refusal(self, error: MlflowException) -> bool:
        """Will the same be refused again? An "internal error" is the data's fault where the store answers."""
        if error.error_code != "INTERNAL_ERROR":
            return error.error_code in _REFUSALS
        try:
            self._client.get_experiment(self._experiment_id)
        except MlflowException:
            return False
        return True


def _store(repository: ArtifactRepository, upload: Upload) -> None:
    """One file; an empty one is left out."""
    if upload.text is None:
        if upload.path.stat().st_size:
            repository.log_artifact(str(upload.path), upload.folder or None)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, upload.path.name)
        path.write_text(upload.text, encoding="utf-8")
        repository.log_artifact(str(path), upload.folder or None)
