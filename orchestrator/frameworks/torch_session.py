"""One trial of PyTorch on one worker."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from orchestrator.frameworks.base import Session, TrialSettings, WorkerFacts
from orchestrator.frameworks.torch_checkpoint import load_progress, load_state, save_state
from orchestrator.frameworks.torch_clock import clock_for
from orchestrator.frameworks.torch_compiler import compiled
from orchestrator.frameworks.torch_data import TorchLoader, as_dataset
from orchestrator.frameworks.torch_precision import TorchPrecision
from orchestrator.frameworks.torch_random import random_states, seed_everything, set_random_states
from orchestrator.frameworks.torch_share import Share
from orchestrator.frameworks.torch_state import TorchState, uses_tf32
from orchestrator.frameworks.torch_update import update_at
from orchestrator.measure.process_memory import PeakMemory
from orchestrator.measure.step_timer import speed

_LEFT_BYTES = 256 * 2**20  # memory of a device that a trial may leave in use: caches of libraries


class TorchSession(Session):
    """Prepared models, optimizers and schedules are kept in their order, and saved and restored by it."""

    device: torch.device

    def __init__(self, settings: TrialSettings, worker: WorkerFacts, device: torch.device) -> None:
        self._opened = time.perf_counter()
        self._before = TorchState.capture()
        self._memory, self._bytes_before = PeakMemory(), _allocated_bytes(device)
        self._settings, self._worker, self.device = settings, worker, device
        self._precision = TorchPrecision(settings.precision, device)
        self._update = update_at(settings.precision, device)
        self._clock = clock_for(device)
        self._objects: list[Any] = []
        self._optimizer: torch.optim.Optimizer | None = None
        self._first_rate = 0.0
        self._facts: dict[str, str] = {}
        seed_everything(settings.seed)

    def prepare(self, objects: tuple[Any, ...], checkpoint: Path | None) -> tuple[Any, ...]:
        """May be called several times: a checkpoint holds the objects of all calls, in their order.

        Raises:
            TypeError: an object has no state to save.
            ValueError: the checkpoint is of other objects.
        """
        for item in objects:
            if not hasattr(item, "state_dict"):
                raise TypeError(f"run.prepare takes models, optimizers and schedules, not a {type(item).__name__}")
        for item in objects:
            if isinstance(item, nn.Module):
                item.to(self.device)
                self._precision.apply(item)
        first = len(self._objects)
        self._objects += objects
        if checkpoint is not None:
            self._restore(first, load_state(checkpoint))
        elif self._worker.rank:  # the weights are made: from now on the workers draw differently
            seed_everything(self._settings.seed + self._worker.rank)
        return tuple(self._wrapped(item) if isinstance(item, nn.Module) else item for item in objects)

    def loader(
        self, dataset: Any, *, shuffle: bool, train: bool, epoch: Callable[[], int], **options: Any
    ) -> TorchLoader:
        """Raises DataError where the rows do not do for the workers and the batch."""
        rows = as_dataset(dataset)
        share = Share(
            rows=len(rows),  # type: ignore[arg-type]
            batch_size=self._settings.batch_size,
            rank=self._worker.rank,
            workers=self._worker.workers,
            train=train,
        )
        if train:
            self._facts |= {
                "rows.train": str(share.rows),
                "rows.dropped": str(share.rows_dropped),
                "steps_per_epoch": str(share.steps),
            }
        else:
            self._facts["rows.validation"] = str(share.rows)
        return TorchLoader(
            rows,
            share,
            device=self.device,
            shuffle=shuffle,
            seed=self._settings.seed,
            epoch=epoch,
            begin=self._clock.begin_pass if train else self._clock.begin_validation,
            end=self._clock.end_pass if train else self._clock.end_validation,
            **options,
        )

    def autocast(self) -> AbstractContextManager[Any]:
        return self._precision.autocast()

    def step(self, loss: Any, optimizer: Any, scheduler: Any = None, clip_norm: float | None = None) -> None:
        """Raises FloatingPointError where fp16 has overflowed in many steps in a row."""
        if self._optimizer is None:
            self._optimizer, self._first_rate = optimizer, float(optimizer.param_groups[0]["lr"])
            self._precision.find()
        self._update(loss, optimizer, scheduler, clip_norm)
        self._clock.end_step()

    def average(self, value: Any, count: Any) -> float:
        mean, rows = self.number(value), self.number(count)
        weighted = torch.tensor([mean * rows if rows else 0.0, rows], dtype=torch.float64, device="cpu")
        total, all_rows = sum_over_workers(weighted, self.device, self._worker.workers).tolist()
        if all_rows == rows:  # the other workers have none: exactly the value
            return mean if rows else float("nan")
        return total / all_rows

    def number(self, value: Any) -> float:
        if isinstance(value, str | bytes):
            raise TypeError("a text")
        if isinstance(value, torch.Tensor):
            if value.numel() != 1:
                raise TypeError(f"{value.numel()} values")
            value = value.item()
        return float(value)

    def save(self, directory: Path, progress: Mapping[str, int]) -> bool:
        self._clock.end_pass()  # also of one that went over the user's own loader
        state = {
            "objects": [item.state_dict() for item in self._objects],
            "kinds": [type(item).__name__ for item in self._objects],
            "update": self._update.state_dict(),
            "random": random_states(),
            "progress": dict(progress),
            "precision": str(self._settings.precision),
        }
        save_state(directory, state, self.device)
        return True

    def progress(self, checkpoint: Path) -> Mapping[str, int]:
        return load_progress(checkpoint)

    def facts(self) -> dict[str, str]:
        """Raises FloatingPointError where fp16 has overflowed in every step, so that nothing was trained."""
        self._update.check()
        facts = dict(self._facts)
        if self._precision.effective is not None:
            facts["precision.effective"] = self._precision.effective
        if self.device.type == "cuda":
            facts["precision.tf32"] = str(uses_tf32()).lower()
        return facts

    def measured(self) -> dict[str, float]:
        """Setup time ends with the first pass over the training data. Train time is that of the steps, without the
        time that torch.compile took, which is measured apart; validation time is that of the other passes."""
        found = {**compiled(), **self._update.measured()}
        times_s, validation_times_s = self._clock.times_s(), self._clock.validation_times_s()
        if (steady := speed(times_s, self._settings.batch_size)) is not None:
            found["perf/samples_per_s"] = steady.samples_per_s
            found["perf/step_time_s_p50"] = steady.step_time_s_p50
            found["perf/step_time_s_p99"] = steady.step_time_s_p99
        if self._clock.began is not None:
            found["perf/setup_time_s"] = self._clock.began - self._opened
        if times_s:  # the compiler works in the first step: where that was not timed, it is not in the sum either
            compiled_s = 0.0 if self._clock.untimed_steps else found.get("perf/compile_time_s", 0.0)
            found["perf/train_time_s"] = max(0.0, sum(times_s) - compiled_s)
        if validation_times_s:
            found["perf/validation_time_s"] = sum(validation_times_s)
        if (peak := self._peak_bytes()) is not None:
            found["perf/memory_peak_gib"] = peak / 2**30
        if self._optimizer is not None:
            found["train/lr_first"] = self._first_rate
            found["train/lr_last"] = float(self._optimizer.param_groups[0]["lr"])
        return found

    def close(self) -> None:
        """Raises RuntimeError where the trial leaves memory of the device in use."""
        self._precision.close()
        self._objects.clear()
        self._optimizer = None
        self._before.restore()
        if _allocated_bytes(self.device) - self._bytes_before > _LEFT_BYTES:
            gc.collect()
            torch.cuda.empty_cache()
        left = _allocated_bytes(self.device) - self._bytes_before
        if left > _LEFT_BYTES:
            raise RuntimeError(f"{left / 2**30:.1f} GiB of the device's memory are still in use after the trial")

    def _restore(self, first: int, saved: Mapping[str, Any]) -> None:
        """Bring the objects from number `first` on, and all else, to the state of a checkpoint."""
        objects = self._objects[first:]
        kinds, saved_kinds = [type(item).__name__ for item in objects], saved["kinds"][first:][: len(objects)]
        if kinds != saved_kinds:
            raise ValueError(f"the checkpoint holds {saved_kinds}, run.prepare was given {kinds}")
        for item, state in zip(objects, saved["objects"][first:], strict=False):
            item.load_state_dict(state)
        self._update.load_state_dict(saved["update"])
        set_random_states(saved["random"])
        if self._worker.rank:  # the states are those of rank 0
            seed_everything(self._settings.seed + self._worker.rank + (saved["progress"]["epoch"] << 20))

    def _wrapped(self, model: nn.Module) -> nn.Module:
        if self._worker.workers == 1 or not any(weight.requires_grad for weight in model.parameters()):
            return model
        return DistributedDataParallel(
            model, device_ids=[self.device.index] if self.device.type == "cuda" else None
        )

    def _peak_bytes(self) -> int | None:
        """Of the device's memory; on the CPU that of the process."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        return self._memory.bytes()


def sum_over_workers(values: torch.Tensor, device: torch.device, workers: int) -> torch.Tensor:
    """The sum of each value over all workers, on the CPU."""
    if workers == 1:
        return values
    moved = values.to(device)
    distributed.all_reduce(moved)
    return moved.cpu()


def _allocated_bytes(device: torch.device) -> int:
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
