"""Waiting for a change in shared state, within one asyncio loop, never without a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Changes:
    """Whoever changes the state calls `notify`; whoever waits looks at it again."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._timers: set[asyncio.Task[None]] = set()

    async def notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def until(self, condition: Callable[[], object], timeout_s: float) -> bool:
        """Wait for the condition, at most so long; whether it holds."""
        if condition():
            return True
        async with self._changed:
            try:
                await asyncio.wait_for(self._changed.wait_for(lambda: bool(condition())), timeout_s)
            except TimeoutError:
                return False
        return True

    def after(self, delay_s: float, act: Callable[[], Awaitable[None]]) -> None:
        """Act once, later."""

        async def wait_and_act() -> None:
            await asyncio.sleep(delay_s)
            await act()

        timer = asyncio.ensure_future(wait_and_act())
        self._timers.add(timer)
        timer.add_done_callback(self._timers.discard)
