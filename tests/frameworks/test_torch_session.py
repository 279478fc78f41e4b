"""A trial of torch: prepared, measured, saved, and gone on with as if it had never stopped."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch_trial import TorchTrial, small_model

from orchestrator.frameworks.torch_checkpoint import load_state

GENERATOR = torch.Generator().manual_seed(0)
ROWS = torch.randn(50, 8, generator=GENERATOR), torch.randint(0, 3, (50,), generator=GENERATOR)


def train(trial: TorchTrial) -> list[nn.Module]:
    """A loop with momentum, a schedule, dropout and noise from each source of random numbers."""
    run, model = trial.run, small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 9])
    model, optimizer, schedule = run.prepare(model, optimizer, schedule)
    for _ in run.epochs():
        for inputs, targets in run.loader(ROWS):
            noise = random.random() + numpy.random.rand() + torch.rand(())
            with run.autocast():
                loss = functional.cross_entropy(model(inputs + 0.01 * noise), targets)
            run.step(loss, optimizer, schedule)
            run.log(step_loss=loss)
        run.report(loss=loss)
    return [model]


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([weight.flatten() for weight in model.parameters()])


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16", "bf16-true"])
def test_a_trial_that_goes_on_ends_as_one_that_never_stopped(tmp_path, precision):
    config = {"epochs": 4, "precision": precision}
    whole = TorchTrial(tmp_path / "whole", config)
    (expected,) = train(whole)
    whole.close()
    first = TorchTrial(tmp_path / "cut", {**config, "epochs": 2})
    train(first)
    first.close()
    random.random(), numpy.random.rand(3), torch.rand(3)
    second = TorchTrial(tmp_path / "cut", config, checkpoint=first.run.last_checkpoint)
    (model,) = train(second)
    second.close()
    assert first.channel.reports + second.channel.reports == whole.channel.reports
    assert weights(model).equal(weights(expected))
    steps = [step for _, _, step, _ in first.channel.logged + second.channel.logged]
    assert steps == list(range(1, 4 * 6 + 1))


def test_a_checkpoint_holds_cpu_tensors_and_where_they_come_from(begin):
    trial = begin({"precision": "fp16"})
    train(trial)
    assert trial.run.last_checkpoint is not None
    state = load_state(Path(trial.run.last_checkpoint))
    assert (state["device"], state["torch"], state["precision"]) == ("cpu", torch.__version__, "fp16")
    assert state["kinds"] == ["Sequential", "SGD", "MultiStepLR"]
    assert state["progress"] == {"epoch": 3, "step": 18}
    assert all(tensor.device.type == "cpu" for tensor in state["objects"][0].values())


def test_a_checkpoint_can_go_on_at_another_precision(begin):
    first = begin({"epochs": 1, "precision": "fp16"})
    train(first)
    second = begin({"epochs": 2, "precision": "bf16"}, checkpoint=first.run.last_checkpoint)
    train(second)
    assert len(second.channel.reports) == 1


def test_a_state_that_could_not_be_read_back_is_refused_at_the_first_report(begin):
    trial = begin()
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=numpy.float64(0.1))
    trial.run.prepare(model, optimizer)
    trial.run.report(loss=1)
    optimizer.param_groups[0]["note"] = Path("here")
    with pytest.raises(TypeError, match="Path"):
        trial.run.report(loss=1)
    begin(checkpoint=trial.run.last_checkpoint).run.prepare(model, optimizer)
    assert type(optimizer.param_groups[0]["lr"]) is float


def test_diverged_weights_are_saved_and_read_back(begin):
    trial = begin()
    model = trial.run.prepare(nn.Linear(2, 1))
    with torch.no_grad():
        model.weight.fill_(float("nan"))
    trial.run.report(loss=float("nan"))
    again = begin(checkpoint=trial.run.last_checkpoint).run.prepare(nn.Linear(2, 1))
    assert again.weight.isnan().all()


def test_objects_may_be_prepared_in_several_calls(begin):
    trial = begin()
    first, second = trial.run.prepare(nn.Linear(2, 1)), trial.run.prepare(nn.Linear(3, 1))
    trial.run.report(loss=1)
    trial = begin({"seed": 5}, checkpoint=trial.run.last_checkpoint)
    assert trial.run.prepare(nn.Linear(2, 1)).weight.equal(first.weight)
    assert trial.run.prepare(nn.Linear(3, 1)).weight.equal(second.weight)


def test_a_checkpoint_of_other_objects_is_refused_by_their_kinds(begin):
    trial = begin()
    trial.run.prepare(nn.Linear(2, 1))
    trial.run.report(loss=1)
    with pytest.raises(ValueError, match=r"Linear.*Conv1d"):
        begin(checkpoint=trial.run.last_checkpoint).run.prepare(nn.Conv1d(2, 1, 1))


def test_what_has_no_state_is_no_object_to_prepare(begin):
    with pytest.raises(TypeError, match="not a DataLoader"):
        begin().run.prepare(torch.utils.data.DataLoader([1]))


def test_the_seed_decides_the_weights(begin):
    def first_weights(seed: int) -> torch.Tensor:
        return weights(begin({"seed": seed}).run.prepare(small_model()))

    assert first_weights(1).equal(first_weights(1))
    assert not first_weights(1).equal(first_weights(2))


def test_all_ranks_make_the_same_weights_and_then_draw_differently(begin):
    def draws(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
        trial = begin(rank=rank)
        model = small_model()
        trial.run.prepare(model)
        return weights(model), torch.rand(3)

    (weights_0, noise_0), (weights_1, noise_1) = draws(0), draws(1)
    assert weights_0.equal(weights_1)
    assert not noise_0.equal(noise_1)


def test_one_workers_average_is_the_value_itself(begin):
    session = begin().session
    assert session.average(0.1, 3) == 0.1
    assert session.average(torch.tensor(0.5), torch.tensor(2)) == 0.5
    assert numpy.isnan(session.average(0.0, 0))


def test_numbers_of_all_kinds_are_metrics(begin):
    number = begin().session.number
    for value in (1, 1.0, True, torch.tensor(1), torch.tensor([[1.0]]), numpy.float32(1), numpy.array(1)):
        assert number(value) == 1.0
    for value in ("1", b"1", None, torch.zeros(2), [1]):
        with pytest.raises(TypeError):
            number(value)


def test_a_logged_tensor_keeps_its_value_though_it_is_changed_later(begin):
    trial = begin()
    total = torch.tensor(1.0)
    trial.run.log(total=total)
    total += 1
    trial.run.flush()
    assert trial.channel.logged[0][1] == 1.0


def test_speed_time_and_memory_are_measured(begin):
    trial = begin()
    time.sleep(0.05)
    began = time.perf_counter()
    train(trial)
    wall_s = time.perf_counter() - began
    measured = trial.session.measured()
    assert measured["perf/setup_time_s"] >= 0.05
    assert 0 < measured["perf/step_time_s_p50"] <= measured["perf/step_time_s_p99"] < wall_s
    assert 0 < measured["perf/train_time_s"] < wall_s
    assert measured["perf/samples_per_s"] > 8 / wall_s
    assert 0.05 < measured["perf/memory_peak_gib"] < 100


def test_validation_is_measured_apart_from_training(begin):
    trial = begin()
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = trial.run.prepare(model, optimizer)
    for _ in trial.run.epochs():
        for inputs, _ in trial.run.loader(ROWS):
            trial.run.step(model(inputs).mean(), optimizer)
        for _ in trial.run.loader(ROWS, train=False):
            time.sleep(0.03)
        trial.run.report(loss=0.0)
    measured = trial.session.measured()
    assert measured["perf/validation_time_s"] >= 3 * 0.03
    assert measured["perf/step_time_s_p99"] < 0.03


def test_steps_over_the_users_own_loader_are_timed_without_what_lies_between_epochs(begin):
    trial = begin()
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = trial.run.prepare(model, optimizer)
    for _ in trial.run.epochs():
        for _ in range(10):
            trial.run.step(model(torch.ones(8, 8)).mean(), optimizer)
        trial.run.report(loss=0.0)
        time.sleep(0.1)
    assert trial.session.measured()["perf/step_time_s_p99"] < 0.05


def test_the_first_optimizer_of_a_process_was_made_before_its_first_trial():
    code = """
        import sys, time
        from orchestrator.frameworks import WorkerFacts
        from orchestrator.frameworks.torch import Torch
        Torch().start(WorkerFacts(device_type="cpu"))
        import torch
        before = set(sys.modules)
        torch.optim.SGD(torch.nn.Linear(8, 8).parameters(), lr=0.1, momentum=0.9)
        print(sorted(name for name in set(sys.modules) - before if name.startswith("torch")))
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert answer.stdout.strip() == "[]"


def test_what_was_not_measured_is_absent(begin):
    measured = begin().session.measured()
    assert set(measured) <= {"perf/memory_peak_gib"}


def test_compiling_is_measured_apart_from_training(begin):
    trial = begin()
    model = torch.compile(nn.Linear(8, 1), backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = trial.run.prepare(model, optimizer)
    began = time.perf_counter()
    for inputs, _ in trial.run.loader(ROWS):
        trial.run.step(model(inputs).mean(), optimizer)
    wall_s = time.perf_counter() - began
    measured = trial.session.measured()
    assert measured["perf/compile_count"] == 1
    assert 0 < measured["perf/compile_time_s"] < wall_s
    assert measured["perf/train_time_s"] + measured["perf/compile_time_s"] <= wall_s


def test_lack_of_memory_is_told_from_other_errors():
    from orchestrator.frameworks.torch import Torch

    with pytest.raises(RuntimeError) as error:
        torch.empty(2**55, dtype=torch.uint8)
    assert Torch().is_out_of_memory(error.value)
    assert Torch().is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert Torch().is_out_of_memory(MemoryError())
    assert not Torch().is_out_of_memory(RuntimeError("shape mismatch"))


@pytest.mark.parametrize(("variable", "threads"), [(None, 3), ("1", 1)])
def test_threads_are_the_workers_cpus_unless_the_user_set_them(monkeypatch, variable, threads):
    from orchestrator.frameworks import WorkerFacts
    from orchestrator.frameworks.torch import Torch

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        if variable:
            monkeypatch.setenv("OMP_NUM_THREADS", variable)
        framework = Torch()
        framework.start(WorkerFacts(device_type="cpu", cpus=3))
        assert torch.get_num_threads() == threads
        assert framework.facts()["torch.threads"] == str(threads)
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_gpu_that_torch_cannot_use_is_an_error():
    from orchestrator.frameworks import WorkerFacts
    from orchestrator.frameworks.torch import Torch

    with pytest.raises(RuntimeError, match="torch sees none"):
        Torch().start(WorkerFacts(device_type="gpu"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_gpu_trial_goes_on_from_its_checkpoint_on_the_cpu_too(begin):
    trial = begin({"epochs": 2}, device="gpu")
    train(trial)
    measured = trial.session.measured()
    assert measured["perf/step_time_s_p50"] > 0 and measured["perf/memory_peak_gib"] > 0
    assert load_state(Path(trial.run.last_checkpoint))["device"] == "cuda:0"
    on_cpu = begin({"epochs": 3}, checkpoint=trial.run.last_checkpoint)
    train(on_cpu)
    assert len(on_cpu.channel.reports) == 1
