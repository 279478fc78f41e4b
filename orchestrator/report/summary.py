"""The summary of a sweep for scripts: `summary.json`, strict JSON without credentials."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orchestrator.masking import mask, mask_settings
from orchestrator.options import STANDARD_OUTPUT
from orchestrator.report.ending import Ending
from orchestrator.report.ledger import Device, Ledger, Row
from orchestrator.results import jsonable
from orchestrator.trial import Placement, Refused, Trial


def summary(ledger: Ledger, ending: Ending) -> dict[str, Any]:
    """The summary; times are in seconds, points in time in seconds since the epoch (Unix)."""
    tracking = ending.tracking
    return {
        "sweep": ending.sweep,
        "experiment": ending.experiment,
        "status": str(ending.status),
        "exit_code": ending.status.exit_code,
        "wall_s": ending.wall_s,
        "mlflow": {
            "tracking_uri": _masked(tracking.tracking_uri),
            "experiment_id": tracking.experiment_id,
            "parent_run_id": tracking.parent_run_id,
        },
        "counts": ledger.counts(),
        "trials": [_trial(row, ending.run_ids.get(row.id)) for row in ledger.rows],
        "excluded": [excluded(refused) for refused in ledger.left_out],
        "answer": {**asdict(ending.answer), "sentence": mask(ending.answer.sentence)},
    }


def _trial(row: Row, run_id: str | None) -> dict[str, Any]:
    return {
        "id": row.id,
        "config": mask_settings(row.config),
        "status": str(row.status),
        "device": asdict(row.device),
        "precision": {"requested": row.requested, "effective": row.effective},
        "metrics": dict(row.metrics),
        "best": asdict(row.best) if row.best else {"value": None, "epoch": None},
        "mlflow_run_id": run_id,
        "restarts": len(row.restarts),
        "started": row.started,
        "ended": row.ended,
        "checkpoint": row.checkpoint,
        "diverged_at": row.diverged_at,
        "error": _masked(row.error),
    }


def excluded(refused: Refused) -> dict[str, Any]:
    """A configuration that was left out, and why."""
    return {"config": mask_settings(refused.config), "device": refused.device, "reason": mask(refused.reason)}


def _masked(text: str | None) -> str | None:
    return None if text is None else mask(text)


def plan(experiment: str, trials: Sequence[Trial], refused: Sequence[Refused]) -> dict[str, Any]:
    """What `--plan` shows: trials with their possible places, best first, and what does not run and why."""
    infeasible = [one for one in refused if one.status is not None]
    left_out = [one for one in refused if one.status is None]
    return {
        "experiment": experiment,
        "counts": {"trials": len(trials), "excluded": len(left_out), "infeasible": len(infeasible)},
        "trials": [
            {
                "id": trial.id,
                "config": mask_settings(trial.config),
                "placements": [_place(trial, placement) for placement in trial.placements],
            }
            for trial in trials
        ],
        "excluded": [excluded(one) for one in left_out],
        "infeasible": [{"id": one.id, **excluded(one)} for one in infeasible],
    }


def _place(trial: Trial, placement: Placement) -> dict[str, Any]:
    shape = placement.shape
    return {
        "device": asdict(Device(type=shape.device, model=shape.model, count=shape.devices)),
        "precision": placement.precision,
        "workers": shape.workers,
        "cpus_per_worker": shape.cpus_per_worker,
        "batch_size": {
            "global": trial.config["batch_size"],
            "per_worker": trial.config["batch_size"] // shape.workers,
        },
    }


def as_json(record: Mapping[str, Any]) -> str:
    """Strict JSON: NaN and infinity are the strings "NaN", "Infinity" and "-Infinity"."""
    return json.dumps(jsonable(record), indent=2, allow_nan=False) + "\n"


def publish(destination: str, record: Mapping[str, Any]) -> None:
    """Write the record to a path, or to standard output where the destination is "-".

    Then the command sends all other output elsewhere, by `sys.stdout`; so the process's own stream is written.

    Raises:
        OSError: the path cannot be written.
    """
    path = Path(destination)
    if destination == STANDARD_OUTPUT:
        assert sys.__stdout__ is not None, "a command has a standard output"
        sys.__stdout__.write(as_json(record))
        sys.__stdout__.flush()
    elif path.exists() and not path.is_file():  # a pipe or a device cannot be replaced by a file
        path.write_text(as_json(record), encoding="utf-8")
    else:
        write(path, record)


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Write the record so that a reader finds the old file or the whole new one, never a part.

    Raises:
        OSError: the folder does not exist or cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(as_json(record))
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
