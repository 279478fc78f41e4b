"""The events of a sweep: on the driver's disk first, then kept until the driver has read them."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path

from orchestrator.journal import Journal
from orchestrator.results import Event

_GATHER_S = 0.1  # events come in bursts: one answer for many costs less than many answers


class EventLog:
    """Events are numbered from 1."""

    def __init__(self, path: Path) -> None:
        self._journal = Journal(path)
        self._kept: deque[tuple[int, Event]] = deque()
        self._has_news = asyncio.Event()
        self.last = 0

    def record(self, event: Event) -> asyncio.Future[None]:
        """Keep the event; the future is done once it is on disk."""
        self.last += 1
        self._kept.append((self.last, event))
        self._has_news.set()
        return asyncio.wrap_future(self._journal.append(event.record()))

    def close(self) -> None:
        self._journal.close()

    async def after(self, number: int, timeout_s: float) -> list[Event]:
        """Events with numbers above that one; waits at most so long for the first. Those before are forgotten."""
        while self._kept and self._kept[0][0] <= number:
            self._kept.popleft()
        if not self._kept and timeout_s > 0:
            self._has_news.clear()
            try:
                await asyncio.wait_for(self._has_news.wait(), timeout_s)
            except TimeoutError:
                return []
            await asyncio.sleep(_GATHER_S)
        return [event for _, event in self._kept]
