import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from orchestrator.errors import StorageError
from orchestrator.journal import Journal, read


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sweep" / "journal.jsonl"


def test_records_come_back_in_the_order_of_appending(path: Path) -> None:
    journal = Journal(path)
    for number in range(100):
        journal.append({"number": number})
    journal.close()
    assert [record["number"] for record in read(path)] == list(range(100))


def test_a_resolved_record_survives_kill_9(path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from orchestrator.journal import Journal\n"
        "journal = Journal(Path(sys.argv[1])); journal.append({'a': 1}).result(30)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert list(read(path)) == [{"a": 1}]


def test_many_threads_append_whole_lines_that_share_syncs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = []
    sync = os.fdatasync
    monkeypatch.setattr("orchestrator.journal._sync", lambda descriptor: (syncs.append(1), sync(descriptor)))
    journal = Journal(path)

    def append(writer: int) -> None:
        for future in [journal.append({"writer": writer, "number": number}) for number in range(200)]:
            future.result(30)

    threads = [threading.Thread(target=append, args=(writer,)) for writer in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    journal.close()
    records = list(read(path))
    assert len(records) == 1600
    for writer in range(8):
        assert [record["number"] for record in records if record["writer"] == writer] == list(range(200))
    assert len(syncs) < 800


def test_it_is_awaited_from_asyncio_and_a_cancelled_wait_harms_nothing(path: Path) -> None:
    journal = Journal(path)

    async def use() -> None:
        waiting = asyncio.ensure_future(asyncio.wrap_future(journal.append({"a": 1})))
        waiting.cancel()
        await asyncio.gather(*(asyncio.wrap_future(journal.append({"a": n})) for n in range(2, 20)))

    asyncio.run(use())
    journal.close()
    assert [record["a"] for record in read(path)] == list(range(1, 20))


def test_nan_and_infinity_are_strict_json_texts(path: Path) -> None:
    journal = Journal(path)
    journal.append({"values": [math.nan, math.inf, -math.inf]})
    journal.close()
    assert list(read(path)) == [{"values": ["NaN", "Infinity", "-Infinity"]}]


@pytest.mark.parametrize("torn", ['{"a"', '{"a": 3}', "x" * 200_000])
def test_a_torn_last_line_is_left_out_and_cut_away_before_appending(path: Path, torn: str) -> None:
    path.parent.mkdir()
    path.write_text('{"a": 1}\n{"a": 2}\n' + torn)
    assert list(read(path)) == [{"a": 1}, {"a": 2}]
    journal = Journal(path)
    journal.append({"a": 4})
    journal.close()
    assert list(read(path)) == [{"a": 1}, {"a": 2}, {"a": 4}]


@pytest.mark.parametrize("damage", ["{oops", "[1]", ""])
def test_a_damaged_line_in_the_middle_is_an_error_that_names_it(path: Path, damage: str) -> None:
    path.parent.mkdir()
    path.write_text(f'{{"a": 1}}\n{damage}\n{{"a": 3}}\n')
    with pytest.raises(StorageError, match="line 2"):
        list(read(path))


def test_a_disk_error_is_on_every_waiting_and_later_future(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def fail(descriptor: int) -> None:
        entered.set()
        go_on.wait(30)
        raise OSError(28, "No space left on device")

    journal = Journal(path)
    monkeypatch.setattr("orchestrator.journal._sync", fail)
    first = journal.append({"a": 1})
    assert entered.wait(30)
    second = journal.append({"a": 2})
    go_on.set()
    for future in (first, second):
        with pytest.raises(OSError, match="No space"):
            future.result(30)
    with pytest.raises(OSError, match="No space"):
        journal.append({"a": 3}).result(30)
    journal.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_noticed_by_the_write_itself(path: Path) -> None:
    path.parent.mkdir()
    path.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space"):
        Journal(path).append({"a": 1}).result(30)


def test_append_after_close_fails(path: Path) -> None:
    journal = Journal(path)
    journal.close()
    with pytest.raises(ValueError, match="is closed"):
        journal.append({"a": 1}).result(5)


def test_close_waits_for_what_was_appended_but_not_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    monkeypatch.setattr("orchestrator.journal._sync", lambda descriptor: go_on.wait(30))
    journal = Journal(path)
    journal.append({"a": 1})
    with pytest.raises(TimeoutError):
        journal.close(timeout_s=0.1)
    go_on.set()
    journal.close()
    assert json.loads(path.read_text()) == {"a": 1}


def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be written"):
        Journal(tmp_path / "file" / "journal.jsonl")
