"""The plan of a sweep: its configurations, drawn lazily, each with its places or the reason why it has none."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.decide.placement import PlacementRules, device_types, faults, place
from orchestrator.devices import Node
from orchestrator.errors import ExperimentError
from orchestrator.experiment import Experiment, categories, is_domain
from orchestrator.settings import with_defaults
from orchestrator.trial import Refused, Trial, config_hash

_MOST_FAULTS = 20


@dataclass(frozen=True, kw_only=True)
class Draws:
    """How configurations are drawn: `samples` from random domains, `repeat` seeds each, from `seed` on.
    `shuffled`: a grid counts as a choice, so that `samples` counts configurations."""

    samples: int = 1
    repeat: int = 1
    seed: int = 0
    shuffled: bool = False


@dataclass(frozen=True, kw_only=True)
class Planner:
    """Turns drawn configurations into trials."""

    experiment: Experiment
    nodes: Sequence[Node]
    rules: PlacementRules
    draws: Draws

    def grid_points(self) -> int:
        """Configurations of the sweep before devices, repeats and exclusions."""
        if self.draws.shuffled:
            return self.draws.samples
        count = self.draws.samples
        for domain in _leaves(self.experiment.sweep):
            if isinstance(domain, Mapping):
                count *= len(categories(domain) or ())
        return count

    def trials_expected(self) -> int:
        """Trials before exclusions: an upper limit."""
        each = self.experiment.config.get("device") == "each"
        return self.grid_points() * self.draws.repeat * (len(device_types(self.nodes)) if each else 1)

    def configurations(self) -> Iterator[dict[str, Any]]:
        """All configurations, complete, in an order that only the seed decides."""
        from ray.tune.search.variant_generator import generate_variants

        space = merged(dict(self.experiment.config), self.experiment.sweep)
        if self.draws.shuffled:
            space = as_choices(space)
        draw = random.Random(self.draws.seed)
        for _ in range(self.draws.samples):
            for _, config in generate_variants(
                {"config": space}, random_state=_numpy_random(draw.getrandbits(32))
            ):
                yield with_defaults({"seed": self.draws.seed, **config["config"]})

    def expand(self, config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The configuration on each device type, with each seed."""
        each = config.get("device") == "each"
        for device in device_types(self.nodes) if each else [config.get("device", "any")]:
            for repeat in range(self.draws.repeat):
                yield {**config, "device": device, "seed": config["seed"] + repeat}

    def trial(self, config: Mapping[str, Any], number: int) -> Trial | Refused:
        """The `number`th trial (from 1), or why it does not run.

        Raises:
            ExperimentError: settings that contradict each other.
        """
        reason = self._excluded(config)
        if reason is not None:
            return Refused(config=config, device=config["device"], reason=str(reason))
        if found := faults(config):
            raise ExperimentError(*found)
        placed = place(config, self.rules, self.nodes)
        if isinstance(placed, Refused):
            return replace(placed, id=trial_id(number) if placed.status else None)
        return Trial(
            id=trial_id(number),
            config=config,
            placements=placed,
            repeat=config["seed"] - self.draws.seed,
        )

    def trials(self) -> Iterator[Trial | Refused]:
        """The whole sweep, for a search that does not learn. A configuration that comes twice runs once.

        Raises:
            ExperimentError: as soon as a faulty configuration is reached; `check` finds all of them first.
        """
        numbers, seen = itertools.count(1), dict[str, str]()
        for drawn in self.configurations():
            for config in self.expand(drawn):
                key = config_hash(config)
                if key in seen:
                    reason = f"the same as {seen[key]}"
                    yield Refused(config=config, device=config["device"], reason=reason)
                    continue
                found = self.trial(config, next(numbers))
                if found.id is not None:
                    seen[key] = found.id
                yield found

    def check(self) -> None:
        """Raise one error with the faults of all configurations that are not excluded."""
        found: dict[str, None] = {}
        for drawn in self.configurations():
            for config in self.expand(drawn):
                if self._excluded(config) is None:
                    found.update(dict.fromkeys(faults(config)))
                if len(found) >= _MOST_FAULTS:
                    break
        if found:
            raise ExperimentError(*found)

    def _excluded(self, config: Mapping[str, Any]) -> str | None:
        return self.experiment.exclude(config) if self.experiment.exclude else None


def trial_id(number: int) -> str:
    return f"t{number:04d}"


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`, nested settings one by one."""
    result = dict(base)
    for key, value in over.items():
        nested = isinstance(value, Mapping) and not is_domain(value) and isinstance(result.get(key), Mapping)
        result[key] = merged(result[key], value) if nested else value
    return result


def as_choices(space: Mapping[str, Any]) -> dict[str, Any]:
    """Every grid as a random choice."""
    from ray import tune

    def convert(value: Any) -> Any:
        if isinstance(value, Mapping):
            return tune.choice(categories(value)) if is_domain(value) else as_choices(value)
        return value

    return {key: convert(value) for key, value in space.items()}


def _leaves(space: Mapping[str, Any]) -> Iterator[Any]:
    for value in space.values():
        if isinstance(value, Mapping) and not is_domain(value):
            yield from _leaves(value)
        else:
            yield value


def _numpy_random(seed: int) -> Any:
    import numpy

    return numpy.random.RandomState(seed)
