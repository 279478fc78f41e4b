"""How much memory this process took."""

from __future__ import annotations

from pathlib import Path

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_CLEAR_PEAK = "5"  # https://docs.kernel.org/filesystems/proc.html, 1.1


class PeakMemory:
    """The largest resident memory of this process since this object was made; known on Linux only."""

    def __init__(self) -> None:
        try:
            _CLEAR.write_text(_CLEAR_PEAK)
            self._is_known = True
        except OSError:  # another system, or a container that does not allow it
            self._is_known = False

    def bytes(self) -> int | None:
        if not self._is_known:
            return None
        lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
        peaks = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
        return next((int(kib) * 1024 for kib in peaks), None)
