from pathlib import Path

import pytest

from orchestrator.command_line import parse
from orchestrator.errors import UserError
from orchestrator.options import STANDARD_OUTPUT, Verbosity


def faults_of(*argv: str) -> tuple[str, ...]:
    with pytest.raises(UserError) as caught:
        parse(argv)
    return caught.value.faults


def test_without_options_the_file_and_the_defaults_decide():
    options = parse(["mlp.py"])
    assert options.file == "mlp.py"
    assert (options.samples, options.repeat, options.search, options.scheduler) == (1, 1, "grid", "none")
    assert options.seed is options.objective is options.mode is options.target is options.name is None
    assert options.verbosity == Verbosity.NORMAL


def test_folders_are_absolute_because_the_current_one_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = parse(["mlp.py", "--storage", "here", "--json", "s.json"])
    assert options.storage == tmp_path / "here"
    assert options.json is not None and Path(options.json) == tmp_path / "s.json"
    assert parse(["mlp.py", "--json", "-"]).json == STANDARD_OUTPUT


def test_settings_and_sweeps_are_read_as_yaml():
    options = parse(["mlp.py", "--set", "lr=1e-3", "--set", "a.b=[1, 2]", "--sweep", "batch_size=32,128"])
    assert options.settings == {"lr": 0.001, "a.b": [1, 2]}
    assert options.sweep == {"batch_size": [32, 128]}


def test_devices_are_a_list():
    assert parse(["mlp.py", "--devices", "cpu,gpu:H100"]).devices == ("cpu", "gpu:H100")
    assert parse(["mlp.py", "--devices", "each"]).devices == ("each",)


def test_quiet_and_verbose():
    assert parse(["mlp.py", "-q"]).verbosity == Verbosity.QUIET
    assert parse(["mlp.py", "-v"]).verbosity == Verbosity.VERBOSE


def test_all_faults_are_listed_at_once():
    faults = faults_of(
        *("--samples", "0", "--repeat", "2.5", "--seed", "-1", "--mode", "maxx", "--target", "nan"),
        *("--search", "optina", "--scheduler", "pbt", "--max-concurrent", "x", "--set", "lr", "--sweep", "lr=[1"),
        *("--devices", "cpu,gpuu", "--name", "a/b"),
    )
    for part in (
        "--samples 0 is not allowed: a whole number of at least 1",
        "--repeat 2.5",
        "--seed -1",
        '--mode maxx does not exist (did you mean "max"?); allowed: min, max',
        "--target nan",
        '(did you mean "optuna"?)',
        "--scheduler pbt does not exist; allowed: none, asha",
        "--max-concurrent x",
        "--set lr is not allowed: KEY=VALUE",
        "--sweep lr=[1 cannot be read as YAML",
        "device = 'gpuu' does not exist",
        "--name 'a/b'",
        "FILE is missing",
    ):
        assert any(part in fault for fault in faults), (part, faults)


def test_an_unknown_option_is_named_with_the_nearest():
    assert faults_of("mlp.py", "--storge", "x") == (
        'there is no option --storge (did you mean "--storage"?); --help lists the options',
    )


def test_an_option_is_not_understood_by_a_part_of_its_name():
    assert "there is no option --sam" in faults_of("mlp.py", "--sam", "3")[0]


def test_an_option_without_its_value_is_a_fault():
    assert "--set" in faults_of("mlp.py", "--set")[0]


def test_options_whose_work_is_not_done_yet_are_not_offered(capsys):
    with pytest.raises(SystemExit):
        parse(["--help"])
    text = capsys.readouterr().out
    assert "--sweep" in text
    for option in ("--resume", "--offline", "--register", "--rehearse", "--time-budget", "--tpu"):
        assert option not in text


@pytest.mark.parametrize(
    "argv",
    [
        ("--plan", "--debug"),
        ("--debug", "--address", "127.0.0.1:6379"),
        ("-q", "-v"),
        ("--set", "lr=1", "--sweep", "lr=1,2"),
        ("--devices", "cpu", "--set", "device=cpu"),
        ("--seed", "1", "--sweep", "seed=1,2"),
        ("--name", "s", "--trial", "t1", "--samples", "3"),
    ],
)
def test_contradicting_options_are_refused(argv):
    assert any("contradict each other" in fault for fault in faults_of("mlp.py", *argv))


def test_a_trial_needs_the_sweep_it_is_of():
    assert faults_of("mlp.py", "--trial", "t0001") == (
        "--trial needs the sweep that the trial is of: --name SWEEP --trial ID",
    )


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "-x", "a b", "ä", "x" * 81, "nul", "Com1.log", "end."])
def test_names_that_cannot_be_folders_everywhere_are_refused(name):
    assert any(fault.startswith("--name") for fault in faults_of("mlp.py", f"--name={name}"))


def test_the_summary_must_have_a_place(tmp_path):
    assert "--json" in faults_of("mlp.py", "--json", str(tmp_path / "none" / "s.json"))[0]
    assert "--json" in faults_of("mlp.py", "--json", str(tmp_path))[0]


def test_storage_is_a_folder():
    assert "--storage" in faults_of("mlp.py", "--storage", "s3://bucket/x")[0]
