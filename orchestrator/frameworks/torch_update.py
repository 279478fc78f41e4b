"""One optimizer update from a loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from orchestrator.precision import Precision

MOST_SKIPS = 50  # updates in a row


class Update:
    """Backward, clipping, step, schedule, and gradients dropped."""

    def __call__(self, loss: Any, optimizer: Any, scheduler: Any, clip_norm: float | None) -> None:
        loss.backward()
        if clip_norm is not None:
            _clip(optimizer, clip_norm)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        optimizer.zero_grad(set_to_none=True)

    def check(self) -> None:
        """Raises FloatingPointError where none of the updates was made."""

    def measured(self) -> dict[str, float]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on as the checkpoint's trial."""


class ScaledUpdate(Update):
    """The same with a scaled loss, so that small gradients do not vanish in fp16.

    An update whose gradients overflow is skipped, with its step of the schedule, and lowers the scale.
    """

    def __init__(self, device: torch.device) -> None:
        self._scaler = torch.amp.GradScaler(device.type)
        self._scale = self._scaler.get_scale()
        self._made = self._skipped = self._skipped_in_a_row = 0

    def __call__(self, loss: Any, optimizer: Any, scheduler: Any, clip_norm: float | None) -> None:
        """As every fp16 training it waits for the device: whether gradients overflowed decides what follows.

        Raises:
            FloatingPointError: there were only skipped updates for a long time.
        """
        self._scaler.scale(loss).backward()
        if clip_norm is not None:
            self._scaler.unscale_(optimizer)
            _clip(optimizer, clip_norm)
        self._scaler.step(optimizer)
        self._scaler.update()
        before, self._scale = self._scale, self._scaler.get_scale()
        if self._scale < before:
            self._skip()
        else:
            self._made += 1
            self._skipped_in_a_row = 0
            if scheduler is not None:
                scheduler.step()
        optimizer.zero_grad(set_to_none=True)

    def _skip(self) -> None:
        self._skipped += 1
        self._skipped_in_a_row += 1
        if self._skipped_in_a_row == MOST_SKIPS:
            raise FloatingPointError(
                f"{MOST_SKIPS} optimizer updates in a row overflowed in fp16 and were skipped (loss scale now "
                f"{self._scale:g}): the loss or its gradients are not finite"
            )

    def check(self) -> None:
        if self._skipped and not self._made:
            raise FloatingPointError(
                f"each of the {self._skipped} optimizer updates overflowed in fp16 and was skipped (loss scale "
                f"now {self._scale:g}): the model is untrained"
            )

    def measured(self) -> dict[str, float]:
        return {"train/skipped_steps": float(self._skipped), "train/loss_scale": self._scale}

    def state_dict(self) -> dict[str, Any]:
        return {"scaler": self._scaler.state_dict(), "made": self._made, "skipped": self._skipped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state:  # of a trial in fp16 as well
            self._scaler.load_state_dict(state["scaler"])
            self._scale, self._made, self._skipped = self._scaler.get_scale(), state["made"], state["skipped"]


def update_at(precision: Precision, device: torch.device) -> Update:
    return ScaledUpdate(device) if precision is Precision.FP16 else Update()


def _clip(optimizer: torch.optim.Optimizer, norm: float) -> None:
    nn.utils.clip_grad_norm_([weight for group in optimizer.param_groups for weight in group["params"]], norm)
