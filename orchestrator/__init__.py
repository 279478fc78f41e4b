"""Which hardware, which precision, which batch size? One experiment file, one command, one answer."""

from orchestrator.errors import StopTrial, UserError
from orchestrator.experiment import Experiment
from orchestrator.run_context import Run

__all__ = ["Experiment", "Run", "StopTrial", "UserError"]
