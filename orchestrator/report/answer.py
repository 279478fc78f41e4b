"""The answer of a sweep: its best trial, and why there is none where there is none."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.report.ledger import Ledger, Row
from orchestrator.report.wording import device_name, number, other_settings, plural, settings_text
from orchestrator.results import is_better

_SPEED = "perf/samples_per_s"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The best trial by the objective; `trial` is None where there is none, and `sentence` says why.

    `diverged` counts the trials that ended well but never had a finite objective.
    """

    objective: str
    mode: str
    sentence: str
    diverged: int = 0
    trial: str | None = None
    device: str | None = None
    precision: str | None = None
    batch_size: int | None = None
    value: float | None = None
    epoch: int | None = None


def answer(ledger: Ledger) -> Answer:
    """The trial with the best value; the fastest among equals; trials that failed are not ranked."""
    ended_well = [row for row in ledger.rows if row.status.has_result()]
    ranked = [row for row in ended_well if row.best is not None]
    diverged = len(ended_well) - len(ranked)
    if not ranked:
        sentence = f"No answer: {_why_none(ledger, diverged)}."
        return Answer(objective=ledger.objective, mode=ledger.mode, sentence=sentence, diverged=diverged)
    best, equals = _best(ranked, ledger.mode)
    assert best.best is not None
    precision = best.effective or best.requested
    return Answer(
        objective=ledger.objective,
        mode=ledger.mode,
        sentence=_sentence(best, equals, precision, ledger),
        diverged=diverged,
        trial=best.id,
        device=device_name(best.device),
        precision=precision,
        batch_size=best.config.get("batch_size"),
        value=best.best.value,
        epoch=best.best.epoch,
    )


def _best(ranked: list[Row], mode: str) -> tuple[Row, int]:
    """The winner, and how many other trials reached the same value."""
    best: float | None = None
    for row in ranked:
        if row.best and is_better(row.best.value, best, mode):
            best = row.best.value
    winners = [row for row in ranked if row.best and row.best.value == best]
    return max(winners, key=lambda row: row.measured.get(_SPEED, 0.0)), len(winners) - 1


def _sentence(row: Row, equals: int, precision: str, ledger: Ledger) -> str:
    assert row.best is not None
    others = settings_text(row.config, other_settings(ledger.swept))
    parts = [device_name(row.device), precision, f"batch size {row.config.get('batch_size')}", *others]
    tie = f" {plural(equals, 'other trial')} reached the same value; this one was the fastest." if equals else ""
    return (
        f"Best {ledger.objective} {number(row.best.value)} (epoch {row.best.epoch}): trial {row.id} on "
        f"{', '.join(parts)}.{tie}"
    )


def _why_none(ledger: Ledger, diverged: int) -> str:
    if diverged:
        return f"no trial has a finite {ledger.objective}; {plural(diverged, 'trial')} ended without one"
    counts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in ledger.counts().items() if count)
    return f"no trial finished ({counts})" if counts else "there was no trial to run"
