"""Checkpoints are whole or absent, and only those that are wanted stay."""

from __future__ import annotations

import math
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.checkpoint import CheckpointKeeper

VALUES = [0.5, 0.9, math.nan, 0.7, math.inf]


def write(folder: Path) -> bool:
    (folder / "state.pt").write_text(folder.name)
    return True


def saved(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def keeper(tmp_path) -> Callable[..., CheckpointKeeper]:
    def make(keep: str = "best_and_last", mode: str = "max", **options: int) -> CheckpointKeeper:
        return CheckpointKeeper(tmp_path, keep=keep, mode=mode, **options)

    return make


@pytest.mark.parametrize(
    ("keep", "mode", "left"),
    [
        ("best_and_last", "max", [2, 5]),
        ("best_and_last", "min", [1, 5]),
        ("last", "max", [5]),
        ("all", "max", [1, 2, 3, 4, 5]),
        ("none", "max", []),
    ],
)
def test_those_that_are_wanted_stay_and_others_go_at_once(keeper, tmp_path, keep, mode, left):
    made = keeper(keep, mode)
    for epoch, value in enumerate(VALUES, start=1):
        made.save(epoch, value, write)
        made.remove_others()
        assert len(saved(tmp_path)) <= (5 if keep == "all" else 2)
    assert saved(tmp_path) == [f"epoch-{epoch:06d}" for epoch in left]


def test_nan_and_infinity_are_never_best_and_are_saved_nevertheless(keeper, tmp_path):
    made = keeper()
    assert made.save(1, math.nan, write) and made.best is None
    assert made.save(2, math.inf, write) and made.best is None
    assert made.save(3, 0.1, write) == made.best == made.last == str(tmp_path / "epoch-000003")


def test_a_write_that_fails_leaves_what_was_there(keeper, tmp_path):
    made = keeper()
    made.save(1, 0.5, write)

    def fail(folder: Path) -> bool:
        write(folder)
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        made.save(2, 0.6, fail)
    assert saved(tmp_path) == ["epoch-000001"]
    assert made.last == made.best == str(tmp_path / "epoch-000001")


def test_where_there_is_nothing_to_save_nothing_is_left(keeper, tmp_path):
    assert keeper().save(1, 0.5, lambda folder: False) is None
    assert saved(tmp_path) == []


def test_what_a_killed_attempt_left_half_written_is_removed(keeper, tmp_path):
    (tmp_path / ".draft-epoch-000004").mkdir()
    (tmp_path / ".draft-epoch-000001").mkdir()
    made = keeper()
    made.save(1, 0.5, write)
    made.remove_others()
    assert saved(tmp_path) == ["epoch-000001"]


def test_the_one_before_stays_until_the_newest_is_known_to_others(keeper, tmp_path):
    made = keeper("last")
    made.save(1, 0.5, write)
    made.remove_others()
    made.save(2, 0.6, write)
    assert saved(tmp_path) == ["epoch-000001", "epoch-000002"]


def test_a_second_one_of_an_epoch_leaves_the_first_until_it_is_known(keeper, tmp_path):
    made = keeper("last")
    for objective in (0.5, 0.6):
        made.save(3, objective, write)
    assert saved(tmp_path) == ["epoch-000003", "epoch-000003-002"]
    made.remove_others()
    assert saved(tmp_path) == ["epoch-000003-002"]
    assert keeper("last", epochs_done=3).last == made.last


def test_a_process_that_is_killed_while_it_saves_or_removes_leaves_only_whole_ones(keeper, tmp_path):
    code = """
        import os, shutil, sys
        from pathlib import Path
        from orchestrator.checkpoint import CheckpointKeeper

        def write(folder):
            (folder / "state.pt").write_text("")
            if sys.argv[2] == "save":
                os._exit(9)
            return True

        def half(folder):
            (folder / "checkpoint.json").unlink()
            os._exit(9)

        shutil.rmtree = half
        done = int(sys.argv[3])
        keeper = CheckpointKeeper(Path(sys.argv[1]), keep="last", mode="max", epochs_done=done)
        keeper.save(done + 1, 0.5, write)
        keeper.remove_others()
    """
    keeper("last").save(1, 0.5, write)
    for crash, done in (("remove", "1"), ("save", "2")):
        command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path), crash, done]
        assert subprocess.run(command, timeout=60).returncode == 9
        whole = keeper("last", epochs_done=2)
        assert whole.last == str(tmp_path / "epoch-000002")
    whole.save(3, 0.6, write)
    whole.remove_others()
    assert saved(tmp_path) == ["epoch-000003"]


def test_an_attempt_that_goes_on_keeps_the_best_of_the_one_before(keeper, tmp_path):
    before = keeper()
    for epoch, value in ((1, 0.9), (2, 0.5), (3, 0.6)):
        before.save(epoch, value, write)
        before.remove_others()
    after = keeper(epochs_done=3)
    assert (after.best, after.last) == (before.best, before.last)
    after.save(4, 0.7, write)
    after.remove_others()
    assert saved(tmp_path) == ["epoch-000001", "epoch-000004"]


def test_checkpoints_after_the_one_that_is_resumed_count_no_more(keeper, tmp_path):
    lost = keeper()
    for epoch, value in ((1, 0.5), (2, 0.9), (3, 0.1)):
        lost.save(epoch, value, write)
    after = keeper(epochs_done=1)
    assert after.best == after.last == str(tmp_path / "epoch-000001")
    after.save(2, 0.4, write)
    after.remove_others()
    assert saved(tmp_path) == ["epoch-000001", "epoch-000002"]
    assert after.best == str(tmp_path / "epoch-000001")
