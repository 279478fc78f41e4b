"""Which trial Tune starts next: drawn from the plan or a search algorithm, released when its device is free."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from ray.tune.search import Searcher

from orchestrator.decide.placement import device_types, slots
from orchestrator.decide.release import choose
from orchestrator.devices import DeviceShape, Node
from orchestrator.errors import UserError
from orchestrator.experiment import Experiment
from orchestrator.results import TrialStatus
from orchestrator.settings import with_defaults
from orchestrator.sweep.plan import Planner, as_choices, merged
from orchestrator.trial import Refused, Trial, config_hash

TRIAL = "trial"  # the one key of a Tune configuration
OBJECTIVE = "objective"  # the one metric that Tune sees
_LOOK_AHEAD = 1000  # trials drawn and held until their device is free
_LOOK_AHEAD_LEARNING = 8  # each of these is drawn without the results of the others
_MOST_REPETITIONS = 50  # suggestions in a row that were tried before: the space is exhausted


class Source(Protocol):
    """Where trials come from. `draw` gives None when nothing can be said before more results are in."""

    learns: bool

    def draw(self) -> Trial | Refused | None: ...

    def tell(self, trial: Trial, value: float | None) -> None: ...

    def has_ended(self) -> bool: ...


class PlannedSource:
    """Every configuration of the plan in turn."""

    learns = False

    def __init__(self, planner: Planner) -> None:
        self._trials: Iterator[Trial | Refused] = planner.trials()
        self._ended = False

    def draw(self) -> Trial | Refused | None:
        found = next(self._trials, None)
        self._ended = found is None
        return found

    def tell(self, trial: Trial, value: float | None) -> None:
        """Results change nothing."""

    def has_ended(self) -> bool:
        return self._ended


class LearningSource:
    """Suggestions of a search algorithm of Tune's, one searcher for each device type with `device="each"`.

    A configuration that was tried is not tried again: the searcher is told the old value.
    """

    learns = True

    def __init__(self, planner: Planner, make: Callable[[dict[str, Any]], Searcher]) -> None:
        self._planner = planner
        each = planner.experiment.config.get("device") == "each"
        devices = device_types(planner.nodes) if each else [planner.experiment.config.get("device")]
        space = as_choices(dict(planner.experiment.sweep))
        self._searchers = {device: make(space) for device in devices}
        self._turn = itertools.cycle(devices)
        self._left = planner.draws.samples * len(devices)
        self._names, self._numbers = itertools.count(1), itertools.count(1)
        self._queued: list[Trial | Refused] = []
        self._open: dict[
            str, tuple[Any, str, int, list[float | None]]
        ] = {}  # name -> searcher, ..., values so far
        self._of_trial: dict[str, str] = {}
        self._known: dict[str, float | None] = {}
        self._repetitions = 0

    def draw(self) -> Trial | Refused | None:
        while not self._queued and not self.has_ended():
            if not self._suggest():
                return None
        return self._queued.pop(0) if self._queued else None

    def has_ended(self) -> bool:
        return not self._queued and (self._left <= 0 or self._repetitions >= _MOST_REPETITIONS)

    def tell(self, trial: Trial, value: float | None) -> None:
        name = self._of_trial.pop(trial.id)
        searcher, key, due, values = self._open[name]
        values.append(value)
        if len(values) == due:
            del self._open[name]
            finite = [value for value in values if value is not None]
            self._known[key] = sum(finite) / len(finite) if finite else None
            _complete(searcher, name, self._known[key])

    def _suggest(self) -> bool:
        """Queue the trials of one suggestion; False if the searcher has none now."""
        device = next(self._turn)
        searcher, name = self._searchers[device], f"draw{next(self._names)}"
        suggestion = searcher.suggest(name)
        if suggestion is None:
            return False
        if suggestion == Searcher.FINISHED:
            self._left = 0
            return True
        seed = {"seed": self._planner.draws.seed}
        drawn = with_defaults({**seed, **merged(self._planner.experiment.config, suggestion)})
        key = config_hash({**drawn, "device": device or drawn.get("device", "any")})
        if key in self._known:
            self._repetitions += 1
            _complete(searcher, name, self._known[key])
            return True
        self._repetitions = 0
        self._left -= 1
        config = {**drawn, "device": device} if device else drawn
        trials = []
        for one in self._planner.expand(config):
            try:
                found = self._planner.trial(one, next(self._numbers))
            except UserError as error:
                found = Refused(config=one, device=one["device"], reason=str(error), status=TrialStatus.INFEASIBLE)
            self._queued.append(found)
            if isinstance(found, Trial):
                trials.append(found)
                self._of_trial[found.id] = name
        if trials:
            self._open[name] = (searcher, key, len(trials), [])
            self._known[key] = None
        else:
            _complete(searcher, name, None)
        return True


class DeviceAware(Searcher):
    """Hands Tune a trial of the source as soon as its device shape has a free slot, so that trials of one device
    type never wait behind those of another. `announce` hears of each trial before Tune does. `ahead` and
    `most_live`: see `decide.release`; once `is_stopped` nothing more is handed out."""

    def __init__(
        self,
        source: Source,
        nodes: list[Node],
        announce: Callable[[Trial | Refused], None],
        is_stopped: Callable[[], bool],
        ahead: int = 0,
        most_live: int | None = None,
    ) -> None:
        super().__init__(metric=OBJECTIVE, mode="max")
        self._source, self._nodes, self._announce, self._is_stopped = source, nodes, announce, is_stopped
        self._most_live = most_live or math.inf
        self._look_ahead = _LOOK_AHEAD_LEARNING if source.learns else _LOOK_AHEAD
        self._ahead = 0 if source.learns else ahead
        self._slots: dict[DeviceShape, int] = {}
        self._held: list[Trial] = []
        self._live: dict[str, tuple[DeviceShape, Trial]] = {}

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any
    ) -> bool:
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self._is_stopped():
            return Searcher.FINISHED
        if len(self._live) >= self._most_live:
            return None
        while True:
            live = Counter(shape for shape, _ in self._live.values())
            if chosen := choose(self._held, live, self._slots, self._ahead):
                index, placement = chosen
                trial = self._held.pop(index)
                self._live[trial_id] = placement.shape, trial
                pinned = Trial(id=trial.id, config=trial.config, placements=(placement,), repeat=trial.repeat)
                return {TRIAL: pinned}
            if len(self._held) >= self._look_ahead:
                return None
            drawn = self._source.draw()
            if drawn is None:
                return Searcher.FINISHED if self._source.has_ended() and not self._held else None
            self._announce(drawn)
            if isinstance(drawn, Trial):
                self._held.append(drawn)
                for placement in drawn.placements:
                    if placement.shape not in self._slots:
                        self._slots[placement.shape] = slots(placement.shape, self._nodes)

    def on_trial_complete(
        self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False
    ) -> None:
        _, trial = self._live.pop(trial_id)
        value = (result or {}).get(OBJECTIVE)
        self._source.tell(trial, None if error or (result or {}).get("diverged") else value)

    # A sweep is resumed from its journal. Tune's own snapshots, which cannot be switched off, are never read: they
    # hold a bare searcher in place of this one.

    def __reduce__(self) -> tuple[type[Searcher], tuple[()]]:
        return Searcher, ()

    def __deepcopy__(self, memo: dict[int, Any]) -> DeviceAware:
        return self

    def get_state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        assert not state

    def save(self, checkpoint_path: str) -> None:
        """Nothing is kept."""

    def restore(self, checkpoint_path: str) -> None:
        raise NotImplementedError("a sweep is resumed from its journal")


def optuna(experiment: Experiment, seed: int) -> Callable[[dict[str, Any]], Searcher]:
    """Makes Tune's Optuna searcher over a space."""

    def make(space: dict[str, Any]) -> Searcher:
        import optuna as library
        from ray.tune.search.optuna import OptunaSearch

        library.logging.set_verbosity(library.logging.ERROR)
        return OptunaSearch(space=space, metric=OBJECTIVE, mode=experiment.mode, seed=seed)

    return make


def _complete(searcher: Searcher, name: str, value: float | None) -> None:
    searcher.on_trial_complete(name, result=None if value is None else {OBJECTIVE: value}, error=value is None)
