"""Everything that is written down about a sweep while it runs: ledger, tracker, console, summary."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.options import Options
from orchestrator.report import summary as summaries
from orchestrator.report.answer import answer
from orchestrator.report.ending import Ending
from orchestrator.report.ledger import Ledger
from orchestrator.report.terminal import Console
from orchestrator.results import Ended, Event, SweepStatus
from orchestrator.sweep.preparation import Prepared, sweep_facts
from orchestrator.tracking.base import Tracker
from orchestrator.trial import Refused, Trial


@dataclass
class Recorder:
    """Hears of trials by `announce`, then of their events, and at last of the end. One thread uses it."""

    options: Options
    prepared: Prepared
    console: Console
    tracker: Tracker
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        rules = self.prepared.rules
        self.ledger = Ledger(objective=rules.objective, mode=rules.mode, swept=rules.swept)
        self._facts = sweep_facts(self.prepared)
        self._trials: dict[str, Trial] = {}
        self._is_closing = False

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Also a fault of ours leaves a summary and no record open; the command then ends with code 1 too."""
        if kind is not None and not self._is_closing:
            self._close(SweepStatus.PARTLY_FAILED)

    def open(self, trials: int) -> None:
        """The sweep begins, with so many trials as far as can be told."""
        experiment = self.prepared.experiment
        params = {"objective": experiment.objective, "mode": experiment.mode, **experiment.config}
        self.tracker.start(experiment.name, self.prepared.name, self._facts, params)
        self.console.plan(experiment=experiment.name, sweep=self.prepared.name, trials=trials, ledger=self.ledger)

    def announce(self, found: Trial | Refused) -> None:
        if isinstance(found, Trial):
            self.ledger.add(found)
            self._trials[found.id] = found
            return
        self.ledger.refuse(found)
        self.console.refused(found)
        if found.status is not None and found.id is not None:
            stand_in = Trial(id=found.id, config=found.config, placements=())
            self.tracker.add_trial(stand_in, self._facts_of(stand_in))
            self.tracker.refuse(found.id, found.status, found.reason)

    def event(self, event: Event) -> None:
        if trial := self._trials.pop(event.trial_id, None):
            self.tracker.add_trial(trial, self._facts_of(trial))
        self.ledger.record(event)
        self.tracker.record(event)
        self.console.event(event, self.ledger)
        if isinstance(event, Ended):
            for log in sorted(self._folder(event.trial_id).glob("log*.txt")):
                self.tracker.attach(event.trial_id, log)

    def close(self, *, interrupted: bool) -> SweepStatus:
        """Write the summary, close the tracker's record, print the end."""
        status = self.ledger.sweep_status(interrupted=interrupted)
        self._close(status)
        return status

    def _close(self, status: SweepStatus) -> None:
        self._is_closing = True
        self.tracker.end(status, self.ledger.counts())
        ending = Ending(
            experiment=self.prepared.experiment.name,
            sweep=self.prepared.name,
            folder=self.prepared.directory,
            status=status,
            wall_s=time.monotonic() - self.began,
            answer=answer(self.ledger),
            tracking=self.tracker.ids(),
            run_ids={row.id: self.tracker.run_id(row.id) for row in self.ledger.rows},
        )
        record = summaries.summary(self.ledger, ending)
        summaries.write(self.prepared.directory / "summary.json", record)
        self.console.final(self.ledger, ending)
        if self.options.json:
            summaries.publish(self.options.json, record)

    def _folder(self, trial_id: str) -> Path:
        return self.prepared.directory / "trials" / trial_id

    def _facts_of(self, trial: Trial) -> dict[str, str]:
        return {
            **self._facts,
            "trial.id": trial.id,
            "config.hash": trial.hash,
            "seed": str(trial.config["seed"]),
            "repeat": str(trial.repeat),
            "precision.requested": str(trial.config["precision"]),
            "batch.global": str(trial.config["batch_size"]),
        }
