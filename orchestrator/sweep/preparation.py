"""All that is checked before anything starts, and what a sweep then runs with."""

from __future__ import annotations

import getpass
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from orchestrator.decide.placement import PlacementRules
from orchestrator.devices import Node
from orchestrator.errors import ExperimentError, StorageError, UserError
from orchestrator.experiment import Experiment, swept_names
from orchestrator.loader import LoadedExperiment, unsendable
from orchestrator.options import Options
from orchestrator.sweep.plan import Draws, Planner
from orchestrator.trial import Rules

MOST_GRID_POINTS = 10_000
_GIT_TIMEOUT_S = 5.0
_PACKAGES = ("orchestrator", "ray", "mlflow", "torch")


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A sweep that has passed every check. `directory` is its own folder, not yet made."""

    name: str
    directory: Path
    loaded: LoadedExperiment
    experiment: Experiment
    nodes: list[Node]
    planner: Planner
    rules: Rules


def prepare(options: Options, loaded: LoadedExperiment, nodes: list[Node]) -> Prepared:
    """Check everything about the sweep itself and raise all faults at once.

    Raises:
        UserError: the faults.
    """
    experiment = loaded.experiment
    if options.trial:
        experiment = _of_trial(options, experiment)
    planner = Planner(
        experiment=experiment,
        nodes=nodes,
        rules=PlacementRules(
            framework=experiment.framework,
            on_unsupported=experiment.on_unsupported,
            exclusive=options.exclusive,
        ),
        draws=Draws(
            samples=options.samples,
            repeat=options.repeat,
            seed=experiment.config.get("seed", 0),
            shuffled=options.search != "grid",
        ),
    )
    faults = [*unsendable(experiment.config), *unsendable(experiment.sweep)]
    if options.exclusive and "cpus_per_worker" in {**experiment.config, **experiment.sweep}:
        faults.append("--exclusive gives a trial all cores of its node: cpus_per_worker cannot be set with it")
    points = planner.grid_points() * options.repeat
    if points > MOST_GRID_POINTS and not options.yes:
        faults.append(
            f"the sweep has {points:,} configurations, more than {MOST_GRID_POINTS:,}: add --yes if you mean it"
        )
    elif options.search != "optuna" and not faults:
        faults += _faults_of(planner.check)
    name = options.name if options.name and not options.trial else _new_name(options, experiment)
    directory = options.storage / name
    faults += _faults_of(lambda: _check_storage(directory))
    if faults:
        raise ExperimentError(*faults)
    return Prepared(
        name=name,
        directory=directory,
        loaded=replace(loaded, experiment=experiment),
        experiment=experiment,
        nodes=nodes,
        planner=planner,
        rules=Rules(
            objective=experiment.objective,
            mode=experiment.mode,
            keep_checkpoints=experiment.keep_checkpoints,
            on_divergence=experiment.on_divergence,
            lockstep=options.scheduler != "none",
            sync_timeout_s=experiment.sync_timeout_s,
            swept=(*swept_names(experiment.sweep), *(["seed"] if options.repeat > 1 else [])),
        ),
    )


def sweep_facts(prepared: Prepared) -> dict[str, str]:
    """Tags that all trials of the sweep have in common."""
    file = prepared.loaded.file
    return {
        "sweep.name": prepared.name,
        "framework": prepared.experiment.framework,
        "experiment.file": str(file),
        "user": getpass.getuser(),
        "python.version": platform.python_version(),
        **_versions(),
        **_git(file.parent),
    }


def _faults_of(check: Callable[[], None]) -> list[str]:
    try:
        check()
    except UserError as error:
        return list(error.faults)
    return []


def _new_name(options: Options, experiment: Experiment) -> str:
    """A name that no sweep in the storage has: short, portable, independent of the settings."""
    stem = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in experiment.name)[:40]
    base = f"{options.name}-{options.trial}" if options.trial else f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    name, number = base, 2
    while (options.storage / name).exists():
        name, number = f"{base}-{number}", number + 1
    return name


def _check_storage(directory: Path) -> None:
    """The folder must be new, and its parent writable."""
    if directory.exists():
        raise StorageError(
            f"a sweep named {directory.name} exists already in {directory.parent}: choose another --name"
        )
    parent = directory.parent
    existing = next(folder for folder in [parent, *parent.parents] if folder.exists())
    if not existing.is_dir():
        raise StorageError(f"--storage {parent} is not allowed: {existing} is a file")
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise StorageError(f"--storage {parent} cannot be written: {error.strerror or error}") from None


def _of_trial(options: Options, experiment: Experiment) -> Experiment:
    """The experiment with the settings of one trial of an earlier sweep."""
    assert options.name is not None and options.trial is not None
    folder = options.storage / options.name / "trials"
    file = folder / options.trial / "config.json"
    if not file.is_file():
        known = ", ".join(sorted(path.name for path in folder.glob("*"))[:20]) if folder.is_dir() else ""
        has = f"it has {known}" if known else f"there is no such sweep in {options.storage}"
        raise ExperimentError(f"--trial {options.trial}: sweep {options.name} has no such trial; {has}")
    return replace(experiment, config=json.loads(file.read_text(encoding="utf-8")), sweep={})


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[f"{package}.version"] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _git(folder: Path) -> dict[str, str]:
    """Commit and state of the repository that the experiment lies in; nothing where there is none."""

    def ask(*words: str) -> str | None:
        try:
            answer = subprocess.run(
                ["git", "-C", str(folder), *words],
                capture_output=True,
                text=True,
                timeout=_GIT_TIMEOUT_S,
                env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return answer.stdout.strip() if answer.returncode == 0 else None

    commit = ask("rev-parse", "HEAD")
    if commit is None:
        return {}
    return {"git.commit": commit, "git.dirty": str(bool(ask("status", "--porcelain"))).lower()}
