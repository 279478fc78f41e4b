"""What the command line says, as a value."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SEARCHES = ("grid", "random", "optuna")
TRIAL_SCHEDULERS = ("none", "asha")
MODES = ("min", "max")
STANDARD_OUTPUT = "-"
_NAMES_OF_WINDOWS = {
    "con",
    "prn",
    "aux",
    "nul",
    *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10)),
}


class Verbosity(enum.IntEnum):
    """How much the console says."""

    QUIET = 0  # errors and the final table
    NORMAL = 1  # changes of state
    VERBOSE = 2  # every report as well


@dataclass(frozen=True, kw_only=True)
class Options:
    """None, or an empty value, where nothing was given: the experiment file or a default decides.

    Attributes:
        file: `FILE` or `FILE:NAME`.
        settings: values fixed by `--set`; dots in a key lead into nested settings.
        sweep: values to sweep, by `--sweep`.
        devices: "each" or "any" alone, or device types.
        storage: an absolute folder: the current one changes while the experiment file is imported.
        json: an absolute path where the summary is written too, or `STANDARD_OUTPUT`.
    """

    file: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    sweep: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    samples: int = 1
    repeat: int = 1
    seed: int | None = None
    objective: str | None = None
    mode: str | None = None
    target: float | None = None
    search: str = "grid"
    scheduler: str = "none"
    max_concurrent: int | None = None
    exclusive: bool = False
    name: str | None = None
    trial: str | None = None
    storage: Path = field(default_factory=lambda: Path("results").absolute())
    tracking_uri: str | None = None
    address: str | None = None
    plan: bool = False
    debug: bool = False
    json: str | None = None
    yes: bool = False
    verbosity: Verbosity = Verbosity.NORMAL


def name_fault(name: str) -> str | None:
    """Why a sweep, and so its folder, cannot have this name; None if it can."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,79}", name):
        return f"{name!r} is not allowed: 1 to 80 of A-Z a-z 0-9 . _ -, the first a letter, a digit or _"
    if name.endswith(".") or name.partition(".")[0].lower() in _NAMES_OF_WINDOWS:
        return f"{name!r} is not allowed: no folder can have this name on Windows"
    return None
