"""The console of a sweep: a live table in a terminal, one plain line per change of state elsewhere."""

from __future__ import annotations

import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

from rich.console import Console as Output
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from orchestrator.masking import mask
from orchestrator.options import STANDARD_OUTPUT, Options, Verbosity
from orchestrator.report import tables
from orchestrator.report.closing import closing, left_out
from orchestrator.report.ending import Ending
from orchestrator.report.ledger import Ledger, Row
from orchestrator.report.wording import UNKNOWN, device_name, duration, number, plural, precision_name
from orchestrator.results import Ended, Event, Reported, Restarted, Started, TrialStatus
from orchestrator.trial import Refused, Trial

_ROWS_AT_THE_END = 25  # of each device type; with -v all
_ROWS_LIVE = 12
_REFRESH_PER_S = 4
_WIDTH_OF_FILES = 160


class Console(ABC):
    """What the user sees of one sweep. Credentials are masked."""

    @abstractmethod
    def plan(self, *, experiment: str, sweep: str, trials: int, ledger: Ledger) -> None:
        """The sweep begins; `trials` is how many there will be, of which the ledger may not hold all yet."""

    @abstractmethod
    def note(self, text: str) -> None:
        """What is waited for, a group that starts, a warning. The same text is shown once."""

    @abstractmethod
    def refused(self, refused: Refused) -> None:
        """A configuration does not run."""

    @abstractmethod
    def event(self, event: Event, ledger: Ledger) -> None:
        """Something happened to a trial; the ledger has it already."""

    @abstractmethod
    def final(self, ledger: Ledger, ending: Ending) -> None:
        """The comparison, the errors, where everything is, and the answer."""

    @abstractmethod
    def plan_only(self, trials: Sequence[Trial], refused: Sequence[Refused], swept: Sequence[str]) -> None:
        """All trials with their places, what is left out and why, and the totals (`--plan`)."""

    @abstractmethod
    def close(self) -> None:
        """Give the terminal back, also after a fault; may be called twice."""


def open_console(options: Options) -> Console:
    """The console that suits standard output, or standard error where the summary goes to standard output.

    Notebooks and CI get plain lines, even where they offer a terminal.
    """
    stream = sys.stderr if options.json == STANDARD_OUTPUT else sys.stdout
    terminal = stream.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb"
    output = Output(
        file=stream,
        highlight=False,
        force_terminal=terminal,
        force_jupyter=False,
        color_system="auto" if terminal else None,
        width=None if terminal else _WIDTH_OF_FILES,
    )
    live = terminal and options.verbosity != Verbosity.QUIET and not options.debug  # a debugger needs the terminal
    return LiveConsole(output, options.verbosity) if live else PlainConsole(output, options.verbosity)


class PlainConsole(Console):
    """Lines, none of which is ever changed."""

    def __init__(self, output: Output, verbosity: Verbosity) -> None:
        self._output = output
        self._verbosity = verbosity
        self._noted: set[str] = set()
        self._first_with: dict[str, str] = {}
        self._trials = 0

    def plan(self, *, experiment: str, sweep: str, trials: int, ledger: Ledger) -> None:
        self._trials = trials
        aim = "highest" if ledger.mode == "max" else "lowest"
        out = f", {plural(len(ledger.left_out), 'point')} left out" if ledger.left_out else ""
        self._line(f"{experiment}: {plural(trials, 'trial')}{out}; {aim} {ledger.objective} wins; sweep {sweep}")

    def note(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._line(text, style="dim")

    def refused(self, refused: Refused) -> None:
        if refused.status is not None:
            self.note(f"trial {refused.id} is {refused.status.replace('_', ' ')}: {refused.reason}")

    def event(self, event: Event, ledger: Ledger) -> None:
        row = ledger.row(event.trial_id)
        if text := self._change(event, row, ledger):
            self._line(text)
        if isinstance(event, Ended) and row.fault:
            self._error(row.id, row.fault)

    def _change(self, event: Event, row: Row, ledger: Ledger) -> str | None:
        match event:
            case Started():
                return f"{_clock(event)} trial {row.id} started on {_place(row)}"
            case Restarted():
                return f"{_clock(event)} trial {row.id} goes back to its queue: {event.cause}"
            case Ended():
                ended = sum(one.status.has_ended() for one in ledger.rows)
                value = f"  {ledger.objective} {number(row.best.value)}" if row.best else ""
                took = f"  in {duration(row.ended - row.started)}" if row.started and row.ended else ""
                status = row.status.replace("_", " ")
                diverged = f", diverged at epoch {row.diverged_at}" if row.diverged_at else ""
                of = f"  [{ended} of {max(self._trials, len(ledger.rows))}]"
                return f"{_clock(event)} trial {row.id} {status}{diverged}{value}{took}{of}"
            case Reported() if self._verbosity == Verbosity.VERBOSE:
                metrics = "  ".join(f"{name} {number(value)}" for name, value in event.metrics.items())
                return f"{_clock(event)} trial {row.id} epoch {event.epoch}  {metrics}"
        return None

    def _error(self, trial_id: str, error: str) -> None:
        """A trial's error in full the first time, afterwards by the trial that had it first."""
        first = self._first_with.setdefault(error, trial_id)
        if first == trial_id:
            text = "\n".join(f"  {line}" for line in f"error in trial {trial_id}: {error}".splitlines())
            self._print(Text(mask(text), style="red"))
        else:
            self._print(Text(f"  trial {trial_id} has the same error as trial {first}", style="red"))

    def final(self, ledger: Ledger, ending: Ending) -> None:
        limit = len(ledger.rows) if self._verbosity == Verbosity.VERBOSE else _ROWS_AT_THE_END
        for part in closing(ledger, ending, limit=limit, width=self._output.width):
            self._print(part)

    def plan_only(self, trials: Sequence[Trial], refused: Sequence[Refused], swept: Sequence[str]) -> None:
        if trials:
            self._print(tables.plan(trials, swept))
            self._print(Text())
        for part in left_out(refused):
            self._print(part)
        infeasible = sum(one.status is not None for one in refused)
        parts = [f"{plural(len(trials), 'trial')} would run"]
        parts += [f"{infeasible:,} cannot be placed"] if infeasible else []
        parts += [f"{len(refused) - infeasible:,} left out"] if len(refused) > infeasible else []
        self._print(Text(", ".join(parts)))

    def close(self) -> None:
        self._output.file.flush()

    def _line(self, text: str, style: str = "") -> None:
        if self._verbosity != Verbosity.QUIET:
            self._print(Text(mask(text), style=style))

    def _print(self, part: RenderableType) -> None:
        self._output.print(part, soft_wrap=isinstance(part, Text))


class LiveConsole(PlainConsole):
    """A table of what runs, renewed in place, with notes and errors above it; at the end only the rest stays."""

    def __init__(self, output: Output, verbosity: Verbosity) -> None:
        super().__init__(output, verbosity)
        self._rows: tuple[Row, ...] = ()  # replaced as a whole: the thread that draws never sees half a change
        self._live: Live | None = None
        self._begun = time.monotonic()
        self._waiting_for = ""

    def plan(self, *, experiment: str, sweep: str, trials: int, ledger: Ledger) -> None:
        super().plan(experiment=experiment, sweep=sweep, trials=trials, ledger=ledger)
        self._rows = ledger.rows
        self._live = Live(
            get_renderable=lambda: self._draw(ledger),
            console=self._output,
            refresh_per_second=_REFRESH_PER_S,
            transient=True,
        )
        self._live.start()

    def note(self, text: str) -> None:
        super().note(text)
        self._waiting_for = text

    def event(self, event: Event, ledger: Ledger) -> None:
        self._rows = ledger.rows
        if isinstance(event, Started):
            self._waiting_for = ""
        if self._verbosity == Verbosity.VERBOSE or isinstance(event, Restarted):
            super().event(event, ledger)
        elif isinstance(event, Ended) and (fault := ledger.row(event.trial_id).fault):
            self._error(event.trial_id, fault)

    def final(self, ledger: Ledger, ending: Ending) -> None:
        self.close()
        super().final(ledger, ending)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        super().close()

    def _draw(self, ledger: Ledger) -> RenderableType:
        rows = self._rows
        counts = {status: sum(row.status == status for row in rows) for status in TrialStatus}
        ended = sum(count for status, count in counts.items() if status.has_ended())
        states = ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in counts.items() if count)
        total = max(self._trials, len(rows))
        line = f"{ended} of {total} ended ({states}), {duration(time.monotonic() - self._begun)}"
        if not any(row.started for row in rows):
            return Text(line, style="dim")
        return Group(
            Text(""),
            tables.live(rows, ledger, limit=_ROWS_LIVE, width=self._output.width),
            Text(""),
            Text(line, style="dim"),
        )


def _clock(event: Event) -> str:
    return time.strftime("%H:%M:%S", time.localtime(event.time))


def _place(row: Row) -> str:
    batch = row.config.get("batch_size", UNKNOWN)
    return f"{device_name(row.device)}, {precision_name(row.requested, row.effective)}, batch size {batch}"
