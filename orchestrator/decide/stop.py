"""When a trial is stopped for what it reports itself."""

from __future__ import annotations

from orchestrator.results import Reported, is_finite
from orchestrator.trial import Rules


def stop_reason(report: Reported, rules: Rules) -> str | None:
    """Why the trial ends with this report; None if it goes on."""
    lost = [name for name, value in report.metrics.items() if not is_finite(value)]
    if rules.on_divergence == "stop" and lost:
        return f"diverged in epoch {report.epoch}: {', '.join(lost)}"
    return None
