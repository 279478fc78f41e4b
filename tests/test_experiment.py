"""What an experiment file may declare, and how its faults are told."""

from __future__ import annotations

import subprocess
import sys

import pytest
from ray import tune

from orchestrator.errors import ExperimentError
from orchestrator.experiment import Experiment, categories, is_domain

NEEDED = {"name": "digits", "train": print, "objective": "accuracy"}


def faults(**fields: object) -> tuple[str, ...]:
    with pytest.raises(ExperimentError) as caught:
        Experiment(**{**NEEDED, **fields})  # type: ignore[arg-type]
    return caught.value.faults


def test_three_fields_are_enough():
    experiment = Experiment(**NEEDED)
    assert (experiment.mode, experiment.framework, dict(experiment.sweep)) == ("max", "torch", {})


def test_it_cannot_be_changed_afterwards():
    experiment = Experiment(**NEEDED, config={"lr": 0.1})
    with pytest.raises(AttributeError):
        experiment.name = "other"
    with pytest.raises(TypeError):
        experiment.config["lr"] = 0.2


def test_later_changes_of_the_given_dict_do_not_reach_it():
    config = {"lr": 0.1}
    experiment = Experiment(**NEEDED, config=config)
    config["lr"] = 0.2
    assert experiment.config["lr"] == 0.1


def test_an_unknown_field_is_named_with_the_nearest_and_all_that_exist():
    (fault,) = faults(sweeps={})
    assert '"sweeps"' in fault and 'did you mean "sweep"?' in fault and "keep_checkpoints" in fault


def test_missing_fields_are_named():
    with pytest.raises(ExperimentError) as caught:
        Experiment(name="x")
    assert caught.value.faults == ("Experiment needs the field train", "Experiment needs the field objective")


def test_positional_arguments_are_refused():
    with pytest.raises(ExperimentError, match="keywords only"):
        Experiment("digits", print, "accuracy")  # type: ignore[misc]


def test_all_faults_come_at_once():
    found = faults(
        name="",
        mode="up",
        framework="torhc",
        target=float("nan"),
        config={"epochs": 0, "batch_size": 1.5, "lr": tune.uniform(0, 1)},
        sweep={"precision": tune.grid_search(["fp32", "fp31"]), "workers": [1, 2]},
        unknown=1,
    )
    text = "\n".join(found)
    for words in (
        "name = ''", "mode = 'up'", 'did you mean "torch"?', "target = nan", "epochs = 0", "batch_size = 1.5",
        'config["lr"] is a search space', "precision = 'fp31'", 'sweep["workers"]', '"unknown"',
    ):  # fmt: skip
        assert words in text
    assert len(found) == 10


def test_train_has_to_be_callable():
    assert faults(train="train") == ("train = 'train' is not allowed: a function",)


@pytest.mark.parametrize("key", ["epoch", "batchsize", "precison", "Seed"])
def test_a_misspelt_setting_is_noticed(key):
    (fault,) = faults(config={key: 1})
    assert "looks like a misspelt setting" in fault


def test_a_key_near_a_setting_that_is_set_too_is_the_users_own():
    assert Experiment(**NEEDED, config={"epochs": 1, "epoch": 1}).config["epoch"] == 1


def test_an_empty_search_space_is_refused():
    assert faults(sweep={"lr": tune.grid_search([])}) == ('sweep["lr"] is empty: give at least one value',)


def test_nested_search_spaces_are_checked():
    assert faults(sweep={"optimizer": {"lr": 0.1}})[0].startswith('sweep["optimizer"]: sweep["lr"] = 0.1')


def test_the_domains_of_ray_tune_are_search_spaces():
    assert all(map(is_domain, (tune.grid_search([1]), tune.choice([1]), tune.loguniform(1e-3, 1))))
    assert not any(map(is_domain, (1, [1], {"lr": 1})))


def test_categories_are_known_for_grids_and_choices_alone():
    assert categories(tune.grid_search([1, 2])) == [1, 2]
    assert categories(tune.choice(["a"])) == ["a"]
    assert categories(tune.uniform(0, 1)) is None


def test_importing_the_orchestrator_loads_neither_torch_nor_ray():
    code = "import sys, orchestrator; print([name for name in ('torch', 'ray', 'mlflow') if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert shown.stdout == "[]\n"
