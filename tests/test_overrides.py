import pytest

from orchestrator.command_line import parse
from orchestrator.errors import ExperimentError
from orchestrator.experiment import Experiment
from orchestrator.overrides import apply


def grid(*values):
    return {"grid_search": list(values)}


def experiment(**fields):
    given = {
        "config": {"lr": 0.1, "optimizer": {"name": "sgd", "momentum": 0.9}},
        "sweep": {"precision": grid("fp32", "bf16"), "batch_size": grid(32, 128), "optimizer": {"wd": grid(0, 1)}},
        **fields,
    }
    return Experiment(name="mlp", train=print, objective="accuracy", **given)


def changed(*argv, **fields):
    return apply(parse(["mlp.py", *argv]), experiment(**fields))


def faults_of(*argv, **fields):
    with pytest.raises(ExperimentError) as caught:
        changed(*argv, **fields)
    return caught.value.faults


def test_without_options_nothing_changes():
    assert changed() == experiment()


def test_a_fixed_setting_leaves_the_sweep():
    found = changed("--set", "batch_size=64")
    assert found.config["batch_size"] == 64
    assert set(found.sweep) == {"precision", "optimizer"}


def test_a_swept_setting_becomes_a_grid():
    assert changed("--sweep", "lr=1e-3,1e-2").sweep["lr"] == grid(0.001, 0.01)


def test_dots_lead_into_nested_settings():
    found = changed("--set", "optimizer.momentum=0.5", "--sweep", "optimizer.name=sgd,adam")
    assert found.config["optimizer"] == {"name": "sgd", "momentum": 0.5}
    assert found.sweep["optimizer"] == {"wd": grid(0, 1), "name": grid("sgd", "adam")}


def test_a_nested_setting_that_is_fixed_leaves_the_sweep_with_its_empty_group():
    found = changed("--set", "optimizer.wd=0.1")
    assert found.config["optimizer"]["wd"] == 0.1
    assert "optimizer" not in found.sweep


def test_a_key_that_holds_the_dot_itself_is_meant():
    assert changed("--set", "a.b=2", config={"a.b": 1}).config == {"a.b": 2}


def test_devices_and_seed_are_settings():
    assert changed("--devices", "each", "--seed", "7").config["device"] == "each"
    assert changed("--seed", "7").config["seed"] == 7
    assert changed("--devices", "cpu,gpu", config={"device": "any"}).sweep["device"] == grid("cpu", "gpu")
    assert "device" not in changed("--devices", "cpu", sweep={"device": grid("cpu", "gpu")}).sweep


def test_objective_mode_and_target_replace_those_of_the_file():
    found = changed("--objective", "loss", "--mode", "min", "--target", "0.5")
    assert (found.objective, found.mode, found.target) == ("loss", "min", 0.5)


def test_all_faults_are_listed_at_once():
    faults = faults_of("--set", "lrr=1", "--sweep", "momentun=1,2", "--set", "batch_size=0", "--sweep", "epochs=")
    text = "\n".join(faults)
    assert "--set lrr: mlp has no setting 'lrr' (did you mean \"lr\"?)" in text
    assert "--sweep momentun" in text
    assert "batch_size = 0 is not allowed" in text
    assert 'sweep["epochs"] is empty' in text


@pytest.mark.parametrize("value", ["0", "-4", "2.5", "many", "true"])
def test_a_batch_size_that_is_no_count_is_refused(value):
    assert "batch_size" in faults_of("--set", f"batch_size={value}")[0]


def test_a_precision_that_does_not_exist_is_refused_with_those_that_do():
    assert "bf16-true" in faults_of("--sweep", "precision=fp32,bf61")[0]


def test_a_part_of_what_is_swept_as_a_whole_cannot_be_set():
    faults = faults_of("--set", "optimizer.name=adam", sweep={"optimizer": grid({"name": "a"}, {"name": "b"})})
    assert faults == ("--set optimizer.name: mlp sweeps optimizer as a whole; use --set optimizer=...",)
