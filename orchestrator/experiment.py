"""What one file in `experiments/` declares: a train function, its settings, and the space to sweep."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from orchestrator.errors import ExperimentError, nearest
from orchestrator.precision import FRAMEWORKS
from orchestrator.settings import STANDARD_SETTINGS, fault_of

_CHOICES = {
    "framework": FRAMEWORKS,
    "mode": ("max", "min"),
    "on_unsupported": ("skip", "fail", "convert"),
    "isolation": ("group", "process"),
    "on_divergence": ("continue", "stop"),
    "keep_checkpoints": ("best_and_last", "last", "all", "none"),
}

# For a required field that is missing, so that the other fields are checked all the same.
_STAND_INS: dict[str, Any] = {"name": "missing", "train": print, "objective": "missing"}


class _AllFaultsAtOnce(type):
    """Checks the keywords of a call before the dataclass does, so that one error lists every fault."""

    def __call__(cls, *args: Any, **given: Any) -> Any:
        known = [item.name for item in fields(Experiment)]
        faults = ["Experiment takes keywords only: Experiment(name=..., train=..., ...)"] if args else []
        faults += [
            f'Experiment has no field "{name}"{nearest(name, known)}; it has: {", ".join(known)}'
            for name in given
            if name not in known
        ]
        faults += [f"Experiment needs the field {name}" for name in _STAND_INS if name not in given]
        stand_ins = {name: value for name, value in _STAND_INS.items() if name not in given}
        try:
            experiment = super().__call__(**stand_ins, **{name: given[name] for name in given if name in known})
        except ExperimentError as error:
            faults += error.faults
        if faults:
            raise ExperimentError(*faults)
        return experiment


@dataclass(frozen=True, kw_only=True)
class Experiment(metaclass=_AllFaultsAtOnce):
    """One experiment, checked in full when it is made.

    Attributes:
        name: names the MLflow experiment and the sweeps.
        train: called on every worker of a trial with a `Run`.
        objective: the reported metric by which trials are ranked, `mode` "max" or "min".
        framework: what `train` is written in.
        config: fixed settings. Some have a meaning of their own (`STANDARD_SETTINGS`), the rest are yours.
        sweep: settings to vary, with the domains of Ray Tune (`tune.grid_search`, `tune.loguniform`, ...).
        exclude: takes a configuration; returns why it is left out, or None.
        target: the objective's value for time-to-target.
        on_unsupported: what happens to a precision that a device lacks: "skip", "fail" or "convert".
        isolation: "group": trials share warm processes; "process": every trial gets fresh ones.
        on_divergence: whether a trial whose metrics become NaN or infinite goes on ("continue") or ends ("stop").
        keep_checkpoints: "best_and_last", "last", "all" or "none".
        sync_timeout_s: how far apart the workers of one trial may reach a report, an epoch or the end.

    Raises:
        ExperimentError: lists all faults.
    """

    name: str
    train: Callable[..., object]
    objective: str
    mode: str = "max"
    framework: str = "torch"
    config: Mapping[str, Any] = field(default_factory=dict)
    sweep: Mapping[str, Any] = field(default_factory=dict)
    exclude: Callable[[Mapping[str, Any]], str | None] | None = None
    target: float | None = None
    on_unsupported: str = "skip"
    isolation: str = "group"
    on_divergence: str = "continue"
    keep_checkpoints: str = "best_and_last"
    sync_timeout_s: float = 60.0

    def __post_init__(self) -> None:
        faults = list(self._faults())
        if faults:
            raise ExperimentError(*faults)
        for name in ("config", "sweep"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def _faults(self) -> Iterator[str]:
        for name in ("name", "objective"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                yield f"{name} = {value!r} is not allowed: a text that is not empty"
        for name in ("train", "exclude"):
            value = getattr(self, name)
            if not callable(value) and not (name == "exclude" and value is None):
                yield f"{name} = {value!r} is not allowed: a function"
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                guess = nearest(str(value), allowed)
                yield f"{name} = {value!r} is not allowed{guess}; allowed: {', '.join(allowed)}"
        if self.target is not None and not _is_number(self.target):
            yield f"target = {self.target!r} is not allowed: a finite number"
        if not _is_number(self.sync_timeout_s) or self.sync_timeout_s <= 0:
            yield f"sync_timeout_s = {self.sync_timeout_s!r} is not allowed: seconds, more than 0"
        for name in ("config", "sweep"):
            if not isinstance(getattr(self, name), Mapping):
                yield f"{name} = {getattr(self, name)!r} is not allowed: a dict"
            else:
                yield from (config_faults(getattr(self, name)) if name == "config" else sweep_faults(self.sweep))


def config_faults(config: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with fixed settings."""
    for name, value in config.items():
        if not isinstance(name, str) or not name:
            yield f"config has the key {name!r}: keys are texts"
        elif is_domain(value):
            yield f'config["{name}"] is a search space: put it into sweep'
        elif name in STANDARD_SETTINGS:
            if fault := fault_of(name, value):
                yield f"config: {fault}"
        elif guess := nearest_standard(name, config):
            yield f'config["{name}"] looks like a misspelt setting{guess}'


def sweep_faults(sweep: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a search space. Categorical domains are checked value by value."""
    for name, domain in sweep.items():
        if not isinstance(name, str) or not name:
            yield f"sweep has the key {name!r}: keys are texts"
        elif isinstance(domain, Mapping) and not is_domain(domain):
            yield from (f'sweep["{name}"]: {fault}' for fault in sweep_faults(domain))
        elif not is_domain(domain):
            hint = "tune.grid_search([...])" if isinstance(domain, list | tuple) else "config, or tune.grid_search"
            yield f'sweep["{name}"] = {domain!r} is no search space: use {hint}'
        else:
            values = categories(domain)
            if values is not None and not values:
                yield f'sweep["{name}"] is empty: give at least one value'
            for value in values or ():
                if fault := fault_of(name, value):
                    yield f"sweep: {fault}"


def is_domain(value: Any) -> bool:
    """Is it one of Ray Tune's search spaces? Told by its form, so that Ray need not be imported."""
    if isinstance(value, Mapping):
        return set(value) == {"grid_search"}
    return hasattr(value, "sample") and type(value).__module__.startswith("ray.tune.")


def swept_names(sweep: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The names of the settings that a search space varies, dotted where they are nested."""
    for name, domain in sweep.items():
        if isinstance(domain, Mapping) and not is_domain(domain):
            yield from swept_names(domain, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def categories(domain: Any) -> list[Any] | None:
    """The values of a grid or of `tune.choice`, else None."""
    if isinstance(domain, Mapping):
        return list(domain["grid_search"])
    values = getattr(domain, "categories", None)
    return None if values is None else list(values)


def nearest_standard(name: str, taken: Mapping[str, Any]) -> str:
    """A guess for a key that is one slip away from a standard setting which is not set itself."""
    unset = [setting for setting in STANDARD_SETTINGS if setting not in taken]
    close = difflib.get_close_matches(name.lower().replace("-", "_"), unset, n=1, cutoff=0.85)
    return f' (did you mean "{close[0]}"?)' if close else ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
