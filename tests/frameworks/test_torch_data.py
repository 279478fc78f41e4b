"""Who gets which rows, in which order, as what."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from itertools import chain

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from orchestrator.errors import DataError
from orchestrator.frameworks.torch_share import Share

ROWS = torch.arange(21)


class Squares(Dataset):
    """Rows that are made one by one, with a random number each and the process that made them."""

    def __init__(self, rows: int = 21) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> dict[str, object]:
        return {
            "row": row,
            "square": float(row**2),
            "random": torch.rand(()).item(),
            "is_child": multiprocessing.parent_process() is not None,
        }


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[int]:
        return iter(range(8))

    def __len__(self) -> int:
        return 8


def shares(rows: int, batch_size: int, workers: int, train: bool) -> list[list[list[int]]]:
    """The rows of each step of each worker."""
    return [
        [
            batch.tolist()
            for batch in Share(rows=rows, batch_size=batch_size, rank=rank, workers=workers, train=train).batches(
                torch.arange(rows)
            )
        ]
        for rank in range(workers)
    ]


@pytest.mark.parametrize("workers", [1, 2, 3, 6])
@pytest.mark.parametrize("rows", [12, 13, 23, 24, 100])
def test_workers_together_take_the_batches_of_one_worker_in_training(rows, workers):
    (alone,) = shares(rows, 12, 1, train=True)
    together = shares(rows, 12, workers, train=True)
    assert [[*chain(*parts)] for parts in zip(*together, strict=True)] == alone
    assert all(len(batch) == 12 // workers for worker in together for batch in worker)
    assert len(alone) == rows // 12


@pytest.mark.parametrize("workers", [1, 2, 3, 6])
@pytest.mark.parametrize("rows", [6, 7, 12, 13, 23, 24, 25, 31, 100])
@pytest.mark.parametrize("batch_size", [6, 12])
def test_every_row_of_validation_comes_once_in_equally_many_steps(rows, workers, batch_size):
    found = shares(rows, batch_size, workers, train=False)
    assert sorted(row for worker in found for batch in worker for row in batch) == list(range(rows))
    assert len({len(worker) for worker in found}) == 1
    assert all(batch for worker in found for batch in worker)
    assert all(len(batch) <= batch_size // workers + 1 for worker in found for batch in worker)


@pytest.mark.parametrize(("rows", "train"), [(7, True), (1, False), (0, False)])
def test_too_few_rows_are_refused_with_the_numbers(rows, train):
    with pytest.raises(DataError) as error:
        Share(rows=rows, batch_size=8, rank=0, workers=2, train=train)
    for part in (f"{rows} rows", "batch_size = 8", "workers = 2"):
        assert part in str(error.value)


def test_the_loader_refuses_them_too(begin):
    with pytest.raises(DataError, match="21 rows"):
        begin({"batch_size": 32}).run.loader(ROWS)


def test_rows_and_steps_are_facts(begin):
    trial = begin({"batch_size": 8})
    trial.run.loader(ROWS)
    trial.run.loader(ROWS[:5], train=False)
    facts = trial.session.facts()
    assert facts["rows.train"] == "21" and facts["rows.dropped"] == "5"
    assert facts["steps_per_epoch"] == "2" and facts["rows.validation"] == "5"


def test_the_order_depends_on_seed_and_epoch_alone(begin):
    def orders(seed: int, noise: int) -> list[list[int]]:
        run = begin({"seed": seed}).run
        rows = run.loader(ROWS)
        found = []
        for _ in run.epochs():
            torch.rand(noise)
            found.append([row for (batch,) in rows for row in batch.tolist()])
        return found

    first = orders(0, noise=0)
    assert first == orders(0, noise=5)
    assert first[0] != first[1] != first[2]
    assert first != orders(1, noise=0)


def test_validation_keeps_the_order_and_the_last_batch_its_shape(begin):
    batches = [batch.tolist() for (batch,) in begin().run.loader(ROWS, train=False)]
    assert batches == [list(range(8)), list(range(8, 16)), list(range(16, 21))]


def test_a_tuple_of_tensors_is_a_dataset(begin):
    loader = begin().run.loader((ROWS.float().unsqueeze(1), ROWS))
    assert len(loader) == 2
    for inputs, targets in loader:
        assert inputs.shape == (8, 1) and targets.shape == (8,)
        assert inputs.squeeze(1).equal(targets.float())


def test_rows_made_one_by_one_come_in_the_order_of_tensors(begin):
    made = [batch["row"].tolist() for batch in begin().run.loader(Squares())]
    assert made == [batch.tolist() for (batch,) in begin().run.loader(ROWS)]


def test_loader_processes_give_the_same_rows_and_repeat_their_random_numbers(begin):
    def passes() -> list[tuple[list[int], list[float]]]:
        run = begin({"epochs": 2}).run
        loader = run.loader(Squares(), num_workers=2)
        found = []
        for _ in run.epochs():
            for batch in loader:
                assert batch["is_child"].all()
                found.append((batch["row"].tolist(), batch["random"].tolist()))
        return found

    first = passes()
    assert first == passes()
    assert first[0][1] != first[2][1]
    assert [rows for rows, _ in first[:2]] == [batch.tolist() for (batch,) in begin().run.loader(ROWS)]


def test_loader_processes_end_with_the_pass_and_with_the_trial(begin):
    trial = begin()
    batches = iter(trial.run.loader(Squares(), num_workers=1))
    next(batches)
    assert multiprocessing.active_children()
    del batches
    trial.session.close()
    for child in multiprocessing.active_children():
        child.join(10)
    assert not multiprocessing.active_children()


def collate_rows(rows: list[dict[str, int]]) -> torch.Tensor:
    return torch.tensor([row["row"] for row in rows])


def test_options_pass_through_to_torch(begin):
    batches = list(begin().run.loader(Squares(), shuffle=False, collate_fn=collate_rows))
    assert batches[0].tolist() == list(range(8))


@pytest.mark.parametrize("name", ["batch_size", "drop_last", "sampler"])
def test_options_that_the_trial_decides_are_refused(begin, name):
    with pytest.raises(TypeError, match=name):
        begin().run.loader(ROWS, **{name: 4})


@pytest.mark.parametrize("data", [Stream(), 5, (ROWS, ROWS[:3]), (ROWS.numpy(), ROWS.numpy())])
def test_what_is_no_dataset_is_refused(begin, data):
    with pytest.raises(DataError, match="dataset"):
        begin().run.loader(data)


def test_a_class_made_from_torchs_own_dataset_makes_its_rows_itself(begin):
    class Doubled(TensorDataset):
        def __getitem__(self, index: int) -> torch.Tensor:
            return super().__getitem__(index)[0] * 2

    whole = torch.cat(list(begin().run.loader(Doubled(ROWS), train=False)))
    assert whole.equal(ROWS * 2)


def test_a_default_device_of_the_users_does_not_matter(begin):
    trial = begin()
    torch.set_default_device("meta")
    assert len(list(trial.run.loader(ROWS))) == 2
