"""Lays what the command line says over what the experiment file says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from orchestrator.errors import ExperimentError, nearest
from orchestrator.experiment import Experiment, is_domain
from orchestrator.options import Options
from orchestrator.settings import STANDARD_SETTINGS


def apply(options: Options, experiment: Experiment) -> Experiment:
    """The experiment with the options' settings, sweep, devices, seed, objective, mode and target.

    A setting that is fixed leaves the sweep. One that is swept stays in the configuration, where the sweep's
    value replaces it.

    Raises:
        ExperimentError: lists all faults: keys that the experiment does not have, values not allowed.
    """
    fixed = dict(options.settings)
    swept = dict(options.sweep)
    if len(options.devices) == 1:
        fixed["device"] = options.devices[0]
    elif options.devices:
        swept["device"] = list(options.devices)
    if options.seed is not None:
        fixed["seed"] = options.seed

    faults = [
        *_key_faults("--set", fixed, experiment),
        *_key_faults("--sweep", swept, experiment),
    ]
    config, sweep = dict(experiment.config), dict(experiment.sweep)
    for key, value in fixed.items():
        config, sweep = _with(config, _path(key, config), value), _without(sweep, _path(key, sweep))
    for key, values in swept.items():
        sweep = _with(sweep, _path(key, sweep), {"grid_search": list(values)})

    fields = {"objective": options.objective, "mode": options.mode, "target": options.target}
    changes: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    try:
        changed = replace(experiment, config=config, sweep=sweep, **changes)
    except ExperimentError as error:
        faults += error.faults
    if faults:
        raise ExperimentError(*faults)
    return changed


def _key_faults(option: str, keys: Iterable[str], experiment: Experiment) -> Iterator[str]:
    known = {*_keys(experiment.config), *_keys(experiment.sweep), *STANDARD_SETTINGS}
    for key in keys:
        if key not in known:
            yield (
                f"{option} {key}: {experiment.name} has no setting {key!r}{nearest(key, known)}; "
                f"it has: {', '.join(sorted(known))}"
            )
        elif whole := _swept_above(key, experiment.sweep):
            yield f"{option} {key}: {experiment.name} sweeps {whole} as a whole; use {option} {whole}=..."


def _swept_above(key: str, sweep: Mapping[str, Any]) -> str | None:
    """The setting that holds `key` and is swept as one value; None if there is none."""
    path, inner = _path(key, sweep), sweep
    for depth, name in enumerate(path[:-1], start=1):
        if is_domain(inner.get(name)):
            return ".".join(path[:depth])
        inner = inner.get(name) or {}
    return None


def _keys(settings: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The keys of nested settings with dots, at every depth: "optimizer" and "optimizer.lr"."""
    for key, value in settings.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping) and not is_domain(value):
            yield from _keys(value, f"{prefix}{key}.")


def _path(key: str, settings: Mapping[str, Any]) -> list[str]:
    """The way to a setting, outermost key first. A key that holds the dots itself is one step."""
    return [key] if key in settings else key.split(".")


def _with(settings: Mapping[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    first, *rest = path
    if not rest:
        return {**settings, first: value}
    inner = settings.get(first)
    return {**settings, first: _with(inner if isinstance(inner, Mapping) else {}, rest, value)}


def _without(settings: Mapping[str, Any], path: list[str]) -> dict[str, Any]:
    """Without the setting, and without what becomes empty by that."""
    first, *rest = path
    inner = settings.get(first)
    if rest and isinstance(inner, Mapping) and (remaining := _without(inner, rest)):
        return {**settings, first: remaining}
    return {key: value for key, value in settings.items() if key != first}
