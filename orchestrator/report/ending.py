"""What is known of a sweep when it has ended, for the console and the summary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.report.answer import Answer
from orchestrator.results import SweepStatus
from orchestrator.tracking.base import TrackingIds


@dataclass(frozen=True, kw_only=True)
class Ending:
    """`run_ids` are the tracker's ids of the trials' records; `folder` is `<storage>/<sweep>`."""

    experiment: str
    sweep: str
    folder: Path
    status: SweepStatus
    wall_s: float
    answer: Answer
    tracking: TrackingIds = field(default_factory=TrackingIds)
    run_ids: Mapping[str, str | None] = field(default_factory=dict)
