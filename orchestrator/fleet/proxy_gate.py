"""Whether the proxies of Tune's trials may hear of anything yet."""

from __future__ import annotations

import time


class ProxyGate:
    """Closed until all the proxies that are expected have brought a trial, or the last is too late.

    A trial that ends while other proxies still start makes Tune start a process for every trial from then on.
    """

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self.expected = 0
        self._first: float | None = None

    def see_first(self) -> bool:
        """A proxy has brought a trial; whether it was the first."""
        is_first = self._first is None
        if is_first:
            self._first = time.monotonic()
        return is_first

    def is_open(self, proxies: int) -> bool:
        """`proxies` have brought a trial so far."""
        late = self._first is not None and time.monotonic() - self._first >= self.patience_s
        return late or proxies >= self.expected
