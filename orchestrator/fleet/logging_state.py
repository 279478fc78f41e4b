"""Levels and handlers of Python's loggers, taken down and put back."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LoggingState:
    """All loggers with level, handlers, propagate and disabled; and which modules had been imported."""

    loggers: Mapping[logging.Logger, tuple[int, tuple[logging.Handler, ...], bool, bool]]
    disabled_up_to: int
    modules: frozenset[str]

    @classmethod
    def capture(cls) -> LoggingState:
        return cls(
            loggers={
                logger: (logger.level, tuple(logger.handlers), logger.propagate, logger.disabled)
                for logger in _loggers()
            },
            disabled_up_to=logging.root.manager.disable,
            modules=frozenset(sys.modules),
        )

    def restore(self) -> None:
        """Handlers that came since are removed and closed.

        A logger named like a module that was imported since is left alone: the import set it up, and is not
        done again for the next trial.
        """
        logging.disable(self.disabled_up_to)
        kept = {handler for _, handlers, _, _ in self.loggers.values() for handler in handlers}
        imported = sys.modules.keys() - self.modules
        for logger in _loggers():
            if logger not in self.loggers and logger.name in imported:
                continue
            level, handlers, propagate, disabled = self.loggers.get(logger, (logging.NOTSET, (), True, False))
            for handler in set(logger.handlers) - kept:
                handler.close()
            logger.handlers[:] = handlers
            logger.propagate, logger.disabled = propagate, disabled
            if logger.level != level:
                logger.setLevel(level)


def _loggers() -> list[logging.Logger]:
    named = list(logging.root.manager.loggerDict.values())
    return [logging.root, *(logger for logger in named if isinstance(logger, logging.Logger))]
