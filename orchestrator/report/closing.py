"""What the console shows when a sweep has ended."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from orchestrator.masking import mask, mask_settings
from orchestrator.report import tables
from orchestrator.report.ending import Ending
from orchestrator.report.ledger import Ledger
from orchestrator.report.wording import duration, plural, value_text
from orchestrator.results import SweepStatus
from orchestrator.tracking.base import TrackingIds
from orchestrator.trial import Refused, flatten

_IDS_SHOWN = 5
_REASONS_SHOWN = 10


def closing(ledger: Ledger, ending: Ending, *, limit: int, width: int) -> Iterator[RenderableType]:
    """The comparison, what was left out, the errors, warnings, where it all is, and the answer last."""
    yield Text("")
    if ledger.rows:
        yield tables.comparison(ledger, best=ending.answer.trial, limit=limit, width=width)
        yield Text("")
    hidden = tables.hidden(ledger, limit)
    if hidden:
        yield Text(f"{plural(hidden, 'more trial')}: -v shows all, and so does summary.json", style="dim")
    yield from left_out(ledger.left_out)
    yield from _lines({row.id: row.fault for row in ledger.rows if row.fault}, "red")
    diverged = {row.id: f"diverged at epoch {row.diverged_at}" for row in ledger.rows if row.diverged_at}
    yield from _lines(diverged, "yellow")
    restarted = {row.id: "restarted: " + "; ".join(row.restarts) for row in ledger.rows if row.restarts}
    yield from _lines(restarted, "yellow")
    for name in ledger.never_read():
        yield Text(f"warning: the sweep varies {name}, but the train function never reads it", style="yellow")
    states = ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in ledger.counts().items() if count)
    how = ending.status.replace("_", " ")
    style = "green" if ending.status == SweepStatus.FINISHED else "yellow" if ledger.rows else "red"
    yield Text(f"Sweep {ending.sweep} {how} in {duration(ending.wall_s)}: {states or 'no trial'}", style=style)
    yield Text(f"Results: {_short(ending.folder)} (summary.json, trials/ID/log.txt)")
    if line := _tracking(ending.tracking):
        yield Text(line)
    yield Text(mask(ending.answer.sentence), style="bold")


def left_out(refused: Iterable[Refused]) -> Iterator[Text]:
    """Configurations that do not run, those with the same reason together."""
    by_reason: dict[tuple[str, str | None], list[Refused]] = {}
    for one in refused:
        by_reason.setdefault((one.reason, one.status), []).append(one)
    for (reason, status), alike in list(by_reason.items())[:_REASONS_SHOWN]:
        what = "left out" if status is None else status.replace("_", " ")
        points = f"{plural(len(alike), 'point')}" if len(alike) > 1 else _point(alike[0])
        yield Text(mask(f"{what}: {points}: {reason}"), style="yellow")
    if len(by_reason) > _REASONS_SHOWN:
        yield Text(f"and {plural(len(by_reason) - _REASONS_SHOWN, 'more reason')} in summary.json", style="yellow")


def _point(refused: Refused) -> str:
    flat = flatten(mask_settings(refused.config))
    names = [name for name in ("device", "precision", "batch_size") if name in flat]
    named = {**flat, **({"device": refused.device} if refused.device else {})}
    return ", ".join(f"{name} {value_text(named[name])}" for name in names)


def _lines(texts: Mapping[str, str], style: str) -> Iterator[Text]:
    """What there is to say of trials, the same text once with all the trials that it holds for."""
    by_text: dict[str, list[str]] = {}
    for trial_id, text in texts.items():
        by_text.setdefault(text, []).append(trial_id)
    for text, ids in by_text.items():
        more = f" and {len(ids) - _IDS_SHOWN} more" if len(ids) > _IDS_SHOWN else ""
        who = f"{'trial' if len(ids) == 1 else 'trials'} {', '.join(ids[:_IDS_SHOWN])}{more}"
        yield Text(mask(f"{who}: " + text.replace("\n", "\n  ")), style=style)


def _tracking(ids: TrackingIds) -> str | None:
    """How to open the records in MLflow."""
    uri = ids.tracking_uri
    if uri is None:
        return None
    if uri.startswith(("http://", "https://")):
        run = f"/runs/{ids.parent_run_id}" if ids.parent_run_id else ""
        return f"MLflow: {mask(uri).rstrip('/')}/#/experiments/{ids.experiment_id}{run}"
    return f"MLflow: mlflow ui --backend-store-uri {shlex.quote(mask(uri))}"


def _short(path: Path) -> str:
    """Relative to the current directory where the path is inside it."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
