"""PyTorch on CPUs and NVIDIA GPUs."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from orchestrator.frameworks.base import Framework, Session, TrialSettings, WorkerFacts
from orchestrator.frameworks.torch_clock import clock_for
from orchestrator.frameworks.torch_data import Share, TorchLoader, as_dataset
from orchestrator.frameworks.torch_precision import TorchPrecision, uses_tf32
from orchestrator.frameworks.torch_state import TorchState, random_states, seed_everything, set_random_states
from orchestrator.measure.step_timer import speed

_KINDS = {"cpu": "cpu", "gpu": "cuda"}  # our device types -> torch's
_MOST_SKIPS = 50  # optimizer steps in a row that loss scaling may skip
_STATE = "state.pt"


class Torch(Framework):
    """The framework in one process; see `TorchSession` for a trial."""

    name = "torch"

    def start(self, worker: WorkerFacts) -> None:
        """Raises RuntimeError where Ray gave the worker a device that torch cannot use."""
        self._worker = worker
        kind = _KINDS[worker.device_type]
        if kind == "cuda" and not torch.cuda.is_available():
            raise RuntimeError(
                "this worker was given a GPU, but torch sees none: is it a CUDA build that fits the driver?"
            )
        self._device = torch.device(kind, worker.device_index) if kind == "cuda" else torch.device(kind)
        if kind == "cuda":
            torch.cuda.set_device(self._device)
        if "OMP_NUM_THREADS" not in os.environ:  # else it is the user's, or Ray's, which is the worker's cores too
            torch.set_num_threads(worker.cpus)

    def sum_over_workers(self, number: int) -> int:
        return int(_sum(torch.tensor([float(number)], dtype=torch.float64), self._device, self._worker.workers)[0])

    def facts(self) -> dict[str, str]:
        facts = {"framework.version": torch.__version__, "torch.threads": str(torch.get_num_threads())}
        if self._device.type == "cuda":
            facts["cuda.version"] = str(torch.version.cuda)
        return facts

    def session(self, settings: TrialSettings) -> TorchSession:
        return TorchSession(settings, self._worker, self._device)

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, torch.OutOfMemoryError) or (
            isinstance(error, RuntimeError) and "not enough memory: you tried to allocate" in str(error)
        )


class TorchSession(Session):
    """One trial. Prepared models, optimizers and schedules are kept in their order, and saved by it."""

    def __init__(self, settings: TrialSettings, worker: WorkerFacts, device: torch.device) -> None:
        self._before = TorchState.capture()
        self._settings, self._worker, self.device = settings, worker, device
        self._precision = TorchPrecision(settings.precision, device.type)
        self._scaler = self._precision.scaler
        self._clock = clock_for(device)
        self._opened = time.perf_counter()
        self._objects: tuple[Any, ...] = ()
        self._optimizer: torch.optim.Optimizer | None = None
        self._skipped = self._skipped_in_a_row = 0
        self._facts: dict[str, str] = {}
        self.autocast: Callable[[], AbstractContextManager[Any]] = self._precision.autocast  # type: ignore[method-assign]
        seed_everything(settings.seed)

    def prepare(self, objects: tuple[Any, ...], checkpoint: Path | None) -> tuple[Any, ...]:
        """Raises TypeError for an object that has no state to save."""
        for item in objects:
            if not hasattr(item, "state_dict"):
                raise TypeError(f"run.prepare takes models, optimizers and schedules, not a {type(item).__name__}")
        for item in objects:
            if isinstance(item, nn.Module):
                item.to(self.device)
                self._precision.apply(item)
        self._objects = objects
        saved = self._load(checkpoint) if checkpoint else None
        if saved is not None:
            for item, state in zip(objects, saved["objects"], strict=True):
                item.load_state_dict(state)
            if self._scaler:
                self._scaler.load_state_dict(saved["scaler"])
        prepared = tuple(self._wrapped(item) if isinstance(item, nn.Module) else item for item in objects)
        if saved is not None:
            set_random_states(saved["random"])
        elif self._worker.rank:
            seed_everything(self._settings.seed + self._worker.rank)  # the weights are made: now the ranks differ
        return prepared

    def _wrapped(self, model: nn.Module) -> nn.Module:
        if self._worker.workers == 1 or not any(weight.requires_grad for weight in model.parameters()):
            return model
        return DistributedDataParallel(
            model, device_ids=[self.device.index] if self.device.type == "cuda" else None
        )

    def loader(
        self, dataset: Any, *, shuffle: bool, train: bool, epoch: Callable[[], int], **options: Any
    ) -> TorchLoader:
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
            begin=self._clock.begin_pass if train else _nothing,
            **options,
        )

    def autocast(self) -> AbstractContextManager[Any]:  # replaced in __init__ by the precision's own
        return self._precision.autocast()

    def step(self, loss: Any, optimizer: Any, scheduler: Any = None, clip_norm: float | None = None) -> None:
        """Raises FloatingPointError when loss scaling has skipped only steps for a long time."""
        if self._scaler is not None:
            self._scaled_step(loss, optimizer, scheduler, clip_norm)
        else:
            loss.backward()
            if clip_norm is not None:
                _clip(optimizer, clip_norm)
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
            optimizer.zero_grad()
        self._optimizer = optimizer
        self._clock.end_step()

    def _scaled_step(self, loss: Any, optimizer: Any, scheduler: Any, clip_norm: float | None) -> None:
        assert self._scaler is not None
        self._scaler.scale(loss).backward()
        if clip_norm is not None:
            self._scaler.unscale_(optimizer)
            _clip(optimizer, clip_norm)
        scale = self._scaler.get_scale()
        self._scaler.step(optimizer)
        self._scaler.update()
        if self._scaler.get_scale() < scale:  # it found an overflow and skipped the step
            self._skipped += 1
            self._skipped_in_a_row += 1
            if self._skipped_in_a_row >= _MOST_SKIPS:
                raise FloatingPointError(
                    f"{_MOST_SKIPS} optimizer steps in a row overflowed in fp16 (loss scale now "
                    f"{self._scaler.get_scale():g}): the loss or its gradients are not finite"
                )
        else:
            self._skipped_in_a_row = 0
            if scheduler is not None:
                scheduler.step()
        optimizer.zero_grad()

    def average(self, value: Any, count: Any) -> float:
        value, count = self.number(value), self.number(count)
        if self._worker.workers == 1:
            return value
        weighted = torch.tensor([value * count if count else 0.0, count], dtype=torch.float64)
        total, rows = _sum(weighted, self.device, self._worker.workers).tolist()
        return total / rows if rows else float("nan")

    def number(self, value: Any) -> float:
        return float(value.item() if isinstance(value, torch.Tensor) else value)

    def save(self, directory: Path, progress: Mapping[str, int]) -> bool:
        state = {
            "objects": [_on_cpu(item.state_dict()) for item in self._objects],
            "kinds": [type(item).__name__ for item in self._objects],
            "scaler": self._scaler.state_dict() if self._scaler else {},
            "random": random_states(),
            "progress": dict(progress),
            "device": str(self.device),
            "precision": str(self._settings.precision),
            "torch": torch.__version__,
        }
        torch.save(state, directory / _STATE)
        return True

    def progress(self, checkpoint: Path) -> Mapping[str, int]:
        return self._load(checkpoint)["progress"]

    @staticmethod
    def _load(checkpoint: Path) -> dict[str, Any]:
        return torch.load(checkpoint / _STATE, map_location="cpu", weights_only=True)

    def facts(self) -> dict[str, str]:
        facts = dict(self._facts)
        effective = self._precision.effective
        if effective is not None:
            facts["precision.effective"] = str(effective)
            if effective != self._settings.precision:
                print(
                    f"warning: the trial was to train at {self._settings.precision}, but its first product was "
                    f"computed at {effective}: is the model called inside run.autocast()?",
                    file=sys.stderr,
                )
        if self.device.type == "cuda":
            facts["precision.tf32"] = str(uses_tf32()).lower()
        return facts

    def measured(self) -> dict[str, float]:
        found: dict[str, float] = {}
        if (steady := speed(self._clock.times_s(), self._settings.batch_size)) is not None:
            found["perf/samples_per_s"] = steady.samples_per_s
            found["perf/step_time_s_p50"] = steady.step_time_s_p50
            found["perf/step_time_s_p99"] = steady.step_time_s_p99
        if self._clock.began is not None and self._clock.ended is not None:
            found["perf/setup_time_s"] = self._clock.began - self._opened
            found["perf/train_time_s"] = self._clock.ended - self._clock.began
        found |= _compiled()
        found["perf/memory_peak_gib"] = self._memory_peak_bytes() / 2**30
        if self._optimizer is not None:
            found["train/lr"] = float(self._optimizer.param_groups[0]["lr"])
        if self._scaler is not None:
            found["train/skipped_steps"] = float(self._skipped)
            found["train/loss_scale"] = self._scaler.get_scale()
        return found

    def _memory_peak_bytes(self) -> float:
        """Of the device; on the CPU the largest size that the process ever had."""
        if self.device.type == "cuda":
            return float(torch.cuda.max_memory_allocated(self.device))
        unit = 1 if sys.platform == "darwin" else 1024
        return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)

    def close(self) -> None:
        self._precision.close()
        self._objects, self._optimizer = (), None
        self._before.restore()


def _nothing() -> None:
    """A pass that is not timed begins."""


def _sum(values: torch.Tensor, device: torch.device, workers: int) -> torch.Tensor:
    """The sum of the values over all workers, on the CPU."""
    if workers == 1:
        return values
    moved = values.to(device)
    distributed.all_reduce(moved)
    return moved.cpu()


def _clip(optimizer: torch.optim.Optimizer, norm: float) -> None:
    nn.utils.clip_grad_norm_([weight for group in optimizer.param_groups for weight in group["params"]], norm)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, Mapping):
        return {key: _on_cpu(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_on_cpu(item) for item in value)
    return value


def _compiled() -> dict[str, float]:
    """Graphs that torch.compile has made in this trial and the time it took; nothing where it was not used."""
    if "torch._dynamo" not in sys.modules:
        return {}
    counters = torch._dynamo.utils.counters["stats"]
    times = torch._dynamo.utils.calculate_time_spent()
    if not counters.get("unique_graphs"):
        return {}
    return {
        "perf/compile_count": float(counters["unique_graphs"]),
        "perf/compile_time_s": float(times.get("entire_frame_compile", times.get("total_wall_time", 0.0))),
    }
