"""SIGINT and SIGTERM: before a sweep they end the command, in it they ask the sweep to stop in order."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """A context that hears the signals; works in the main thread. `count` tells how many came."""

    def __init__(self) -> None:
        self.count = 0
        self._holds = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        self._before = {number: signal.signal(number, self._heard) for number in _SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def hold(self) -> None:
        """From now on signals are counted and raise nothing.

        Raises:
            KeyboardInterrupt: one came before; a library that was being imported may have swallowed it.
        """
        if self.count:
            raise KeyboardInterrupt
        self._holds = True
        self.listen_again()

    def listen_again(self) -> None:
        """After something else, such as `ray.init`, has put handlers of its own in place."""
        for number in _SIGNALS:
            signal.signal(number, self._heard)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if not self._holds:
            raise KeyboardInterrupt
