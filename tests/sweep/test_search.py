"""Which trial Tune gets next."""

from ray import tune
from ray.tune.search import Searcher

from orchestrator import Experiment
from orchestrator.decide.placement import PlacementRules
from orchestrator.devices import Node
from orchestrator.results import TrialStatus
from orchestrator.sweep.plan import Draws, Planner
from orchestrator.sweep.search import OBJECTIVE, TRIAL, DeviceAware, LearningSource, PlannedSource, optuna
from orchestrator.trial import Refused, Trial

ONCE = Draws()
LAPTOP = [Node(id="a", address="127.0.0.1", cpus=2)]
MIXED = [
    Node(id="a", address="10.0.0.1", cpus=2),
    Node(id="b", address="10.0.0.2", cpus=8, resources={"GPU": 1.0}),
]


class Scripted(Searcher):
    """Suggests what it is told to, and remembers what it hears."""

    def __init__(self, values: list[int]) -> None:
        super().__init__(metric=OBJECTIVE, mode="min")
        self.values, self.heard = list(values), []

    def suggest(self, trial_id: str):
        return {"x": self.values.pop(0)} if self.values else None

    def on_trial_complete(self, trial_id: str, result=None, error: bool = False) -> None:
        self.heard.append((trial_id, None if error else result[OBJECTIVE]))


def planner(nodes, draws: Draws = ONCE, **fields) -> Planner:
    experiment = Experiment(name="x", train=print, objective="loss", mode="min", **fields)
    return Planner(experiment=experiment, nodes=nodes, rules=PlacementRules(framework="torch"), draws=draws)


def search(source, nodes, **options) -> tuple[DeviceAware, list[Trial | Refused]]:
    announced: list[Trial | Refused] = []
    return DeviceAware(source, nodes, announced.append, lambda: False, **options), announced


def test_trials_of_one_device_never_wait_behind_those_of_another():
    source = PlannedSource(planner(MIXED, config={"device": "each"}, sweep={"x": tune.grid_search([1, 2, 3])}))
    aware, _ = search(source, MIXED)
    released = []
    while isinstance(config := aware.suggest(f"tune{len(released)}"), dict):
        released.append(config[TRIAL].placements[0].shape.device)
    assert released.count("gpu") == 1 and released.count("cpu") == 3


def test_a_trial_that_ends_makes_room_for_the_next():
    source = PlannedSource(planner(LAPTOP, sweep={"x": tune.grid_search([1, 2, 3])}))
    aware, _ = search(source, LAPTOP)
    for name in ("one", "two"):
        assert isinstance(aware.suggest(name), dict)
    assert aware.suggest("three") is None
    aware.on_trial_complete("one", {OBJECTIVE: 1.0})
    assert isinstance(aware.suggest("three"), dict)
    aware.on_trial_complete("two", {OBJECTIVE: 1.0})
    assert aware.suggest("four") == Searcher.FINISHED


def test_a_limit_on_concurrent_trials_holds():
    source = PlannedSource(planner(LAPTOP, sweep={"x": tune.grid_search([1, 2, 3])}))
    aware, _ = search(source, LAPTOP, most_live=1)
    assert isinstance(aware.suggest("one"), dict)
    assert aware.suggest("two") is None


def test_every_configuration_is_announced_before_it_is_released_also_those_that_cannot_run():
    sweep = {"device": tune.grid_search(["gpu", "cpu"])}
    aware, announced = search(PlannedSource(planner(LAPTOP, sweep=sweep)), LAPTOP)
    config = aware.suggest("one")
    assert [type(one) for one in announced] == [Refused, Trial]
    assert announced[0].status is TrialStatus.INFEASIBLE
    assert config[TRIAL].id == announced[1].id


def test_a_suggestion_that_was_tried_is_not_tried_again_and_the_searcher_hears_the_old_value():
    scripted = Scripted([1, 1, 2])
    plan = planner(LAPTOP, draws=Draws(samples=2), sweep={"x": tune.choice([1, 2])})
    aware, announced = search(LearningSource(plan, lambda space: scripted), LAPTOP)
    aware.suggest("one")
    aware.on_trial_complete("one", {OBJECTIVE: 0.5})
    aware.suggest("two")
    assert [trial.config["x"] for trial in announced] == [1, 2]
    assert [value for _, value in scripted.heard] == [0.5, 0.5]


def test_a_space_that_is_exhausted_ends_the_sweep():
    scripted = Scripted([1] * 1000)
    plan = planner(LAPTOP, draws=Draws(samples=10), sweep={"x": tune.choice([1])})
    aware, announced = search(LearningSource(plan, lambda space: scripted), LAPTOP)
    aware.suggest("one")
    aware.on_trial_complete("one", {OBJECTIVE: 0.5})
    assert aware.suggest("two") == Searcher.FINISHED
    assert len(announced) == 1


def test_a_diverged_trial_is_an_error_to_the_searcher_and_never_a_value():
    scripted = Scripted([1])
    plan = planner(LAPTOP, sweep={"x": tune.choice([1])})
    aware, _ = search(LearningSource(plan, lambda space: scripted), LAPTOP)
    aware.suggest("one")
    aware.on_trial_complete("one", {OBJECTIVE: 1e300, "diverged": True})
    assert [value for _, value in scripted.heard] == [None]


def test_repeats_of_a_suggestion_are_told_to_the_searcher_as_their_mean():
    scripted = Scripted([1])
    plan = planner(LAPTOP, draws=Draws(repeat=2), sweep={"x": tune.choice([1])})
    aware, announced = search(LearningSource(plan, lambda space: scripted), LAPTOP)
    for name, value in (("one", 1.0), ("two", 3.0)):
        aware.suggest(name)
        aware.on_trial_complete(name, {OBJECTIVE: value})
    assert [trial.config["seed"] for trial in announced] == [0, 1]
    assert [value for _, value in scripted.heard] == [2.0]


def test_with_each_device_optuna_has_a_searcher_of_its_own_for_every_type():
    plan = planner(
        MIXED, draws=Draws(samples=2), config={"device": "each"}, sweep={"x": tune.grid_search([1, 2, 3, 4])}
    )
    aware, announced = search(LearningSource(plan, optuna(plan.experiment, seed=0)), MIXED)
    names = iter("abcdefgh")
    while isinstance(aware.suggest(name := next(names)), dict):
        aware.on_trial_complete(name, {OBJECTIVE: 1.0})
    devices = [trial.config["device"] for trial in announced]
    assert devices.count("cpu") == devices.count("gpu") == 2
