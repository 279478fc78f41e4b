"""Experiment tracking. MLflow is only ever imported in a process of its own (see `mlflow_process`)."""

from __future__ import annotations

from pathlib import Path

from orchestrator.tracking.address import probe
from orchestrator.tracking.base import Tracker

__all__ = ["create_tracker", "probe"]


def create_tracker(tracking_uri: str, sweep_folder: Path) -> Tracker:
    """The tracker of one sweep at an address that `probe` returned.

    What cannot be delivered is kept in `undelivered.jsonl` in `sweep_folder`.
    """
    from orchestrator.tracking.mlflow import MlflowTracker

    return MlflowTracker(tracking_uri, sweep_folder)
