"""A trial: one configuration with its place, as it travels from the plan to a worker."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.devices import DeviceShape
from orchestrator.results import TrialStatus, jsonable


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a trial may run, and at which precision there (`converted_from` is what the user asked for)."""

    shape: DeviceShape
    precision: str
    converted_from: str | None = None


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One configuration. `config` holds every setting; `placements` the shapes that may take it, best first."""

    id: str
    config: Mapping[str, Any]
    placements: tuple[Placement, ...]
    repeat: int = 0

    @property
    def hash(self) -> str:
        return config_hash(self.config)


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A configuration that does not run: `status` is None where it is only left out (excluded, skipped)."""

    config: Mapping[str, Any]
    device: str | None
    reason: str
    status: TrialStatus | None = None
    id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What holds for every trial of a sweep. Limits are in seconds.

    `lockstep`: a report waits for the trial scheduler's decision. `sync_timeout_s`: how far apart the ranks of
    a trial may reach a report or the end. `swept`: names of the settings that the sweep varies.
    """

    objective: str
    mode: str
    keep_checkpoints: str = "best_and_last"
    on_divergence: str = "continue"
    lockstep: bool = False
    sync_timeout_s: float = 60.0
    swept: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Lease:
    """A trial as a worker gets it: all ranks of a group get the same one for the same turn.

    `directory` is the trial's own folder, `checkpoint` the one to start from. `index` counts the trials of this
    group from 0 (0: the group was cold).
    """

    trial: Trial
    placement: Placement
    rules: Rules
    attempt: int
    index: int
    directory: str
    checkpoint: str | None = None


def config_hash(config: Mapping[str, Any]) -> str:
    """12 hex digits of the configuration, independent of the order of its keys."""
    text = json.dumps(jsonable(config), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings with dotted keys: {"optimizer": {"lr": 1}} becomes {"optimizer.lr": 1}."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{name}."))
        else:
            flat[name] = value
    return flat
