"""Which trials a sweep has, before anything starts."""

import pytest
from ray import tune

from orchestrator import Experiment, UserError
from orchestrator.decide.placement import PlacementRules
from orchestrator.devices import Node
from orchestrator.results import TrialStatus
from orchestrator.sweep.plan import Draws, Planner
from orchestrator.trial import Refused, Trial

ONCE = Draws()
LAPTOP = [Node(id="a", address="127.0.0.1", cpus=2)]
WITH_GPU = [Node(id="a", address="127.0.0.1", cpus=8, resources={"GPU": 1.0})]


def planner(nodes=LAPTOP, draws: Draws = ONCE, **fields) -> Planner:
    experiment = Experiment(name="x", train=print, objective="loss", **fields)
    rules = PlacementRules(framework="torch", on_unsupported=experiment.on_unsupported)
    return Planner(experiment=experiment, nodes=nodes, rules=rules, draws=draws)


def trials(*args, **fields) -> list[Trial]:
    return [found for found in planner(*args, **fields).trials() if isinstance(found, Trial)]


def test_a_grid_gives_every_point_once_with_short_ids_in_order():
    sweep = {"precision": tune.grid_search(["fp32", "bf16"]), "batch_size": tune.grid_search([32, 128])}
    found = trials(sweep=sweep)
    assert [trial.id for trial in found] == ["t0001", "t0002", "t0003", "t0004"]
    points = {(trial.config["precision"], trial.config["batch_size"]) for trial in found}
    assert points == {("fp32", 32), ("fp32", 128), ("bf16", 32), ("bf16", 128)}


def test_an_empty_sweep_is_one_trial():
    assert len(trials()) == 1


def test_each_device_type_that_is_there_gets_every_configuration():
    found = trials(WITH_GPU, config={"device": "each"}, sweep={"batch_size": tune.grid_search([32, 64])})
    assert sorted((trial.config["device"], trial.config["batch_size"]) for trial in found) == [
        ("cpu", 32),
        ("cpu", 64),
        ("gpu", 32),
        ("gpu", 64),
    ]


def test_a_configuration_that_comes_twice_runs_once_and_the_other_is_listed_with_the_trial():
    found = list(planner(sweep={"x": tune.grid_search([1, 1, 2])}).trials())
    assert [type(one) for one in found] == [Trial, Refused, Trial]
    assert found[1].reason == "the same as t0001" and found[1].status is None


def test_excluded_points_cost_no_trial_and_carry_their_reason():
    found = list(
        planner(
            sweep={"x": tune.grid_search([1, 2])},
            exclude=lambda config: "one is enough" if config["x"] == 1 else None,
        ).trials()
    )
    assert isinstance(found[0], Refused) and found[0].reason == "one is enough" and found[0].status is None
    assert isinstance(found[1], Trial)


def test_what_can_never_be_placed_keeps_an_id_and_the_others_run():
    found = list(planner(sweep={"device": tune.grid_search(["gpu", "cpu"])}).trials())
    assert isinstance(found[0], Refused) and found[0].status is TrialStatus.INFEASIBLE and found[0].id == "t0001"
    assert isinstance(found[1], Trial) and found[1].id == "t0002"


def test_repeats_have_seeds_of_their_own_and_the_same_configuration():
    found = trials(draws=Draws(repeat=3, seed=7), sweep={"x": tune.grid_search([1])})
    assert [(trial.config["seed"], trial.repeat) for trial in found] == [(7, 0), (8, 1), (9, 2)]


def test_the_same_seed_draws_the_same_configurations_and_another_seed_others():
    def drawn(seed: int) -> list[float]:
        sweep = {"lr": tune.loguniform(1e-4, 1e-1)}
        return [trial.config["lr"] for trial in trials(draws=Draws(samples=5, seed=seed), sweep=sweep)]

    assert drawn(1) == drawn(1) != drawn(2)
    assert len(set(drawn(1))) == 5


def test_a_random_search_counts_configurations_instead_of_multiplying_the_grid():
    sweep = {"x": tune.grid_search(list(range(1000))), "y": tune.grid_search(list(range(1000)))}
    assert planner(draws=Draws(samples=4, shuffled=True), sweep=sweep).grid_points() == 4
    assert len(trials(draws=Draws(samples=4, shuffled=True), sweep=sweep)) == 4


def test_the_size_of_a_sweep_is_known_without_drawing_it():
    sweep = {name: tune.grid_search(list(range(1000))) for name in "abc"}
    assert planner(sweep=sweep, draws=Draws(repeat=2)).trials_expected() == 2 * 1000**3


def test_configurations_are_drawn_lazily():
    sweep = {name: tune.grid_search(list(range(1000))) for name in "abc"}
    first = next(planner(sweep=sweep).trials())
    assert isinstance(first, Trial) and first.config["a"] == 0


def test_nested_settings_are_swept_one_by_one():
    found = trials(
        config={"optimizer": {"lr": 0.1, "momentum": 0.9}},
        sweep={"optimizer": {"lr": tune.grid_search([1, 2])}},
    )
    assert [trial.config["optimizer"] for trial in found] == [
        {"lr": 1, "momentum": 0.9},
        {"lr": 2, "momentum": 0.9},
    ]


def test_all_batch_sizes_that_the_workers_cannot_share_are_listed_at_once():
    sweep = {"batch_size": tune.grid_search([31, 32, 33])}
    with pytest.raises(UserError) as caught:
        planner(config={"device": "cpu", "workers": 2}, sweep=sweep).check()
    assert len(caught.value.faults) == 2
    assert "batch_size = 31" in caught.value.faults[0] and "batch_size = 33" in caught.value.faults[1]
