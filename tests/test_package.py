"""What is sent of an experiment's folder to workers on other machines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.errors import ExperimentError
from orchestrator.package import measure


def write(path: Path, size: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


def sent_by_ray(folder: Path, excludes: tuple[str, ...]) -> set[str]:
    """The files that Ray itself would send."""
    from ray._private.runtime_env.packaging import _dir_travel, _get_excludes

    found: set[str] = set()

    def note(path: Path) -> None:
        if path.is_file():
            found.add(str(path.relative_to(folder)))

    _dir_travel(folder, [_get_excludes(folder, list(excludes))], note, include_gitignore=False)
    return found


def test_code_and_data_are_sent(tmp_path):
    write(tmp_path / "mlp.py", 100)
    write(tmp_path / "data" / "digits.csv", 900)
    package = measure(tmp_path)
    assert (package.files, package.size_bytes, package.excludes) == (2, 1000, ())


@pytest.mark.parametrize(
    ("file", "left_out"),
    [
        (".git/objects/ab/cd", "/.git"),
        ("env39/pyvenv.cfg", "/env39"),
        ("conda/conda-meta/history", "/conda"),
        ("__pycache__/mlp.cpython-311.pyc", "/__pycache__"),
        ("package/__pycache__/a.pyc", "/package/__pycache__"),
        ("results/digits/summary.json", "/results"),
        ("sweeps/one/trials/t0001/log.txt", "/sweeps/one"),
        ("checkpoints/last.pt", "/checkpoints"),
        ("run/checkpoint-500/model.bin", "/run/checkpoint-500"),
        ("mlflow.db", "/mlflow.db"),
        ("mlruns/0/meta.yaml", "/mlruns"),
        ("mlartifacts/0/model", "/mlartifacts"),
        ("web/node_modules/x/index.js", "/web/node_modules"),
    ],
)
def test_what_no_worker_needs_is_left_out(tmp_path, file, left_out):
    write(tmp_path / "mlp.py")
    write(tmp_path / file)
    if "sweeps" in file:
        write(tmp_path / "sweeps" / "one" / "journal.jsonl")
    package = measure(tmp_path)
    assert package.excludes == (left_out,)
    assert sent_by_ray(tmp_path, package.excludes) == {"mlp.py"}


def test_what_git_ignores_is_sent_all_the_same(tmp_path):
    write(tmp_path / "data.csv")
    (tmp_path / ".gitignore").write_text("data.csv\n")
    assert measure(tmp_path).files == 2


def test_a_rayignore_file_leaves_out_and_takes_back(tmp_path):
    for name in ("mlp.py", "raw/a.bin", "raw/b.bin", "deep/raw/c.txt", "logs/x.txt", "base.ckpt", "old.ckpt"):
        write(tmp_path / name)
    (tmp_path / ".rayignore").write_text("# data\n/raw/a.bin\n\nlogs/\n!base.ckpt\n")
    package = measure(tmp_path)
    assert package.excludes == ("/logs", "/old.ckpt", "/raw/a.bin")
    # Ray reads the file as well, and agrees on what it takes away.
    assert len(sent_by_ray(tmp_path, package.excludes)) == package.files


def test_names_with_special_signs_are_left_out_literally(tmp_path):
    write(tmp_path / "a[1] b*" / "pyvenv.cfg")
    write(tmp_path / "a1 bc" / "needed.txt")
    write(tmp_path / "#1.ckpt")
    package = measure(tmp_path)
    assert sent_by_ray(tmp_path, package.excludes) == {"a1 bc/needed.txt"}
    assert package.files == 1


def test_over_the_limit_the_largest_entries_are_listed(tmp_path):
    write(tmp_path / "mlp.py", 10)
    write(tmp_path / "data" / "a.bin", 3 * 1024**2)
    write(tmp_path / "data" / "b.bin", 2 * 1024**2)
    with pytest.raises(ExperimentError) as caught:
        measure(tmp_path, limit_bytes=4 * 1024**2)
    first, largest, *_ = caught.value.faults
    assert "5.0 MiB" in first and "4.0 MiB" in first and ".rayignore" in first
    assert largest == "  data/: 5.0 MiB"


def test_links_that_lead_in_a_circle_or_nowhere_are_left_out(tmp_path):
    write(tmp_path / "folder" / "a.txt")
    os.symlink(tmp_path, tmp_path / "folder" / "back")
    os.symlink(tmp_path / "nowhere", tmp_path / "dangling")
    package = measure(tmp_path)
    assert package.files == 1
    assert sent_by_ray(tmp_path, package.excludes) == {"folder/a.txt"}
