"""The tensors inside nested batches, states and outputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch


def map_tensors(function: Callable[[torch.Tensor], Any], value: Any) -> Any:
    """`value` with each tensor in it replaced. Tuples, lists and mappings keep their types, also a model's own
    ones; all else stays the same object."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, Mapping):
        changed: Any = copy.copy(value)
        for key, item in value.items():
            changed[key] = map_tensors(function, item)
        return changed
    if isinstance(value, list | tuple):
        items = [map_tensors(function, item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value
