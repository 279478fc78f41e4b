"""What lies inside nested batches, states and outputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """`value` with all in it replaced that is no tuple, list or mapping. These keep their types, also a model's
    own ones."""
    if isinstance(value, Mapping):
        changed: Any = copy.copy(value)
        for key, item in value.items():
            changed[key] = map_leaves(function, item)
        return changed
    if isinstance(value, list | tuple):
        items = [map_leaves(function, item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return function(value)
