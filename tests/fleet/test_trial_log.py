"""What a trial prints goes to its log."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from orchestrator.fleet.trial_log import captured, copied, cut_middle, log_name


def print_in_all_ways() -> None:
    print("from print")
    print("from stderr", file=sys.stderr)
    os.write(1, b"from C++\n")
    subprocess.run([sys.executable, "-c", "print('from a child')"], check=True, timeout=60)
    print("without end", end="")


def test_each_rank_has_a_log_of_its_own():
    assert (log_name(0), log_name(1)) == ("log.txt", "log-rank1.txt")


def test_everything_is_captured_in_order_and_nothing_is_shown(tmp_path, capfd):
    with captured(tmp_path / "log.txt"):
        print_in_all_ways()
    print("afterwards")
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert lines == ["from print", "from stderr", "from C++", "from a child", "without end"]
    assert capfd.readouterr().out == "afterwards\n"


def test_output_goes_its_old_way_after_an_error(tmp_path, capfd):
    with pytest.raises(KeyboardInterrupt), captured(tmp_path / "log.txt"):
        raise KeyboardInterrupt
    os.write(1, b"afterwards")
    assert capfd.readouterr().out == "afterwards"


def test_no_descriptor_is_left_open(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with captured(tmp_path / "log.txt"):
            print("x")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_log_that_cannot_be_written_leaves_output_alone(tmp_path, capfd):
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="no_folder"), captured(tmp_path / "no_folder" / "log.txt"):
        pass
    print("afterwards")
    assert capfd.readouterr().out == "afterwards\n"
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_copy_is_shown_as_well(tmp_path, capsys):
    with copied(tmp_path / "log.txt"):
        print("from print")
        print("from stderr", file=sys.stderr)
    assert (tmp_path / "log.txt").read_text() == "from print\nfrom stderr\n"
    assert capsys.readouterr() == ("from print\n", "from stderr\n")


def test_a_later_attempt_is_appended(tmp_path):
    for number in (1, 2):
        with captured(tmp_path / "log.txt"):
            print(number)
    assert (tmp_path / "log.txt").read_text() == "1\n2\n"


def test_of_a_long_log_the_beginning_and_the_end_are_kept(tmp_path):
    log = tmp_path / "log.txt"
    log.write_bytes(b"a" * 1000 + b"b" * 5000 + b"c" * 1000)
    cut_middle(log, 2000)
    text = log.read_text()
    assert text.startswith("a" * 1000 + "\n") and text.endswith("\n" + "c" * 1000)
    assert "5000 bytes left out" in text and "b" not in text.replace("bytes", "")
    assert os.listdir(tmp_path) == ["log.txt"]
