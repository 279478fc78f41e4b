"""What torch.compile did in a trial."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import torch


def compiled() -> Mapping[str, float]:
    """Graphs that were made since `forget_compiled` and the seconds it took; nothing where none was."""
    if "torch._dynamo" not in sys.modules:
        return {}
    graphs = torch._dynamo.utils.counters["stats"].get("unique_graphs", 0)
    if not graphs:
        return {}
    times = torch._dynamo.utils.calculate_time_spent()
    seconds = times.get("entire_frame_compile", 0.0) + times.get("entire_backward_compile", 0.0)
    return {"perf/compile_count": float(graphs), "perf/compile_time_s": seconds}


def forget_compiled() -> None:
    """The compiler keeps what it made for each function and stops after eight variants: without this, trials of
    one process would run uncompiled from the ninth on."""
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        torch._dynamo.utils.compilation_time_metrics.clear()
