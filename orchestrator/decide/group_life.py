"""When worker groups start, stay and end: a pure decision over what waits and what runs."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.decide.placement import fits
from orchestrator.decide.retry import is_given_up
from orchestrator.devices import DeviceShape, Node


class GroupState(enum.StrEnum):
    """`STARTING`: not yet asked for a trial. `ENDING`: gets no further trial, still holds its devices."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    ENDING = "ending"


@dataclass(frozen=True, kw_only=True)
class GroupView:
    """A living group. Times in seconds: since its first trial, and since it has had nothing to do. `is_new`: it
    has had no trial yet."""

    id: str
    shape: DeviceShape
    state: GroupState
    held_s: float = 0.0
    idle_s: float = 0.0
    is_new: bool = False


@dataclass(frozen=True, kw_only=True)
class DemandView:
    """Trials that wait for a group of a shape; `fruitless` groups of it in a row ended no trial."""

    shape: DeviceShape
    waiting: int
    waited_s: float = 0.0
    fruitless: int = 0


@dataclass(frozen=True, kw_only=True)
class LifeLimits:
    """`max_hold_s`: how long a busy group may keep others waiting. `idle_s`: how long an idle one stays.
    `new_s`: how long a new one is left to wait for its first trial, which may still be on its way."""

    max_hold_s: float = 60.0
    idle_s: float = 120.0
    new_s: float = 10.0
    max_groups: int | None = None


@dataclass(frozen=True)
class Start:
    shape: DeviceShape


@dataclass(frozen=True)
class End:
    """The group gets no further trial; a running one is finished first."""

    group: str
    reason: str


@dataclass(frozen=True)
class GiveUp:
    """The waiting trials of the shape fail."""

    shape: DeviceShape


Action = Start | End | GiveUp
_Room = Callable[[DeviceShape, Sequence[str]], bool]


def decide(
    demands: Sequence[DemandView],
    groups: Sequence[GroupView],
    nodes: Sequence[Node],
    limits: LifeLimits,
    expected: Sequence[DeviceShape] = (),
) -> list[Action]:
    """What to do now. Accelerators come before the CPU, then whoever has waited longest.

    `expected` are shapes of trials still to come: a CPU group never takes the cores that an accelerator group
    of them needs on its node.
    """
    actions: list[Action] = []
    starting: list[DeviceShape] = []
    # A group that starts keeps a core busy with imports: on a small machine two at once would only both be late.
    may_start = max(1, sum(node.cpus for node in nodes) - 1)
    may_start -= sum(group.state is GroupState.STARTING for group in groups)
    accelerators = {shape for shape in expected if shape.device != "cpu"} - {group.shape for group in groups}

    def room(shape: DeviceShape, without: Sequence[str]) -> bool:
        kept = [group.shape for group in groups if group.id not in without]
        few = limits.max_groups is None or len(kept) + len(starting) < limits.max_groups
        reserved = accelerators.difference(starting) if shape.device == "cpu" else ()
        return few and fits([*kept, *starting, shape, *reserved], nodes)

    for demand in sorted(demands, key=lambda one: (one.shape.device == "cpu", -one.waited_s)):
        if is_given_up(demand.fruitless):
            actions.append(GiveUp(demand.shape))
            continue
        mine = [group for group in groups if group.shape == demand.shape and group.state is not GroupState.ENDING]
        ready = sum(group.state is not GroupState.BUSY for group in mine)
        for _ in range(demand.waiting - ready):
            if room(demand.shape, ()):
                if len(starting) < may_start:
                    starting.append(demand.shape)
                    actions.append(Start(demand.shape))
            else:
                freed = _free(demand, bool(mine), groups, room, limits)
                actions += [End(id, f"its devices are wanted for {demand.shape}") for id in freed]
                break

    wanted = {demand.shape for demand in demands if demand.waiting}
    ended = {action.group for action in actions if isinstance(action, End)}
    actions += [
        End(group.id, f"idle for {group.idle_s:.0f} s")
        for group in groups
        if group.state is GroupState.IDLE
        and group.idle_s >= limits.idle_s
        and group.shape not in wanted
        and group.id not in ended
    ]
    return actions


def _free(
    demand: DemandView, has_groups: bool, groups: Sequence[GroupView], room: _Room, limits: LifeLimits
) -> list[str]:
    """The groups of other shapes to end so that one of this shape fits: idle ones at once, busy ones only for a
    shape without a group that has waited `max_hold_s`, from groups that have held their devices that long."""
    others = [group for group in groups if group.shape != demand.shape]
    leaving = [group.id for group in others if group.state is GroupState.ENDING]
    if room(demand.shape, leaving):
        return []
    idle = [
        group.id
        for group in others
        if group.state is GroupState.IDLE and (not group.is_new or group.idle_s >= limits.new_s)
    ]
    tired = [
        group.id
        for group in sorted(others, key=lambda one: -one.held_s)
        if group.state is GroupState.BUSY and group.held_s >= limits.max_hold_s
    ]
    if has_groups or demand.waited_s < limits.max_hold_s:
        tired = []
    chosen: list[str] = []
    for id in [*idle, *tired]:
        chosen.append(id)
        if room(demand.shape, [*leaving, *chosen]):
            return chosen
    return []
