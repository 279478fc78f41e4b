"""The events of a sweep: on the driver's disk first, then kept until the driver has read them."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path

from orchestrator.journal import Journal
from orchestrator.results import Event


class EventLog:
    """Events are numbered from 1."""

    def __init__(self, path: Path) -> None:
        self._journal = Journal(path)
        self._kept: deque[tuple[int, Event]] = deque()
        self.last = 0

    def record(self, event: Event) -> asyncio.Future[None]:
        """Keep the event; the future is done once it is on disk."""
        self.last += 1
        self._kept.append((self.last, event))
        return asyncio.wrap_future(self._journal.append(event.record()))

    def acknowledge(self, number: int) -> None:
        """Forget events up to that number."""
        while self._kept and self._kept[0][0] <= number:
            self._kept.popleft()

    def unread(self) -> list[Event]:
        return [event for _, event in self._kept]
