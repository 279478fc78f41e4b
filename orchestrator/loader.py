"""Importing an experiment file by name, on the driver and on every worker, as plain Python would import it.

While the file is imported, and on a worker from then on, its folder is the first place where modules are
looked for and the current directory: relative paths in an experiment start at the folder of its file.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import pickle
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from orchestrator.errors import ExperimentError, nearest
from orchestrator.experiment import Experiment, categories, is_domain
from orchestrator.user_code import describe_error, last_own_line

LARGEST_VALUE_BYTES = 1024**2


@dataclass(frozen=True, kw_only=True)
class LoadedExperiment:
    """An experiment with the file (absolute) and the variable in it that hold it."""

    file: Path
    name: str
    experiment: Experiment


def load(reference: str) -> LoadedExperiment:
    """The experiment of "FILE" or "FILE:NAME"; the current directory is afterwards what it was.

    Raises:
        ExperimentError: the file cannot be imported, or holds no such experiment.
    """
    path, name = _split(reference)
    file = _checked(path)
    with contextlib.chdir(file.parent):
        module = _import(file)
    return _pick(module, file, name)


def load_in_worker(file: Path, name: str) -> LoadedExperiment:
    """The experiment `name` of `file`; the file's folder stays the current directory.

    Raises:
        ExperimentError: as for `load`.
    """
    file = _checked(file)
    os.chdir(file.parent)
    return _pick(_import(file), file, name)


def unsendable(config: Mapping[str, Any]) -> list[str]:
    """The values of a configuration or search space that cannot be sent to workers, each with the reason."""
    return [fault for key, value in _values(config) if (fault := _fault_of_sending(key, value))]


def _values(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All values with their dotted keys; of a search space those that it names."""
    for key, value in config.items():
        if is_domain(value):
            yield from ((f"{prefix}{key}", item) for item in categories(value) or ())
        elif isinstance(value, Mapping):
            yield from _values(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _fault_of_sending(key: str, value: Any) -> str | None:
    kind = type(value).__name__
    try:
        size = len(pickle.dumps(value))
    except Exception as error:  # noqa: BLE001 - pickling calls the value's own methods: anything may come
        return (
            f'"{key}" = {value!r:.80} ({kind}) cannot be sent to workers: {error}; make it in the train function'
        )
    if size > LARGEST_VALUE_BYTES:
        return f'"{key}" ({kind}) has {size / 1024**2:.1f} MiB, allowed is 1 MiB: load it in the train function'
    return None


def _split(reference: str) -> tuple[Path, str | None]:
    """FILE and NAME; a colon that belongs to the path is left alone."""
    path, colon, name = reference.rpartition(":")
    if not colon or not path or Path(reference).exists() or {"/", "\\"} & set(name):
        return Path(reference), None
    return Path(path), name


def _checked(path: Path) -> Path:
    """The absolute path of a file that can be imported by its name."""
    if path.is_dir():
        files = ", ".join(sorted(file.name for file in path.glob("*.py"))) or "there is none"
        raise ExperimentError(f"{path} is a folder: name an experiment file in it ({files})")
    if not path.exists():
        beside = [file.name for file in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise ExperimentError(f"{path} does not exist{nearest(path.name, beside)}")
    if path.suffix != ".py":
        raise ExperimentError(f"{path} is no experiment file: its name has to end in .py")
    file = path.absolute()
    stem = file.stem
    if "." in stem or stem in ("__init__", "__main__"):
        raise ExperimentError(f'{path} cannot be imported by its name: "{stem}" is no name of a module; rename it')
    if owner := _owner(stem, file):
        raise ExperimentError(
            f'{path} hides another module: "{stem}" is {owner}; rename it, "{stem}_experiment.py" for example'
        )
    return file


def _owner(stem: str, file: Path) -> str | None:
    """Whose module the name already is; None if it is free, or that of an experiment loaded before."""
    if stem in sys.stdlib_module_names:
        return "in the standard library"
    known = sys.modules.get(stem)
    origin = getattr(known, "__file__", None) or "elsewhere"
    if known is not None and origin != str(file) and stem not in _names_of_last_experiment():
        return f"already imported from {origin}"
    own = {file.parent.resolve(), Path.cwd().resolve()}
    paths, sys.path = sys.path, [entry for entry in sys.path if Path(entry or ".").resolve() not in own]
    module = sys.modules.pop(stem, None)
    try:
        spec = importlib.util.find_spec(stem)
    finally:
        sys.path = paths
        if module is not None:
            sys.modules[stem] = module
    # A folder of that name without code is no module that anybody imports.
    return f"installed at {spec.origin}" if spec is not None and spec.origin else None


@dataclass(frozen=True, kw_only=True)
class _Imported:
    """What the import of the last experiment changed in this process."""

    folder: Path
    modules_before: frozenset[str]


_last: _Imported | None = None


def _names_of_last_experiment() -> list[str]:
    """Modules and packages imported since from the folder of the last experiment."""
    if _last is None:
        return []
    here = _last.folder.resolve()
    new = {name: module for name, module in list(sys.modules.items()) if name not in _last.modules_before}
    own = {name for name, module in new.items() if "." not in name and here in _places(module)}
    return [name for name in new if name.partition(".")[0] in own]


def _places(module: ModuleType) -> Iterator[Path]:
    """The folders that lie on the search path and in which the module or package was found."""
    if folders := getattr(module, "__path__", None):
        yield from (Path(folder).resolve().parent for folder in folders)
    elif file := getattr(module, "__file__", None):
        yield Path(file).resolve().parent


def _forget_last_experiment() -> None:
    """So that a helper of the next experiment is not taken from the folder of this one."""
    global _last
    if _last is None:
        return
    for name in _names_of_last_experiment():
        del sys.modules[name]
    if str(_last.folder) in sys.path:
        sys.path.remove(str(_last.folder))
    _last = None


def _import(file: Path) -> ModuleType:
    global _last
    _forget_last_experiment()
    _last = _Imported(folder=file.parent, modules_before=frozenset(sys.modules))
    sys.path.insert(0, str(file.parent))
    importlib.invalidate_caches()
    try:
        return importlib.import_module(file.stem)
    except ExperimentError as error:
        where = last_own_line(error, file.parent)
        raise ExperimentError(*([f"{where}"] if where else []), *error.faults) from None
    except SystemExit as error:
        raise ExperimentError(f"{file.name} ends the process while it is imported: {error!r}") from None
    except Exception as error:
        raise ExperimentError(f"{file.name} cannot be imported:\n{describe_error(error, file.parent)}") from error


def _pick(module: ModuleType, file: Path, name: str | None) -> LoadedExperiment:
    found = {key: value for key, value in vars(module).items() if isinstance(value, Experiment)}
    names = ", ".join(found)
    if name is None:
        if not found:
            raise ExperimentError(
                f"{file.name} holds no experiment: give it one, experiment = Experiment(name=..., ...)"
            )
        if len({id(value) for value in found.values()}) > 1:
            raise ExperimentError(f"{file.name} holds several experiments: name one, {file.name}:NAME ({names})")
        name = next(iter(found))
    if name not in found:
        other = f" (it is a {type(vars(module)[name]).__name__})" if name in vars(module) else ""
        raise ExperimentError(
            f'{file.name} holds no experiment "{name}"{other or nearest(name, found)}; it holds: {names or "none"}'
        )
    return LoadedExperiment(file=file, name=name, experiment=found[name])
