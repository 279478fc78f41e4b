"""Trials that end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch_trial import TorchTrial


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., TorchTrial]]:
    """Begins a trial with such settings."""
    begun: list[TorchTrial] = []

    def begin_trial(config: dict[str, Any] | None = None, **options: Any) -> TorchTrial:
        begun.append(TorchTrial(tmp_path, config, **options))
        return begun[-1]

    yield begin_trial
    for trial in reversed(begun):
        trial.close()
