"""PyTorch on CPUs and NVIDIA GPUs."""

from __future__ import annotations

import os

import torch

from orchestrator.frameworks.base import Framework, TrialSettings, WorkerFacts
from orchestrator.frameworks.torch_session import TorchSession, sum_over_workers

_KINDS = {"cpu": "cpu", "gpu": "cuda"}  # our device types -> torch's
_NO_MEMORY = ("DefaultCPUAllocator", "CUBLAS_STATUS_ALLOC_FAILED")


class Torch(Framework):
    """torch in one worker process. With several workers its process group is formed before the first trial."""

    name = "torch"

    def start(self, worker: WorkerFacts) -> None:
        """Raises RuntimeError where the worker was given a device that torch cannot use."""
        self._worker, self._device = worker, torch.device(_KINDS[worker.device_type])
        if self._device.type == "cuda":
            if not torch.cuda.is_available():
                raise RuntimeError(
                    "this worker was given a GPU, but torch sees none: is it a CUDA build that fits the driver?"
                )
            self._device = torch.device("cuda", worker.device_index)
            torch.cuda.set_device(self._device)
        torch.set_num_threads(_own_threads() or worker.cpus)
        # The first optimizer of a process imports the compiler, which takes seconds: now, not in the first trial.
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)

    def sum_over_workers(self, number: int) -> int:
        numbers = torch.tensor([number], dtype=torch.float64)
        return int(sum_over_workers(numbers, self._device, self._worker.workers).item())

    def facts(self) -> dict[str, str]:
        facts = {"framework.version": torch.__version__, "torch.threads": str(torch.get_num_threads())}
        if self._device.type == "cuda":
            facts["cuda.version"] = str(torch.version.cuda)
        return facts

    def session(self, settings: TrialSettings) -> TorchSession:
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)  # a trial may have chosen another
        return TorchSession(settings, self._worker, self._device)

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
            isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY)
        )


def _own_threads() -> int:
    """The threads that the user has set for OpenMP, or Ray, for which they are the worker's CPUs; 0 if none."""
    outermost = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(outermost) if outermost.isdigit() else 0
