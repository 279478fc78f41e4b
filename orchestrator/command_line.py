"""Reads the command line into `Options`."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from orchestrator.errors import UserError, nearest
from orchestrator.options import (
    MODES,
    SEARCHES,
    STANDARD_OUTPUT,
    TRIAL_SCHEDULERS,
    Options,
    Verbosity,
    name_fault,
)
from orchestrator.settings import fault_of
from orchestrator.yaml_value import read_value, read_values

_USAGE = "python -m orchestrator.run FILE[:NAME] [options]"
_EXIT_CODES = (
    "exit codes: 0 every planned trial finished; 1 some failed or did not fit; 2 bad input, or tracking or "
    "cluster out of reach (nothing was started); 3 nothing could be placed; 4 all failed; 130 interrupted"
)


def parse(argv: Sequence[str]) -> Options:
    """The options in `argv`. `--help` prints them and raises `SystemExit(0)`.

    Raises:
        UserError: lists all faults.
    """
    parser = _parser()
    given, rest = parser.parse_known_args(argv)
    faults = [*_unknown_faults(rest, parser), *_contradictions(given)]
    if given.file is None:
        faults.append(f"FILE is missing: {_USAGE}; --help lists the options")
    options = _read(given, _Reader(faults))
    faults += _value_faults(given, options)
    if faults:
        raise UserError(*faults)
    return options


def _read(given: argparse.Namespace, reader: _Reader) -> Options:
    return Options(
        file=given.file or "",
        settings=reader.pairs("--set", given.set, read_value, "KEY=VALUE"),
        sweep=reader.pairs("--sweep", given.sweep, read_values, "KEY=V1,V2,..."),
        devices=tuple(name.strip() for name in given.devices.split(",")) if given.devices is not None else (),
        samples=reader.whole("--samples", given.samples, least=1) or 1,
        repeat=reader.whole("--repeat", given.repeat, least=1) or 1,
        seed=reader.whole("--seed", given.seed, least=0),
        objective=given.objective,
        mode=reader.choice("--mode", given.mode, MODES),
        target=reader.number("--target", given.target),
        search=reader.choice("--search", given.search, SEARCHES) or "grid",
        scheduler=reader.choice("--scheduler", given.scheduler, TRIAL_SCHEDULERS) or "none",
        max_concurrent=reader.whole("--max-concurrent", given.max_concurrent, least=1),
        exclusive=given.exclusive,
        name=given.name,
        trial=given.trial,
        storage=Path(given.storage).expanduser().absolute(),
        tracking_uri=given.tracking_uri,
        address=given.address,
        plan=given.plan,
        debug=given.debug,
        json=given.json if given.json in (None, STANDARD_OUTPUT) else str(Path(given.json).absolute()),
        yes=given.yes,
        verbosity=Verbosity(Verbosity.NORMAL + bool(given.verbose) - bool(given.quiet)),
    )


class _Reader:
    """Reads the texts of options and adds what is wrong with them to `faults`. None: not given, or wrong."""

    def __init__(self, faults: list[str]) -> None:
        self._faults = faults

    def pairs(self, option: str, texts: Sequence[str], read: Callable[[str], Any], form: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for text in texts:
            key, equals, value = text.partition("=")
            key = key.strip()
            if not equals or not key:
                self._faults.append(f"{option} {text} is not allowed: {form}")
            elif key in found:
                self._faults.append(f"{option} {key} is given twice")
            else:
                try:
                    found[key] = read(value)
                except ValueError as error:
                    self._faults.append(f"{option} {text} cannot be read as YAML: {error}")
        return found

    def whole(self, option: str, text: str | None, *, least: int) -> int | None:
        if text is None:
            return None
        if re.fullmatch(r"[+-]?[0-9]{1,18}", text) and int(text) >= least:
            return int(text)
        self._faults.append(f"{option} {text} is not allowed: a whole number of at least {least}")
        return None

    def number(self, option: str, text: str | None) -> float | None:
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if math.isfinite(value):
            return value
        self._faults.append(f"{option} {text} is not allowed: a finite number")
        return None

    def choice(self, option: str, text: str | None, allowed: Sequence[str]) -> str | None:
        if text is None or text in allowed:
            return text
        guess = nearest(text, allowed)
        self._faults.append(f"{option} {text} does not exist{guess}; allowed: {', '.join(allowed)}")
        return None


def _unknown_faults(rest: Sequence[str], parser: argparse.ArgumentParser) -> Iterator[str]:
    """The words that belong to no option; a value behind an unknown option is not named apart."""
    names = [word.partition("=")[0] for word in rest if word.startswith("-")]
    known = set(re.findall(r"--[a-z-]+", parser.format_help()))
    for name in names:
        yield f"there is no option {name}{nearest(name, known)}; --help lists the options"
    for word in [] if names else rest:
        yield f"{word!r} is one argument too many: {_USAGE}"


def _contradictions(given: argparse.Namespace) -> Iterator[str]:
    pairs = [
        (given.plan, "--plan", given.debug, "--debug"),
        (given.debug, "--debug", given.address, "--address"),
        (given.quiet, "-q", given.verbose, "-v"),
    ]
    # A trial that runs again takes its settings from the sweep's record.
    fixed = ("set", "sweep", "devices", "samples", "repeat", "seed", "search", "scheduler")
    pairs += [(given.trial, "--trial", getattr(given, name), f"--{name}") for name in fixed]
    for has_one, one, has_other, other in pairs:
        if has_one and has_other:
            yield f"{one} and {other} contradict each other"
    if given.trial is not None and given.name is None:
        yield "--trial needs the sweep that the trial is of: --name SWEEP --trial ID"


def _value_faults(given: argparse.Namespace, options: Options) -> Iterator[str]:
    if options.name is not None and (fault := name_fault(options.name)):
        yield f"--name {fault}"
    if options.seed is not None and (fault := fault_of("seed", options.seed)):
        yield f"--{fault}"
    if not given.storage or "://" in given.storage:
        yield f"--storage {given.storage!r} is not allowed: a folder"
    alone = [name for name in options.devices if name in ("each", "any")]
    if alone and len(options.devices) > 1:
        yield f"--devices {given.devices}: {alone[0]} cannot be combined with other devices"
    for name in options.devices:
        if fault := fault_of("device", name):
            yield f"--devices: {fault}"
    for option, key, value in (("--devices", "device", given.devices), ("--seed", "seed", given.seed)):
        for other, keys in (("--set", options.settings), ("--sweep", options.sweep)):
            if value is not None and key in keys:
                yield f"{option} and {other} {key} contradict each other"
    for key in options.settings:
        if key in options.sweep:
            yield f"--set {key} and --sweep {key} contradict each other"
    if options.json not in (None, STANDARD_OUTPUT):
        path = Path(str(options.json))
        if path.is_dir() or not path.parent.is_dir():
            yield f"--json {given.json} is not allowed: a file in an existing folder, or - (standard output)"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(message)


def _parser() -> _Parser:
    parser = _Parser(
        prog="orchestrator",
        usage=_USAGE,
        description="Run the sweep that an experiment file declares, on every device that is there.",
        epilog=_EXIT_CODES,
        allow_abbrev=False,
        add_help=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=26, width=100),
    )
    help_of_file = "the experiment file; NAME picks one of several experiments in it"
    parser.add_argument("file", nargs="?", metavar="FILE[:NAME]", help=help_of_file)

    add = parser.add_argument_group("what is swept").add_argument
    add(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="fix a setting; VALUE is YAML (repeatable)",
    )
    add("--sweep", metavar="KEY=V1,V2", action="append", default=[], help="sweep a setting (repeatable)")
    add("--devices", metavar="LIST", help="each, any, or a list such as cpu,gpu: the device setting")
    add("--samples", metavar="N", help="draws from random domains (default: 1)")
    add("--repeat", metavar="N", help="every configuration with N seeds (default: 1)")
    add("--seed", metavar="N", help="the first seed (default: the file's, else 0)")
    add("--objective", metavar="NAME", help="the metric that ranks trials, instead of the file's")
    add("--mode", metavar="MODE", help="min or max, instead of the file's")
    add("--target", metavar="VALUE", help="the objective to reach, for time-to-target")
    add("--search", metavar="NAME", help="grid, random or optuna (default: grid)")
    add("--scheduler", metavar="NAME", help="ends poor trials early: none or asha (default: none)")

    add = parser.add_argument_group("where and how it runs").add_argument
    add(
        "--address",
        metavar="ADDRESS",
        help="an existing Ray cluster (default: RAY_ADDRESS, else a private one)",
    )
    add("--max-concurrent", metavar="N", help="at most N trials at once")
    add("--exclusive", action="store_true", help="one trial per node at a time: undisturbed measurements")
    add("--plan", action="store_true", help="show trials, placements and what is excluded; run nothing")
    add("--debug", action="store_true", help="one trial in this process, without Ray: breakpoint() works")
    add("--trial", metavar="ID", help="with --name SWEEP: run one trial of that sweep again, alone")
    add("--yes", action="store_true", help="ask nothing, and accept a very large sweep")

    add = parser.add_argument_group("what is kept and shown").add_argument
    add("--name", metavar="NAME", help="name of the sweep (default: the experiment's, with the time)")
    add(
        "--storage",
        metavar="DIR",
        default="results",
        help="folder of results and checkpoints (default: results)",
    )
    add(
        "--tracking-uri",
        metavar="URI",
        help="MLflow (default: MLFLOW_TRACKING_URI, else sqlite:///mlflow.db)",
    )
    add("--json", metavar="PATH", help="write the summary there too (-: standard output)")
    add("-v", "--verbose", action="store_true", help="show more")
    add("-q", "--quiet", action="store_true", help="show errors and the final table only")
    add("-h", "--help", action="help", help="show this")
    return parser
