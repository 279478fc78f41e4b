"""One update: what the same lines by hand would do, and what fp16 needs beyond that."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from orchestrator.frameworks.torch_update import MOST_SKIPS

INPUTS = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))


def prepared(trial) -> tuple[nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    return trial.run.prepare(model, optimizer, schedule)


def loss_of(trial, model: nn.Module, factor: float = 1.0) -> torch.Tensor:
    with trial.run.autocast():
        return (model(INPUTS) * factor).float().square().mean()


@pytest.mark.parametrize("clip_norm", [None, 0.01])
def test_it_does_what_the_lines_by_hand_do(begin, clip_norm):
    trial = begin()
    model, optimizer, schedule = prepared(trial)
    twin = nn.Linear(8, 1)
    twin.load_state_dict(model.state_dict())
    by_hand = torch.optim.SGD(twin.parameters(), lr=0.1)
    trial.run.step(loss_of(trial, model), optimizer, schedule, clip_norm)
    loss_of(trial, twin).backward()
    if clip_norm:
        norm = nn.utils.clip_grad_norm_(twin.parameters(), clip_norm)
        assert norm > clip_norm
    by_hand.step()
    assert model.weight.equal(twin.weight)
    assert optimizer.param_groups[0]["lr"] == 0.05
    assert model.weight.grad is None


def test_fp16_scales_the_loss_and_clips_what_is_unscaled(begin):
    trial = begin({"precision": "fp16"})
    model, optimizer, schedule = prepared(trial)
    before = model.weight.detach().clone()
    trial.run.step(loss_of(trial, model, factor=0.2), optimizer, schedule, 0.001)
    moved = (model.weight - before).detach().norm()
    assert 0 < moved <= 0.1 * 0.001 + 1e-6
    assert trial.session.measured()["train/skipped_steps"] == 0
    assert trial.session.measured()["train/loss_scale"] > 1


@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16-true"])
def test_other_precisions_do_not_scale(begin, precision):
    trial = begin({"precision": precision})
    model, optimizer, schedule = prepared(trial)
    trial.run.step(loss_of(trial, model), optimizer, schedule)
    assert "train/loss_scale" not in trial.session.measured()


def test_a_skipped_update_leaves_weights_and_schedule_and_is_counted(begin):
    trial = begin({"precision": "fp16"})
    model, optimizer, schedule = prepared(trial)
    before = model.weight.detach().clone()
    trial.run.step(loss_of(trial, model, factor=1e38), optimizer, schedule)
    assert model.weight.equal(before)
    assert optimizer.param_groups[0]["lr"] == 0.1
    trial.run.step(loss_of(trial, model), optimizer, schedule)
    assert not model.weight.equal(before)
    assert optimizer.param_groups[0]["lr"] == 0.05
    measured = trial.session.measured()
    assert (measured["train/skipped_steps"], measured["train/loss_scale"]) == (1.0, 2.0**15)


def test_a_run_that_only_skips_is_ended(begin):
    trial = begin({"precision": "fp16"})
    model, optimizer, schedule = prepared(trial)
    with pytest.raises(FloatingPointError, match=r"fp16.*loss scale"):
        for step in range(MOST_SKIPS):
            assert step < MOST_SKIPS
            trial.run.step(loss_of(trial, model, factor=float("inf")), optimizer, schedule)
    assert trial.session.measured()["train/skipped_steps"] == MOST_SKIPS


def test_a_short_trial_that_only_skipped_has_trained_nothing_and_says_so(begin):
    trial = begin({"precision": "fp16"})
    model, optimizer, schedule = prepared(trial)
    for _ in range(3):
        trial.run.step(loss_of(trial, model, factor=float("inf")), optimizer, schedule)
    with pytest.raises(FloatingPointError, match="each of the 3 optimizer updates"):
        trial.session.facts()


def test_a_good_update_between_starts_the_count_again(begin):
    trial = begin({"precision": "fp16"})
    model, optimizer, schedule = prepared(trial)
    for step in range(MOST_SKIPS + 10):
        factor = 1.0 if step % 20 == 0 else float("inf")
        trial.run.step(loss_of(trial, model, factor), optimizer, schedule)
    # More than would end the trial in a row; a good one may be skipped too while the scale is still at its start.
    assert MOST_SKIPS < trial.session.measured()["train/skipped_steps"] < MOST_SKIPS + 10


def test_the_learning_rate_that_was_used_is_measured(begin):
    trial = begin()
    model, optimizer, schedule = prepared(trial)
    for _ in range(2):
        trial.run.step(loss_of(trial, model), optimizer, schedule)
    measured = trial.session.measured()
    assert (measured["train/lr_first"], measured["train/lr_last"]) == (0.1, 0.025)
