"""What every framework promises on every device type: see `orchestrator.frameworks.base`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from orchestrator.frameworks import Framework, Session, TrialSettings, WorkerFacts, create_framework
from orchestrator.precision import TABLE, Precision


class TorchObjects:
    """A model, its optimizer, a batch of rows and a loss, for the suite."""

    def __init__(self) -> None:
        self.rows = torch.arange(20, dtype=torch.float32).reshape(10, 2) / 20

    def make(self) -> tuple[Any, Any]:
        model = torch.nn.Linear(2, 1)
        return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def loss(self, model: Any, batch: Any) -> Any:
        return model(batch[0]).square().mean()

    def weights(self, model: Any) -> list[float]:
        return [number for weight in model.parameters() for number in weight.detach().cpu().flatten().tolist()]


KINDS = [
    pytest.param(("torch", "cpu", TorchObjects), id="torch-cpu"),
    pytest.param(
        ("torch", "gpu", TorchObjects),
        id="torch-gpu",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
        ],
    ),
]


class Kind:
    """A framework on a device type, started as in a worker."""

    def __init__(self, name: str, device_type: str, objects: Callable[[], TorchObjects]) -> None:
        self.name, self.device_type, self.objects = name, device_type, objects()
        self.framework: Framework = create_framework(name, device_type)
        self.framework.start(WorkerFacts(device_type=device_type, cpus=1))
        self.opened: list[Session] = []

    def session(self, precision: Precision = Precision.FP32, seed: int = 0) -> Session:
        self.opened.append(self.framework.session(TrialSettings(precision=precision, batch_size=4, seed=seed)))
        return self.opened[-1]

    def train(self, session: Session, epochs: int = 1, checkpoint: Path | None = None) -> Any:
        model, optimizer = session.prepare(self.objects.make(), checkpoint)
        for epoch in range(epochs):
            for batch in session.loader(
                self.objects.rows, shuffle=True, train=True, epoch=lambda number=epoch: number
            ):
                with session.autocast():
                    loss = self.objects.loss(model, batch)
                session.step(loss, optimizer, None, None)
        return model


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Iterator[Kind]:
    made = Kind(*request.param)
    yield made
    for session in reversed(made.opened):
        session.close()


def test_its_facts_name_the_version(kind):
    assert kind.framework.name == kind.name
    assert kind.framework.facts()["framework.version"]


def test_one_worker_sums_to_its_own_number(kind):
    assert kind.framework.sum_over_workers(3) == 3


def test_a_precision_of_the_table_is_the_effective_one(kind):
    for precision, support in TABLE[kind.name, kind.device_type].items():
        if support.supported:
            session = kind.session(precision)
            kind.train(session)
            assert session.facts()["precision.effective"] == precision
            session.close()


def test_objects_come_back_in_their_order(kind):
    model, optimizer = kind.objects.make()
    prepared = kind.session().prepare((optimizer, model), None)
    assert prepared[0] is optimizer and prepared[1] is not optimizer
    assert kind.session().prepare((), None) == ()


def test_training_batches_are_full_and_validation_has_every_row_once(kind):
    session = kind.session()
    for train, sizes in ((True, [4, 4]), (False, [4, 4, 2])):
        batches = list(session.loader(kind.objects.rows, shuffle=False, train=train, epoch=lambda: 0))
        assert [len(batch[0]) for batch in batches] == sizes
        found = [session.number(row[0]) for batch in batches for row in batch[0]]
        assert found == [session.number(row[0]) for row in kind.objects.rows[: sum(sizes)]]


def test_a_pass_asks_once_for_its_epoch(kind):
    asked: list[int] = []
    loader = kind.session().loader(
        kind.objects.rows, shuffle=True, train=True, epoch=lambda: len(asked) or asked.append(0) or 0
    )
    list(loader)
    assert asked == [0]


def test_the_seed_decides_everything(kind):
    def weights(seed: int) -> list[float]:
        session = kind.session(seed=seed)
        found = kind.objects.weights(kind.train(session, epochs=2))
        session.close()
        return found

    assert weights(1) == weights(1) != weights(2)


def test_a_saved_trial_is_restored(kind, tmp_path):
    session = kind.session()
    model = kind.train(session)
    assert session.save(tmp_path, {"epoch": 1, "step": 2})
    session.close()
    session = kind.session(seed=1)
    assert dict(session.progress(tmp_path)) == {"epoch": 1, "step": 2}
    restored = kind.train(session, epochs=0, checkpoint=tmp_path)
    assert kind.objects.weights(restored) == kind.objects.weights(model)


def test_one_workers_average_is_its_value(kind):
    assert kind.session().average(0.25, 3) == 0.25


def test_what_is_no_number_is_a_type_error(kind):
    session = kind.session()
    assert session.number(2) == 2.0
    for value in (None, "2", [2]):
        with pytest.raises(TypeError):
            session.number(value)


def test_measured_numbers_have_units_and_only_what_was_measured_is_there(kind):
    session = kind.session()
    assert "perf/samples_per_s" not in session.measured()
    kind.train(session, epochs=5)
    measured = session.measured()
    for name in ("samples_per_s", "step_time_s_p50", "step_time_s_p99", "train_time_s", "setup_time_s"):
        assert measured[f"perf/{name}"] > 0, name
    assert "perf/compile_time_s" not in measured
    assert all(isinstance(value, float) for value in measured.values())


def test_lack_of_memory_is_known_as_such(kind):
    assert kind.framework.is_out_of_memory(MemoryError())
    assert not kind.framework.is_out_of_memory(ValueError("memory"))


def test_a_framework_that_does_not_run_there_is_refused():
    with pytest.raises(ValueError, match="does not run on"):
        create_framework("torch", "abacus")
