"""The command: `python -m orchestrator.run FILE[:NAME] [options]`, also `orchestrator run ...`."""

from __future__ import annotations

import contextlib
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType

from orchestrator.command_line import parse
from orchestrator.errors import UserError, nearest
from orchestrator.masking import mask
from orchestrator.options import STANDARD_OUTPUT, Options
from orchestrator.sweep.interruption import Interruption

_USAGE = """usage: orchestrator COMMAND ...

commands:
  run    sweep what an experiment file declares; `orchestrator run --help` lists its options"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code. Errors that are the user's to fix go to standard error."""
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except UserError as error:
        for fault in error.faults:
            print(mask(f"error: {fault}").replace("\n", "\n  "), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 128 + signal.SIGINT


def _run(argv: Sequence[str]) -> int:
    options = parse(argv)
    # Whoever reads the summary from standard output must not find what the user's file prints there.
    only_summary = (
        contextlib.redirect_stdout(sys.stderr) if options.json == STANDARD_OUTPUT else contextlib.nullcontext()
    )
    with only_summary, Interruption() as interruption:
        return _sweep(options, interruption)


def _sweep(options: Options, interruption: Interruption) -> int:
    from orchestrator.loader import load
    from orchestrator.overrides import apply

    loaded = load(options.file)
    loaded = replace(loaded, experiment=apply(options, loaded.experiment))
    from orchestrator.sweep import runner  # imports Ray

    if options.plan:
        return runner.show_plan(options, loaded)
    if options.debug:
        return runner.debug(options, loaded)
    return runner.run(options, loaded, interruption)


def console() -> int:
    """The console script `orchestrator`, whose commands are modules of the same name."""
    sys.excepthook = show_own_fault
    command, *rest = sys.argv[1:] or ["--help"]
    if command == "run":
        return main(rest)
    if command in ("-h", "--help"):
        print(_USAGE)
        return 0
    print(f"error: there is no command {command!r}{nearest(command, ['run'])}\n{_USAGE}", file=sys.stderr)
    return UserError.exit_code


def show_own_fault(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Shows an exception that nobody foresaw; Python then ends with exit code 1."""
    text = "".join(traceback.format_exception(kind, error, trace))
    print(
        f"{mask(text)}This is a fault of the orchestrator: please report it with the lines above.",
        file=sys.stderr,
    )


if __name__ == "__main__":
    sys.excepthook = show_own_fault
    sys.exit(main())
