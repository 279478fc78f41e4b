"""The tables of the console: what is planned, what runs, and the comparison at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from orchestrator.masking import mask_settings
from orchestrator.report.ledger import Ledger, Row
from orchestrator.report.wording import (
    UNKNOWN,
    device_name,
    duration,
    milliseconds,
    number,
    other_settings,
    precision_name,
    seconds,
    value_text,
    whole,
)
from orchestrator.results import TrialStatus
from orchestrator.trial import Placement, Trial, flatten

_GAP = 2  # characters between two columns

STYLES = {
    TrialStatus.PENDING: "dim",
    TrialStatus.RUNNING: "cyan",
    TrialStatus.FINISHED: "green",
    TrialStatus.PRUNED: "dim green",
    TrialStatus.FAILED: "red",
    TrialStatus.DOES_NOT_FIT: "red",
    TrialStatus.INFEASIBLE: "yellow",
    TrialStatus.CANCELLED: "yellow",
}


@dataclass(frozen=True)
class Column:
    """A column and how a row fills it. Where the width does not suffice, spare ones go, the last first."""

    title: str
    cell: Callable[[Row], str]
    justify: JustifyMethod = "right"
    spare: bool = False


def comparison(ledger: Ledger, *, best: str | None, limit: int, width: int) -> Table:
    """All trials, those of a device type together, best first; at most `limit` rows a device type.

    The trial `best` has a star.
    """

    def objective(row: Row) -> str:
        value = number(row.best.value if row.best else row.metrics.get(ledger.objective))
        return f"{value} *" if row.id == best else f"{value}  " if best else value

    groups = [rows[:limit] for rows in _by_device(ledger)]
    columns = [
        *_settings_columns(ledger.swept),
        Column(ledger.objective, objective),
        Column("samples\nper s", lambda row: whole(row.measured.get("perf/samples_per_s"))),
        Column("step p50\n[ms]", lambda row: milliseconds(row.measured.get("perf/step_time_s_p50")), spare=True),
        Column("compile\n[s]", lambda row: seconds(row.measured.get("perf/compile_time_s")), spare=True),
        Column("set-up\n[s]", lambda row: seconds(row.measured.get("perf/setup_time_s")), spare=True),
        Column("status", _status, "left"),
    ]
    return _table(groups, columns, width, mark=best)


def live(ledger_rows: Sequence[Row], ledger: Ledger, *, limit: int, width: int) -> Table:
    """The trials that run, then those that ended last; at most `limit` rows."""
    running = [row for row in ledger_rows if row.status == TrialStatus.RUNNING]
    ended = sorted((row for row in ledger_rows if row.ended), key=lambda row: row.ended or 0.0, reverse=True)
    shown = [*running, *ended][:limit]
    columns = [
        *_settings_columns(ledger.swept),
        Column("epoch", _epoch),
        Column(ledger.objective, lambda row: number(row.metrics.get(ledger.objective))),
        Column("time", _elapsed, spare=True),
        Column("status", _status, "left"),
    ]
    return _table([shown], columns, width, mark=None)


def plan(trials: Iterable[Trial], swept: Sequence[str]) -> Table:
    """Every trial with its place: workers, and the batch split over them."""
    table = _empty()
    names = other_settings(swept)
    for title in ("trial", "device", "precision"):
        table.add_column(title)
    for title in ("batch\nsize", *names, "workers", "split", "CPUs per\nworker"):
        table.add_column(Text(title), no_wrap=True, justify="right")
    for trial in trials:
        flat = flatten(mask_settings(trial.config))
        places = [_place(trial, placement) for placement in trial.placements]
        cells = [" or ".join(dict.fromkeys(parts)) for parts in zip(*places, strict=True)]
        device, precision, workers, split, cpus = cells
        settings = [value_text(flat[name]) if name in flat else UNKNOWN for name in names]
        table.add_row(
            trial.id, device, precision, str(trial.config["batch_size"]), *settings, workers, split, cpus
        )
    return table


def _place(trial: Trial, placement: Placement) -> tuple[str, str, str, str, str]:
    shape = placement.shape
    parts = max(shape.workers, shape.devices)
    count = f"{shape.devices} x " if shape.devices > 1 else ""
    model = f" {shape.model}" if shape.model else ""
    asked = f" (asked {placement.converted_from})" if placement.converted_from else ""
    return (
        f"{count}{shape.device}{model}",
        f"{placement.precision}{asked}",
        str(shape.workers),
        f"{parts} x {trial.config['batch_size'] // parts}",
        str(shape.cpus_per_worker),
    )


def _settings_columns(swept: Sequence[str]) -> list[Column]:
    return [
        Column("trial", lambda row: row.id, "left"),
        Column("device", lambda row: device_name(row.device), "left"),
        Column("precision", lambda row: precision_name(row.requested, row.effective), "left"),
        Column("batch\nsize", lambda row: value_text(row.config.get("batch_size", UNKNOWN))),
        *(_setting_column(name) for name in other_settings(swept)),
    ]


def _setting_column(name: str) -> Column:
    def cell(row: Row) -> str:
        flat = flatten(mask_settings(row.config))
        return value_text(flat[name]) if name in flat else UNKNOWN

    return Column(name, cell, spare=True)


def _by_device(ledger: Ledger) -> list[list[Row]]:
    groups: dict[str | None, list[Row]] = {}
    for row in ledger.rows:
        groups.setdefault(row.device.type, []).append(row)
    sign = -1 if ledger.mode == "max" else 1

    def rank(row: Row) -> tuple[int, float]:
        if row.status.has_result() and row.best:
            return 0, sign * row.best.value
        return list(TrialStatus).index(row.status) + 1, 0.0

    return [sorted(rows, key=rank) for rows in groups.values()]


def _epoch(row: Row) -> str:
    return f"{row.epoch}/{row.config['epochs']}" if "epochs" in row.config else str(row.epoch)


def _elapsed(row: Row) -> str:
    return duration((row.ended or time.time()) - row.started) if row.started else UNKNOWN


def _status(row: Row) -> str:
    return row.status.replace("_", " ")


def _empty() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False, collapse_padding=True)


def _table(groups: Sequence[Sequence[Row]], columns: Sequence[Column], width: int, mark: str | None) -> Table:
    rows = [row for group in groups for row in group]
    known = [column for column in columns if any(column.cell(row).strip() != UNKNOWN for row in rows)]
    used = _fitting(known, rows, width)
    table = _empty()
    for column in used:
        table.add_column(Text(column.title), justify=column.justify, no_wrap=column.justify == "right")
    for group in groups:
        for row in group:
            texts = [Text(column.cell(row)) for column in used]
            texts[-1].stylize(STYLES[row.status])
            table.add_row(*texts, style="bold" if row.id == mark else "")
        table.add_section()
    return table


def _fitting(columns: Sequence[Column], rows: Sequence[Row], width: int) -> list[Column]:
    def needed(column: Column) -> int:
        return _GAP + max(len(text) for text in [*column.title.splitlines(), *(column.cell(row) for row in rows)])

    used = list(columns)
    while sum(map(needed, used)) - _GAP > width and (spare := [column for column in used if column.spare]):
        used.remove(spare[-1])
    return used


def hidden(ledger: Ledger, limit: int) -> int:
    """How many trials `comparison` leaves out with that limit."""
    return sum(max(0, len(rows) - limit) for rows in _by_device(ledger))
