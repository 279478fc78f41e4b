"""Loading experiment files: by name, beside their neighbours, with faults told in the user's own words."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from orchestrator.errors import ExperimentError
from orchestrator.loader import load, load_in_worker, unsendable

PLAIN = """
from orchestrator import Experiment

def train(run):
    pass

experiment = Experiment(name="plain", train=train, objective="loss", mode="min")
"""


@pytest.fixture(autouse=True)
def _same_folder_and_path_afterwards(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)


def write(path: Path, text: str = PLAIN) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def refusal(reference: object) -> str:
    with pytest.raises(ExperimentError) as caught:
        load(str(reference))
    return str(caught.value)


def test_a_file_with_one_experiment_needs_no_name(tmp_path):
    loaded = load(str(write(tmp_path / "plain_one.py")))
    assert (loaded.experiment.name, loaded.name) == ("plain", "experiment")
    assert loaded.file == tmp_path / "plain_one.py"


def test_a_relative_path_becomes_absolute(tmp_path):
    write(tmp_path / "sub" / "plain_relative.py")
    assert load("sub/plain_relative.py").file == tmp_path / "sub" / "plain_relative.py"


def test_a_name_picks_one_of_several_experiments(tmp_path):
    file = write(tmp_path / "two.py", PLAIN + "other = Experiment(name='other', train=train, objective='x')\n")
    assert load(f"{file}:other").experiment.name == "other"
    assert refusal(file) == "two.py holds several experiments: name one, two.py:NAME (experiment, other)"


def test_an_experiment_with_two_names_is_one_experiment(tmp_path):
    file = write(tmp_path / "alias.py", PLAIN + "again = experiment\n")
    assert load(str(file)).name == "experiment"


def test_an_unknown_name_is_refused_with_the_nearest(tmp_path):
    message = refusal(f"{write(tmp_path / 'misnamed.py')}:experimnet")
    assert "experimnet" in message and 'did you mean "experiment"?' in message


def test_a_name_of_something_else_is_refused_with_its_type(tmp_path):
    assert "it is a function" in refusal(f"{write(tmp_path / 'other_kind.py')}:train")


def test_a_missing_file_is_refused_with_the_nearest(tmp_path):
    write(tmp_path / "digits.py")
    assert 'did you mean "digits.py"?' in refusal(tmp_path / "digit.py")


def test_a_folder_is_refused_with_the_files_in_it(tmp_path):
    write(tmp_path / "experiments" / "first.py")
    assert "is a folder" in (message := refusal(tmp_path / "experiments")) and "first.py" in message


def test_a_file_that_is_not_python_is_refused(tmp_path):
    assert ".py" in refusal(write(tmp_path / "notes.txt"))


def test_a_file_without_an_experiment_is_refused(tmp_path):
    assert "holds no experiment" in refusal(write(tmp_path / "empty_one.py", "x = 1\n"))


def test_a_syntax_error_is_shown_with_its_line_and_a_caret(tmp_path):
    message = refusal(write(tmp_path / "broken.py", "x = 1\nif True:\n    y = (1,\n    z == ] 2\n"))
    assert "broken.py:4: " in message
    code, caret = message.splitlines()[-2:]
    assert code == "    z == ] 2" and caret == "         ^"


def test_an_exception_while_importing_is_shown_with_the_users_own_line(tmp_path):
    write(tmp_path / "raising_helper.py", 'import json\n\ndef read():\n    return json.loads("{")\n')
    message = refusal(write(tmp_path / "raising.py", "import raising_helper\n\nraising_helper.read()\n"))
    assert 'raising_helper.py:4: return json.loads("{")' in message
    assert "JSONDecodeError" in message and "Traceback" not in message


def test_a_missing_library_is_shown_with_the_import(tmp_path):
    message = refusal(write(tmp_path / "needs_more.py", "import a_library_that_is_not_here\n"))
    assert "needs_more.py:1: import a_library_that_is_not_here" in message and "ModuleNotFoundError" in message


def test_a_file_that_exits_while_it_is_imported_is_refused(tmp_path):
    assert "ends the process" in refusal(write(tmp_path / "exiting.py", "import sys\nsys.exit(3)\n"))


def test_all_faults_of_an_experiment_come_at_once_with_its_line(tmp_path):
    text = """
    from orchestrator import Experiment
    experiment = Experiment(name="x", train=print, objective="y", targt=1, mode="up", config={"epochs": 0})
    """
    with pytest.raises(ExperimentError) as caught:
        load(str(write(tmp_path / "faulty.py", text)))
    text = str(caught.value)
    assert "faulty.py:3" in text
    assert all(word in text for word in ('"targt"', 'did you mean "target"?', "mode = 'up'", "epochs = 0"))


@pytest.mark.parametrize("name", ["random", "yaml"])
def test_a_name_that_hides_another_module_is_refused(tmp_path, name):
    assert f'"{name}" is ' in (message := refusal(write(tmp_path / f"{name}.py"))) and "rename" in message


def test_a_name_that_is_imported_from_elsewhere_is_refused(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(write(tmp_path / "a" / "taken_name.py", "x = 1\n").parent))
    import taken_name  # noqa: F401

    assert "already imported from" in refusal(write(tmp_path / "b" / "taken_name.py"))


def test_a_name_with_a_dot_is_refused(tmp_path):
    assert "rename" in refusal(write(tmp_path / "v1.2.py"))


def test_the_folder_is_current_while_the_file_is_imported_and_not_afterwards(tmp_path):
    write(tmp_path / "far" / "lines.txt", "from a file")
    text = PLAIN.replace('"plain"', 'open("lines.txt").read()')
    assert load(str(write(tmp_path / "far" / "reads_a_file.py", text))).experiment.name == "from a file"
    assert Path.cwd() == tmp_path


def test_the_current_folder_is_restored_after_a_failed_import(tmp_path):
    refusal(write(tmp_path / "far" / "fails_here.py", "1 / 0\n"))
    assert Path.cwd() == tmp_path


def test_equally_named_helpers_of_two_experiments_do_not_mix(tmp_path):
    for letter in "ab":
        write(tmp_path / letter / "shared_helper" / "__init__.py", "")
        write(tmp_path / letter / "shared_helper" / "names.py", f'NAME = "{letter}"\n')
        text = "from shared_helper.names import NAME\n" + PLAIN.replace('"plain"', "NAME")
        write(tmp_path / letter / f"with_helper_{letter}.py", text)
    names = [load(str(tmp_path / letter / f"with_helper_{letter}.py")).experiment.name for letter in "aba"]
    assert names == ["a", "b", "a"]
    assert str(tmp_path / "b") not in sys.path


def test_modules_that_were_there_before_survive_the_next_experiment(tmp_path):
    (first, second) = (write(tmp_path / name / f"survivor_{name}.py") for name in "ab")
    load(str(first))
    load(str(second))
    import orchestrator.loader as now

    assert now.load is load and "survivor_a" not in sys.modules


def test_an_edited_file_is_read_again(tmp_path):
    file = write(tmp_path / "edited.py")
    load(str(file))
    write(file, PLAIN.replace('"plain"', '"edited since"'))
    assert load(str(file)).experiment.name == "edited since"


def test_a_train_function_is_sent_by_its_name(tmp_path):
    loaded = load(str(write(tmp_path / "by_name.py")))
    assert b"by_name" in (sent := pickle.dumps(loaded.experiment.train)) and len(sent) < 100


def test_a_worker_stays_in_the_folder_and_its_children_import_neighbours(tmp_path):
    write(tmp_path / "far" / "neighbour.py", 'def work(queue):\n    queue.put(open("lines.txt").read())\n')
    write(tmp_path / "far" / "lines.txt", "from the worker's child")
    file = write(tmp_path / "far" / "has_neighbour.py", "import neighbour\n" + PLAIN)
    load_in_worker(file, "experiment")
    assert Path.cwd() == tmp_path / "far"

    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    child = spawn.Process(target=sys.modules["neighbour"].work, args=(queue,))
    child.start()
    assert queue.get(timeout=60) == "from the worker's child"
    child.join(60)


def test_it_works_from_another_folder_in_a_fresh_process(tmp_path):
    write(tmp_path / "far" / "own_module.py", "NAME = 'found'\n")
    text = "from own_module import NAME\n" + PLAIN.replace('"plain"', "NAME")
    file = write(tmp_path / "far" / "fresh_process.py", text)
    code = (
        "import sys; from orchestrator.loader import load; loaded = load(sys.argv[1]);"
        "print(loaded.experiment.name, 'torch' in sys.modules, 'ray' in sys.modules)"
    )
    root = str(Path(__file__).parents[1])
    result = subprocess.run(
        [sys.executable, "-c", code, os.path.relpath(file, "/")],
        cwd="/",
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.stdout, result.stderr) == ("found False False\n", "")


def test_values_that_cannot_be_sent_are_named_by_key(tmp_path):
    with write(tmp_path / "data.txt", "x").open() as file:
        faults = unsendable({"lr": 0.1, "data": file, "model": {"act": lambda x: x}})
    assert len(faults) == 2
    assert faults[0].startswith('"data" = ') and "TextIOWrapper" in faults[0]
    assert faults[1].startswith('"model.act" = ') and "function" in faults[1]


def test_large_values_are_named_with_their_size():
    assert unsendable({"small": bytes(1000)}) == []
    assert '"large" (bytes) has 3.0 MiB' in unsendable({"large": bytes(3 * 1024**2)})[0]


def test_values_of_a_search_space_are_looked_at_one_by_one():
    faults = unsendable({"act": {"grid_search": ["relu", lambda x: x]}})
    assert len(faults) == 1 and faults[0].startswith('"act" = ')
