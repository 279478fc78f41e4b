"""What of the experiment's folder is sent to workers on other machines: measured before anything is sent.

Left out are version control, virtual environments, caches, results, checkpoints and MLflow stores, and what a
`.rayignore` file in the folder names. A `.gitignore` is not followed: data that git leaves out is often just
what an experiment reads.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import ExperimentError

LIMIT_BYTES = 100 * 1024**2
_SHOWN = 5

_LEFT_OUT = (
    ".git", ".hg", ".svn", ".jj",
    ".venv", "venv", "node_modules",
    "__pycache__", "*.pyc", ".ipynb_checkpoints", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".tox",
    "results", "lightning_logs",
    "checkpoints", "checkpoint[-_][0-9]*", "*.ckpt",
    "mlruns", "mlartifacts", "mlflow.db", "mlflow.db-*",
)  # fmt: skip
_OF_A_SWEEP = ("journal.jsonl", "summary.json")


@dataclass(frozen=True, kw_only=True)
class Package:
    """What would be sent of `folder`.

    `excludes` are the entries left out, in the form of Ray's `runtime_env["excludes"]`. With them Ray sends
    what was measured, if `RAY_RUNTIME_ENV_IGNORE_GITIGNORE=1` keeps it from following a `.gitignore`.
    """

    folder: Path
    files: int
    size_bytes: int
    excludes: tuple[str, ...]


def measure(folder: Path, limit_bytes: int = LIMIT_BYTES) -> Package:
    """Files and bytes that would be sent of `folder`.

    Raises:
        ExperimentError: more than `limit_bytes`; lists the largest entries.
    """
    folder = folder.resolve()
    rules = [*map(_Rule.parse, _LEFT_OUT), *_rules_of(folder / ".rayignore")]
    sizes: dict[str, int] = {}
    excludes = []
    for entry, is_left_out in _walk(folder, "", rules, (folder,)):
        if is_left_out:
            excludes.append(_pattern_of(entry))
        else:
            sizes[entry] = (folder / entry).stat().st_size
    total = sum(sizes.values())
    if total > limit_bytes:
        largest = sorted(_by_top_entry(sizes).items(), key=lambda item: -item[1])[:_SHOWN]
        raise ExperimentError(
            f"{folder}: {_mib(total)} would be sent to workers on other machines, allowed are "
            f"{_mib(limit_bytes)}; name in .rayignore what they do not need. The largest entries:",
            *(f"  {name}: {_mib(size)}" for name, size in largest),
        )
    return Package(folder=folder, files=len(sizes), size_bytes=total, excludes=tuple(sorted(excludes)))


@dataclass(frozen=True, kw_only=True)
class _Rule:
    """One line of a `.rayignore`: what git understands, except `**` and a backslash before a special sign."""

    pattern: str
    is_anchored: bool
    only_folders: bool
    takes_back: bool

    @classmethod
    def parse(cls, line: str) -> _Rule:
        text = line.removeprefix("!")
        pattern = text.strip("/")
        return cls(
            pattern=pattern,
            is_anchored=text.startswith("/") or "/" in pattern,
            only_folders=text.endswith("/"),
            takes_back=line.startswith("!"),
        )

    def fits(self, entry: str, is_folder: bool) -> bool:
        if self.only_folders and not is_folder:
            return False
        return fnmatch.fnmatchcase(entry if self.is_anchored else entry.rpartition("/")[2], self.pattern)


def _rules_of(file: Path) -> list[_Rule]:
    if not file.is_file():
        return []
    lines = (line.strip() for line in file.read_text(encoding="utf-8").splitlines())
    return [_Rule.parse(line) for line in lines if line and not line.startswith("#")]


def _walk(folder: Path, prefix: str, rules: list[_Rule], above: tuple[Path, ...]) -> Iterator[tuple[str, bool]]:
    """Files that would be sent, and the topmost entries left out (True), relative to the experiment's folder.
    Links are followed, as Ray does, but not into a folder `above`."""
    for item in sorted(os.scandir(folder), key=lambda item: item.name):
        entry, is_folder = prefix + item.name, item.is_dir()
        path = Path(item.path).resolve()
        if _is_left_out(item, entry, rules) or path in above:
            yield entry, True
        elif is_folder:
            yield from _walk(Path(item.path), f"{entry}/", rules, (*above, path))
        elif item.is_file():
            yield entry, False


def _is_left_out(item: os.DirEntry[str], entry: str, rules: list[_Rule]) -> bool:
    """The last rule that fits decides; then folders that show by their content what they are."""
    is_folder = item.is_dir()
    if not is_folder and not item.is_file():  # a dangling link, a socket
        return True
    fitting = [rule for rule in rules if rule.fits(entry, is_folder)]
    if fitting:
        return not fitting[-1].takes_back
    return is_folder and (_is_virtual_environment(Path(item.path)) or _is_sweep(Path(item.path)))


def _is_virtual_environment(folder: Path) -> bool:
    return (folder / "pyvenv.cfg").exists() or (folder / "conda-meta").is_dir()


def _is_sweep(folder: Path) -> bool:
    """Is it the folder of a sweep of ours, wherever `--storage` put it?"""
    return (folder / "trials").is_dir() and any((folder / name).exists() for name in _OF_A_SWEEP)


def _pattern_of(entry: str) -> str:
    """The entry and all below it, in the language of `.gitignore`."""
    return "/" + re.sub(r"([*?\[\]!#\\ ])", r"\\\1", entry)


def _by_top_entry(sizes: dict[str, int]) -> dict[str, int]:
    """Bytes of the files and folders that lie directly in the experiment's folder."""
    totals: dict[str, int] = {}
    for entry, size in sizes.items():
        top, inside, _ = entry.partition("/")
        totals[top + inside] = totals.get(top + inside, 0) + size
    return totals


def _mib(size: int) -> str:
    return f"{size / 1024**2:.1f} MiB"
