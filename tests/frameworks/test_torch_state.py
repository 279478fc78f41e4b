"""After a trial torch is as it was before it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.optimizer import _global_optimizer_pre_hooks as optimizer_hooks
from torch.optim.optimizer import register_optimizer_step_pre_hook

from orchestrator.frameworks.torch_state import TorchState

CHANGES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "default dtype": (lambda: torch.set_default_dtype(torch.float64), torch.get_default_dtype),
    "default device": (lambda: torch.set_default_device("meta"), torch.get_default_device),
    "threads": (lambda: torch.set_num_threads(3), torch.get_num_threads),
    "gradients": (lambda: torch.set_grad_enabled(False), torch.is_grad_enabled),
    "anomaly mode": (lambda: torch.autograd.set_detect_anomaly(True), torch.is_anomaly_enabled),
    "deterministic": (
        lambda: torch.use_deterministic_algorithms(True, warn_only=True),
        torch.get_deterministic_debug_mode,
    ),
    "cudnn benchmark": (
        lambda: setattr(torch.backends.cudnn, "benchmark", True),
        lambda: torch.backends.cudnn.benchmark,
    ),
    "cudnn deterministic": (
        lambda: setattr(torch.backends.cudnn, "deterministic", True),
        lambda: torch.backends.cudnn.deterministic,
    ),
    "attention kernels": (
        lambda: torch.backends.cuda.enable_flash_sdp(False),
        torch.backends.cuda.flash_sdp_enabled,
    ),
    "autocast left on": (
        lambda: torch.autocast("cpu", dtype=torch.bfloat16).__enter__(),
        lambda: torch.is_autocast_enabled("cpu"),
    ),
    "autocast type": (
        lambda: torch.set_autocast_dtype("cpu", torch.float16),
        lambda: torch.get_autocast_dtype("cpu"),
    ),
    "hooks of all modules": (
        lambda: nn.modules.module.register_module_forward_hook(lambda module, inputs, output: output + 1),
        lambda: nn.Identity()(torch.zeros(1)).item(),
    ),
    "hooks of all optimizers": (
        lambda: register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: None),
        lambda: len(optimizer_hooks),
    ),
    "autocast cache": (lambda: torch.set_autocast_cache_enabled(False), torch.is_autocast_cache_enabled),
    "random state": (lambda: torch.manual_seed(99), lambda: torch.get_rng_state().tolist()),
    "flushed denormals": (lambda: torch.set_flush_denormal(True), lambda: (torch.tensor([1e-40]) * 1).item()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_it_is_put_back(change):
    make, read = CHANGES[change]
    before = read()
    state = TorchState.capture()
    make()
    assert read() != before, "the change changes something"
    state.restore()
    assert read() == before


def test_an_autocast_that_was_never_left_caches_no_weights_for_the_next_trial():
    state = TorchState.capture()
    torch.autocast("cpu", dtype=torch.bfloat16).__enter__()
    state.restore()
    layer, one = nn.Linear(1, 1, bias=False), torch.ones(1, 1)
    for weight in (1.0, 2.0):
        nn.init.constant_(layer.weight, weight)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert layer(one).item() == weight


def test_a_function_is_compiled_in_every_trial_and_not_only_in_the_first_eight():
    def double(value: torch.Tensor, factor: int) -> torch.Tensor:
        return value * factor

    for trial in range(12):
        state = TorchState.capture()
        compiled = torch.compile(double, backend="eager", dynamic=False)
        compiled(torch.ones(2), trial + 2)
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
        state.restore()


def test_cycles_of_the_trial_are_collected_and_later_ones_too():
    class Node:
        alive = 0

        def __init__(self) -> None:
            self.me = self
            Node.alive += 1

        def __del__(self) -> None:
            Node.alive -= 1

    state = TorchState.capture()
    Node()
    state.restore()
    assert Node.alive == 0
    assert gc.get_freeze_count() == 0


def test_it_costs_little():
    """It comes on top of every trial; a trial may cost 30 ms in all."""
    costs = []
    for _ in range(5):
        began = time.perf_counter()
        TorchState.capture().restore()
        costs.append(time.perf_counter() - began)
    assert min(costs) < 0.01
