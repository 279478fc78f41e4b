"""The file with all that continuing a torch trial needs: CPU tensors only, so that any machine can read it."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import torch

from orchestrator.frameworks.torch_nested import map_leaves

_NAME = "state.pt"


def save_state(folder: Path, state: Mapping[str, Any], device: torch.device) -> None:
    """`state` holds numbers, texts and tensors in dicts, lists and tuples; `device` is what it was trained on.

    Raises:
        TypeError: the safe loader would not take something in it.
    """
    plain = map_leaves(_plain, dict(state))
    torch.save({**plain, "device": str(device), "torch": str(torch.__version__)}, folder / _NAME)
    try:
        load_progress(folder)
    except pickle.UnpicklingError as error:
        reason = next((line for line in str(error).splitlines() if "Unsupported" in line), str(error)).strip()
        raise TypeError(
            f"the state of what was given to run.prepare holds more than numbers, texts and tensors: {reason}"
        ) from None


def load_state(folder: Path) -> dict[str, Any]:
    """What `save_state` was given, and the `device` and the version of `torch`; read with the safe loader."""
    return torch.load(folder / _NAME, map_location="cpu", weights_only=True)


def load_progress(folder: Path) -> dict[str, int]:
    """The entry `progress` alone, without reading the tensors from the disk."""
    return torch.load(folder / _NAME, map_location="cpu", weights_only=True, mmap=True)["progress"]


def _plain(item: Any) -> Any:
    if isinstance(item, torch.Tensor):
        return item.detach().cpu()
    return item.item() if isinstance(item, numpy.generic) else item
