"""SIGINT and SIGTERM during a sweep: the first asks it to stop in order, the second shortens the wait."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """A context in which the signals are counted instead of raised; works in the main thread."""

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._heard)
        return self

    def listen_again(self) -> None:
        """After something else, such as `ray.init`, has put handlers of its own in place."""
        for number in _SIGNALS:
            signal.signal(number, self._heard)

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
