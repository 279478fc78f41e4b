"""What is asked for is what is computed, and what was computed is what is recorded."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from orchestrator.frameworks.torch_state import set_tf32, uses_tf32

INPUTS = torch.randn(8, 8)


def train_a_step(trial, model: nn.Module | None = None, autocast: bool = True, compiled: str = "no") -> nn.Module:
    model = model or nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 1))
    if compiled == "before":
        model = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer = trial.run.prepare(model, optimizer)
    if compiled == "after":
        model = torch.compile(model, backend="aot_eager")
    for _ in range(3):
        if autocast:
            with trial.run.autocast():
                loss = model(INPUTS).float().square().mean()
        else:
            loss = model(INPUTS).float().square().mean()
        trial.run.step(loss, optimizer)
    return model


@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16-true", "fp16"])
def test_the_effective_precision_is_found_on_real_tensors(begin, capsys, precision):
    trial = begin({"precision": precision})
    train_a_step(trial)
    assert trial.session.facts()["precision.effective"] == precision
    assert "warning" not in capsys.readouterr().err


def test_a_forgotten_autocast_is_found_and_said_once(begin, capsys):
    trial = begin({"precision": "bf16"})
    train_a_step(trial, autocast=False)
    assert trial.session.facts()["precision.effective"] == "fp32"
    assert capsys.readouterr().err.count("run.autocast()") == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_it_is_found_in_compiled_models_and_costs_no_further_graph(begin, when):
    trial = begin({"precision": "bf16"})
    train_a_step(trial, compiled=when)
    assert trial.session.facts()["precision.effective"] == "bf16"
    assert trial.session.measured()["perf/compile_count"] == 1


def test_layers_are_looked_at_no_longer_after_the_first_step(begin):
    model = train_a_step(begin())
    assert not any(layer._forward_hooks for layer in model.modules())


def test_validation_before_training_does_not_count(begin):
    trial = begin({"precision": "bf16"})
    model = nn.Linear(8, 1)
    model, optimizer = trial.run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
    with torch.no_grad():
        model(INPUTS)
    with trial.run.autocast():
        loss = model(INPUTS).float().mean()
    trial.run.step(loss, optimizer)
    assert trial.session.facts()["precision.effective"] == "bf16"


def test_a_model_without_products_has_no_known_precision(begin):
    trial = begin()
    train_a_step(trial, nn.LayerNorm(8))
    assert "precision.effective" not in trial.session.facts()


def test_weights_of_another_type_are_recorded_in_words(begin, capsys):
    trial = begin()
    train_a_step(trial, _Double())
    assert trial.session.facts()["precision.effective"] == "float64 weights, float64 products"
    assert "float64" in capsys.readouterr().err


class _Double(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 1, dtype=torch.float64)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(inputs.double())


def test_products_that_are_less_than_fp32_inside_are_found(begin, capsys):
    trial = begin()
    torch.set_float32_matmul_precision("medium")  # on the CPU: products of fp32 numbers in bf16
    if _products_are_exact():
        pytest.skip("this CPU has no fast bf16")
    train_a_step(trial)
    assert "bfloat16" in trial.session.facts()["precision.effective"]


def _products_are_exact() -> bool:
    number = 1 + 2**-12
    return bool((torch.full((64, 64), number) @ torch.eye(64)).eq(number).all())


def test_bf16_true_has_bf16_weights_and_fp32_at_both_ends(begin):
    trial = begin({"precision": "bf16-true"})
    model = trial.run.prepare(nn.Linear(8, 2))
    assert model.weight.dtype == torch.bfloat16
    assert model(INPUTS).dtype == torch.float32


@pytest.mark.parametrize(("precision", "tf32"), [("tf32", True), ("fp32", False), ("bf16", False)])
def test_tf32_is_on_where_it_is_asked_for_and_only_there(begin, precision, tf32):
    begin({"precision": precision})
    assert uses_tf32() is tf32
    assert torch.get_float32_matmul_precision() == ("high" if tf32 else "highest")
    assert torch.backends.cuda.matmul.allow_tf32 is torch.backends.cudnn.allow_tf32 is tf32


@pytest.mark.parametrize(
    "change",
    [
        "torch.backends.fp32_precision = 'tf32'",
        "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
        "torch.backends.cudnn.conv.fp32_precision = 'tf32'",
        "torch.backends.cudnn.fp32_precision = 'tf32'",
        "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'",
        "torch.set_float32_matmul_precision('medium')",
        "torch.backends.cuda.matmul.allow_tf32 = True",
        "torch.backends.cudnn.allow_tf32 = True",
    ],
)
def test_whichever_switch_a_trial_has_used_the_next_starts_in_full_fp32(change):
    exec(change)
    set_tf32(False)
    assert not uses_tf32()
    assert torch.get_float32_matmul_precision() == "highest"
    assert torch.backends.cuda.matmul.allow_tf32 is torch.backends.cudnn.allow_tf32 is False
    assert _products_are_exact()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_on_a_gpu_fp32_and_tf32_are_told_apart(begin, precision):
    trial = begin({"precision": precision}, device="gpu")
    model = nn.Linear(8, 1)
    model, optimizer = trial.run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
    trial.run.step(model(INPUTS.cuda()).mean(), optimizer)
    assert trial.session.facts()["precision.effective"] == precision
    assert trial.session.facts()["precision.tf32"] == str(precision == "tf32").lower()
