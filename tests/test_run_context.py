"""`Run`: epochs, reports, logs, checkpoints and settings, whatever the framework."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.channel import Channel, Decision
from orchestrator.devices import DeviceShape
from orchestrator.errors import StopTrial
from orchestrator.frameworks import Session, WorkerFacts
from orchestrator.run_context import Run
from orchestrator.trial import Lease, Placement, Rules, Trial


class PlainSession(Session):
    """Plain Python: an object is its own state, a loader gives the epoch of each pass."""

    device = "python"

    def __init__(self) -> None:
        self.updates = 0

    def prepare(self, objects: tuple[Any, ...], checkpoint: Path | None) -> tuple[Any, ...]:
        return objects

    def loader(self, dataset: Any, *, shuffle: bool, train: bool, epoch: Any, **options: Any) -> Any:
        class Loader:
            def __iter__(self) -> Any:
                return iter([(shuffle, epoch())])

        return Loader()

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def step(self, loss: Any, optimizer: Any, scheduler: Any, clip_norm: float | None) -> None:
        self.updates += 1

    def average(self, value: Any, count: Any) -> float:
        return float(value)

    def number(self, value: Any) -> float:
        if isinstance(value, str):
            raise TypeError("a text")
        return float(value)

    def save(self, directory: Path, progress: Mapping[str, int]) -> bool:
        (directory / "progress").write_text(f"{progress['epoch']} {progress['step']}")
        return True

    def progress(self, checkpoint: Path) -> Mapping[str, int]:
        epoch, step = (checkpoint / "progress").read_text().split()
        return {"epoch": int(epoch), "step": int(step)}

    def facts(self) -> dict[str, str]:
        return {}

    def measured(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        pass


class MemoryChannel(Channel):
    """Keeps what it is told. `decisions` maps the number of a report to its answer, `ends_at` is an epoch."""

    def __init__(self, decisions: Mapping[int, Decision] | None = None, ends_at: int | None = None) -> None:
        self.decisions, self.ends_at = decisions or {}, ends_at
        self.reports: list[tuple[int, int, dict[str, float], str | None]] = []
        self.followed: list[int] = []
        self.boundaries: list[tuple[int, bool]] = []
        self.logged: list[list[tuple[str, float, int, float]]] = []

    def report(self, number: int, epoch: int, metrics: Mapping[str, float], checkpoint: str | None) -> Decision:
        self.reports.append((number, epoch, dict(metrics), checkpoint))
        return self.decisions.get(number, Decision())

    def follow(self, number: int) -> Decision:
        self.followed.append(number)
        return self.decisions.get(number, Decision())

    def boundary(self, epoch: int, stopped: bool) -> bool:
        self.boundaries.append((epoch, stopped))
        return stopped or epoch == self.ends_at

    def log(self, values: list[tuple[str, float, int, float]]) -> None:
        self.logged.append(values)


@pytest.fixture
def channel() -> MemoryChannel:
    return MemoryChannel()


@pytest.fixture
def make(tmp_path, channel):
    def make_run(
        config: Mapping[str, Any] | None = None,
        *,
        rank: int = 0,
        workers: int = 1,
        checkpoint: str | None = None,
        channel: Channel = channel,
        **rules: Any,
    ) -> Run:
        settings = {"epochs": 3, "batch_size": 8, "precision": "fp32", "seed": 0, **(config or {})}
        shape = DeviceShape(
            device="cpu", model=None, devices=1, workers=workers, cpus_per_worker=1, framework="torch"
        )
        placement = Placement(shape=shape, precision="bf16")
        lease = Lease(
            trial=Trial(id="t1", config=settings, placements=(placement,)),
            placement=placement,
            rules=Rules(**{"objective": "score", "mode": "max", **rules}),
            attempt=1,
            index=0,
            directory=str(tmp_path / "t1"),
            checkpoint=checkpoint,
        )
        return Run(PlainSession(), channel, lease, WorkerFacts(device_type="cpu", rank=rank, workers=workers))

    return make_run


# Settings


def test_settings_are_those_that_hold_on_the_device(make):
    run = make({"device": "any", "lr": 0.1})
    assert (run.config["precision"], run.precision) == ("bf16", "bf16")
    assert run.config["device"] == "cpu"
    assert dict(run.config)["lr"] == 0.1
    with pytest.raises(TypeError):
        run.config["lr"] = 0.2


def test_changing_a_nested_setting_does_not_change_the_trial(make):
    config = {"optimizer": {"lr": 0.1}}
    make(config).config["optimizer"]["lr"] = 9.0
    assert config == {"optimizer": {"lr": 0.1}}


def test_a_setting_that_does_not_exist_is_named_with_a_guess(make):
    with pytest.raises(KeyError, match=r"learning_rat.*did you mean"):
        make({"learning_rate": 0.1}).config["learning_rat"]
    assert make().config.get("none", 5) == 5


def test_swept_settings_that_nobody_read_are_known(make):
    swept = ("lr", "optimizer.momentum", "dotted.name", "batch_size", "precision", "epochs", "seed", "workers")
    run = make({"lr": 1, "optimizer": {"momentum": 0.9}, "dotted.name": 2}, swept=swept)
    assert set(run.unread()) == {"lr", "optimizer.momentum", "dotted.name", "batch_size", "precision", "epochs"}
    assert run.config["optimizer"]["momentum"] == 0.9
    assert run.config["dotted.name"] == 2
    run.loader([1])
    with run.autocast():
        next(run.epochs())
    assert run.unread() == ("lr",)


def test_preparing_reads_the_precision_and_taking_all_settings_reads_each(make):
    run = make({"lr": 1}, swept=("precision", "lr"))
    run.prepare([])
    assert run.unread() == ("lr",)
    dict(**run.config)
    assert run.unread() == ()


def test_asking_whether_a_setting_is_there_or_printing_all_does_not_read_them(make):
    run = make({"lr": 1}, swept=("lr",))
    assert "lr" in run.config and "lr" in repr(run.config) and len(run.config) == 5
    assert run.unread() == ("lr",)


def test_the_share_of_the_batch_follows_from_the_workers(make):
    assert make(workers=2, rank=1).local_batch_size == 4


def test_one_object_is_prepared_to_one_object(make):
    one, two = [1], [2]
    assert make().prepare(one) is one
    assert make().prepare(one, two) == ([1], [2])


# Epochs and reports


def test_reports_count_epochs_from_one(make, channel):
    run = make()
    for epoch in run.epochs():
        run.report(score=epoch)
    assert [report[:3] for report in channel.reports] == [
        (1, 1, {"score": 0.0}),
        (2, 2, {"score": 1.0}),
        (3, 3, {"score": 2.0}),
    ]


def test_without_epochs_reports_and_passes_count_them(make, channel):
    run = make()
    rows = run.loader([1])
    passes = []
    for _ in range(3):
        passes += list(rows)
        run.report(score=1)
    assert passes == [(True, 0), (True, 1), (True, 2)]
    assert [report[1] for report in channel.reports] == [1, 2, 3]


def test_passes_of_a_rank_that_never_reports_are_shuffled_like_those_of_rank_0(make):
    run = make(rank=1, workers=2)
    assert [list(run.loader([1])) for _ in range(3)] == [[(True, 0)], [(True, 1)], [(True, 2)]]


def test_every_pass_of_an_epoch_has_its_number_and_validation_is_not_shuffled(make):
    run = make()
    for epoch in run.epochs():
        assert list(run.loader([1])) == [(True, epoch)]
        assert list(run.loader([1])) == [(True, epoch)]
        assert list(run.loader([1], train=False)) == [(False, epoch)]
        assert list(run.loader([1], shuffle=False)) == [(False, epoch)]


def test_a_stop_for_all_ranks_is_raised_at_the_report(make):
    channel = MemoryChannel({2: Decision(stop=True)})
    for rank in (0, 1):
        run = make(rank=rank, workers=2, channel=channel)
        run.report(score=1)
        with pytest.raises(StopTrial):
            run.report(score=1)
    assert channel.followed == [1, 2]


def test_a_stop_for_rank_0_alone_ends_the_epochs_of_all(make):
    channel = MemoryChannel({1: Decision(stop=True, everywhere=False)})
    done = []
    run = make(workers=2, channel=channel)
    for epoch in run.epochs():
        done.append(epoch)
        run.report(score=1)
    assert done == [0]
    assert channel.boundaries == [(0, False), (1, True)]
    other = make(rank=1, workers=2, channel=MemoryChannel(ends_at=1))
    assert list(other.epochs()) == [0]


def test_one_worker_needs_no_boundary(make, channel):
    assert list(make().epochs()) == [0, 1, 2]
    assert channel.boundaries == []


def test_a_report_without_metrics_saves_and_counts_an_epoch(make, channel):
    run = make()
    run.prepare([])
    run.report()
    ((number, epoch, metrics, checkpoint),) = channel.reports
    assert (number, epoch, metrics) == (1, 1, {}) and Path(checkpoint).is_dir()


def test_the_checkpoint_that_a_lost_attempt_would_go_on_from_stays_until_the_report_is_in(make):
    class Watching(MemoryChannel):
        def report(
            self, number: int, epoch: int, metrics: Mapping[str, float], checkpoint: str | None
        ) -> Decision:
            assert all(Path(former[3] or "").is_dir() for former in self.reports[-1:])
            return super().report(number, epoch, metrics, checkpoint)

    channel = Watching()
    run = make(channel=channel, keep_checkpoints="last")
    run.prepare([])
    for _ in run.epochs():
        run.report(score=1)
    assert [Path(path or "").is_dir() for *_, path in channel.reports] == [False, False, True]


@pytest.mark.parametrize("value", ["0.5", None, [1, 2]])
def test_a_metric_that_is_no_number_is_named_with_its_value_and_type(make, channel, value):
    with pytest.raises(TypeError) as error:
        make().report(score=value)
    for part in ("score", repr(value), type(value).__name__, "is no number"):
        assert part in str(error.value)
    assert channel.reports == []


def test_nan_is_reported_and_the_first_epoch_of_it_is_known(make, channel):
    run = make()
    for epoch in run.epochs():
        run.report(score=1.0 if epoch == 0 else math.inf)
    assert run.diverged_at == 2
    assert channel.reports[1][2] == {"score": math.inf}


def test_logs_are_handed_on_at_a_report_with_their_steps(make, channel):
    run = make()
    for loss in (3.0, 2.0):
        run.step(loss, None)
        run.log(loss=loss)
    assert channel.logged == []
    run.report(score=1)
    ((first, second),) = channel.logged
    assert first[:3] == ("loss", 3.0, 1) and second[:3] == ("loss", 2.0, 2)
    assert first[3] <= second[3]


def test_logs_are_handed_on_when_the_buffer_is_full_and_at_the_end(make, channel):
    run = make()
    for _ in range(1500):
        run.log(loss=1.0)
    assert [len(values) for values in channel.logged] == [1000]
    run.flush()
    run.flush()
    assert [len(values) for values in channel.logged] == [1000, 500]


def test_values_on_a_device_are_read_at_the_report_and_not_before(make, channel):
    class OnDevice:
        """As a tensor: it can be detached and copied at once; reading it waits."""

        is_read = False

        def detach(self) -> OnDevice:
            return self

        def clone(self) -> OnDevice:
            copies.append(OnDevice())
            return copies[-1]

        def __float__(self) -> float:
            self.is_read = True
            return 1.0

    copies: list[OnDevice] = []
    run, value = make(), OnDevice()
    for _ in range(2500):
        run.log(loss=value)
    assert not any(copy.is_read for copy in copies) and channel.logged == []
    run.report(score=1)
    assert all(copy.is_read for copy in copies) and [len(values) for values in channel.logged] == [1000, 1000, 500]


def test_other_ranks_log_nothing(make, channel):
    run = make(rank=1, workers=2)
    run.log(loss=1.0)
    run.flush()
    assert channel.logged == []


# Checkpoints


def test_a_report_saves_what_was_prepared(make, channel, tmp_path):
    run = make()
    run.prepare([])
    run.step(1, None)
    run.report(score=0.5)
    place = tmp_path / "t1" / "checkpoints" / "epoch-000001"
    assert channel.reports[0][3] == run.last_checkpoint == run.best_checkpoint == str(place)
    assert (place / "progress").read_text() == "1 1"


def test_without_anything_prepared_nothing_is_saved(make, channel, tmp_path):
    make().report(score=0.5)
    assert channel.reports[0][3] is None
    assert not (tmp_path / "t1").exists()


def test_other_ranks_save_nothing(make, tmp_path):
    run = make(rank=1, workers=2)
    run.prepare([])
    run.report(score=0.5)
    assert not (tmp_path / "t1").exists()


@pytest.mark.parametrize("uses_epochs", [True, False])
def test_a_trial_goes_on_after_its_last_checkpoint(make, channel, uses_epochs):
    before = make()
    before.prepare([])
    for _ in range(2):
        list(before.loader([1]))
        before.step(1, None)
        before.report(score=1)
    run = make(checkpoint=before.last_checkpoint)
    run.prepare([])
    if uses_epochs:
        assert next(run.epochs()) == 2
    assert list(run.loader([1])) == [(True, 2)]
    run.step(1, None)
    run.report(score=2)
    assert channel.reports[-1][:2] == (1, 3)
    assert (Path(run.last_checkpoint) / "progress").read_text() == "3 3"
