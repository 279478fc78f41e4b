"""The file with all that continuing a torch trial needs: CPU tensors only, so that any machine can read it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from orchestrator.frameworks.torch_tensors import map_tensors

_NAME = "state.pt"


def save_state(folder: Path, state: Mapping[str, Any], device: torch.device) -> None:
    """`state` holds numbers, texts and tensors in dicts, lists and tuples; `device` is what it was trained on."""
    moved = map_tensors(lambda tensor: tensor.detach().cpu(), dict(state))
    torch.save({**moved, "device": str(device), "torch": torch.__version__}, folder / _NAME)


def load_state(folder: Path) -> dict[str, Any]:
    """What `save_state` was given, and the `device` and the version of `torch`; read with the safe loader."""
    return torch.load(folder / _NAME, map_location="cpu", weights_only=True)


def load_progress(folder: Path) -> dict[str, int]:
    """The entry `progress` alone, without reading the tensors from the disk."""
    return torch.load(folder / _NAME, map_location="cpu", weights_only=True, mmap=True)["progress"]
