"""The one family of errors that are the user's to fix, and the signal that ends a trial early."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """What the user can fix. Each fault is a line that names field, value and what is allowed.

    The command shows the faults without a traceback and ends with `exit_code`.
    """

    exit_code = 2

    def __init__(self, *faults: str) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults

    def __reduce__(self) -> tuple[type[UserError], tuple[str, ...]]:
        return type(self), self.faults


class ExperimentError(UserError):
    """The experiment file, or a setting that the command line gave it, is wrong."""


class ClusterError(UserError):
    """The Ray cluster cannot be reached or used."""


class TrackingError(UserError):
    """The tracking store cannot be reached or written."""


class StorageError(UserError):
    """The storage folder cannot be used."""


class DataError(UserError):
    """The rows of a dataset cannot be divided as the trial asks."""


class StopTrial(BaseException):
    """Ends the train function early, raised by `run.report` on every worker alike.

    Like `KeyboardInterrupt` it is no `Exception`, so that a train function that catches its own errors
    does not catch this one by accident.
    """


def nearest(word: str, known: Iterable[str]) -> str:
    """' (did you mean "epochs"?)' for the known word most like `word`, else nothing."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f' (did you mean "{found[0]}"?)' if found else ""
