"""Where a configuration may run: device shapes, what fits into the cluster, and why something does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.devices import DEVICE_TYPES, DeviceShape, DeviceType, Node, parse_device
from orchestrator.precision import Precision, substitute, support
from orchestrator.results import TrialStatus
from orchestrator.trial import Placement, Refused

_MOST_CORES_A_CPU_TRIAL = 4
_ACCURACY = 1e-6  # Ray counts fractions of resources


@dataclass(frozen=True, kw_only=True)
class PlacementRules:
    """What the experiment and the command say about placement."""

    framework: str
    on_unsupported: str = "skip"
    exclusive: bool = False


def device_types(nodes: Iterable[Node]) -> list[str]:
    """The device types that the nodes have, in order of preference."""
    nodes = list(nodes)
    return [name for name, device in DEVICE_TYPES.items() if any(device.count(node) for node in nodes)]


def faults(config: Mapping[str, Any]) -> list[str]:
    """Settings of one configuration that contradict each other on every cluster."""
    found = []
    for name in _candidates(config):
        kind, model = parse_device(name)
        device = DEVICE_TYPES[kind]
        try:
            devices = device.devices(model, config.get("devices"))
            workers = device.workers(devices, config.get("workers"))
        except ValueError as error:
            found.append(str(error))
            continue
        parts, what = max((workers, "workers"), (devices, "devices"))
        if config["batch_size"] % parts:
            found.append(
                f"batch_size = {config['batch_size']} is not divisible by {what} = {parts}: "
                "it counts the samples of one optimizer step over all of them"
            )
    return found if len(found) == len(_candidates(config)) else []


def place(
    config: Mapping[str, Any], rules: PlacementRules, nodes: Sequence[Node]
) -> tuple[Placement, ...] | Refused:
    """The shapes that can take the configuration, best first, or why there is none.

    `config` is complete (`settings.with_defaults`) and without `faults`; its device is a type or "any".
    """
    placements: list[Placement] = []
    refusals: list[Refused] = []
    for name in _candidates(config):
        placed = _place_on(name, config, rules, nodes)
        if isinstance(placed, Placement):
            placements.append(placed)
        else:
            refusals.append(placed)
    if placements:
        return tuple(placements)
    if len(refusals) == 1:
        return refusals[0]
    infeasible = any(refusal.status for refusal in refusals)
    return Refused(
        config=config,
        device=None,
        reason="; ".join(f"{refusal.device}: {refusal.reason}" for refusal in refusals),
        status=TrialStatus.INFEASIBLE if infeasible else None,
    )


def _candidates(config: Mapping[str, Any]) -> list[str]:
    device = config.get("device", "any")
    return list(DEVICE_TYPES) if device == "any" else [device]


def _place_on(
    name: str, config: Mapping[str, Any], rules: PlacementRules, nodes: Sequence[Node]
) -> Placement | Refused:
    def refuse(reason: str, status: TrialStatus | None = TrialStatus.INFEASIBLE) -> Refused:
        return Refused(config=config, device=name, reason=reason, status=status)

    kind, model = parse_device(name)
    device = DEVICE_TYPES[kind]
    suitable = [node for node in nodes if device.has(node, model)]
    if not suitable:
        return refuse(f"needs {name}, the cluster has {_has(nodes)}")
    try:
        devices = device.devices(model, config.get("devices"))
        workers = device.workers(devices, config.get("workers"), suitable)
    except ValueError as error:
        return refuse(str(error))
    asked = Precision.parse(config["precision"])
    answer, used = support(rules.framework, kind, asked), asked
    if not answer.supported:
        other = substitute(rules.framework, kind, asked) if rules.on_unsupported == "convert" else None
        if other is None:
            status = TrialStatus.INFEASIBLE if rules.on_unsupported == "fail" else None
            return refuse(f"{asked} on {kind}: {answer.reason}", status)
        used = other
    shape = DeviceShape(
        device=kind,
        model=model,
        devices=devices,
        workers=workers,
        cpus_per_worker=config.get("cpus_per_worker") or _default_cpus(device, workers, suitable, rules),
        framework=rules.framework,
        emulated=any(node.emulated for node in suitable) and kind != "cpu",
    )
    if not slots(shape, nodes):
        need = ", ".join(f"{amount:g} {resource}" for resource, amount in device.bundle(shape).items())
        return refuse(f"needs {workers} x ({need}), the cluster has {_has(nodes)}")
    return Placement(shape=shape, precision=str(used), converted_from=str(asked) if used != asked else None)


def _default_cpus(device: DeviceType, workers: int, suitable: Sequence[Node], rules: PlacementRules) -> int:
    """Cores of one worker.

    CPU: half the cores of the smallest node, at most 4, so that two trials or two workers run side by side;
    less where the workers would not fit otherwise. Others: the cores of the node over its devices, but on a
    node with one device half of them, so that a CPU trial has room beside it. With `exclusive` a trial takes
    all cores, so that no other trial has room.
    """
    smallest = min(node.cpus for node in suitable)
    if rules.exclusive:
        return max(1, smallest // -(-workers // len(suitable)))
    if device.name != "cpu":
        return max(1, smallest // max(2, *(device.count(node) for node in suitable)))
    share = min(_MOST_CORES_A_CPU_TRIAL, max(1, smallest // 2))
    room = sum(node.cpus for node in suitable) // workers
    return max(1, min(share, room))


def _has(nodes: Iterable[Node]) -> str:
    nodes = list(nodes)
    totals = {name: sum(device.count(node) for node in nodes) for name, device in DEVICE_TYPES.items()}
    parts = [f"{count} {DEVICE_TYPES[name].resource}" for name, count in totals.items() if count]
    return f"{', '.join(parts)} on {len(nodes)} node{'s' if len(nodes) != 1 else ''}"


def slots(shape: DeviceShape, nodes: Sequence[Node]) -> int:
    """How many groups of the shape the cluster holds at once when nothing else runs."""
    free, count = _totals(nodes), 0
    while _take(shape, nodes, free):
        count += 1
    return count


def fits(shapes: Iterable[DeviceShape], nodes: Sequence[Node]) -> bool:
    """Do groups of all these shapes fit side by side? Larger ones are placed first."""
    free = _totals(nodes)
    ordered = sorted(shapes, key=lambda shape: (shape.device != "cpu", shape.workers, shape.cpus_per_worker))
    return all(_take(shape, nodes, free) for shape in reversed(ordered))


_Free = dict[str, dict[str, float]]  # node id -> resource -> what is left of it


def _totals(nodes: Iterable[Node]) -> _Free:
    return {node.id: {"CPU": float(node.cpus), **node.resources} for node in nodes}


def _take(shape: DeviceShape, nodes: Sequence[Node], free: _Free) -> bool:
    """Take the shape's bundles from the first nodes with room, all of one pool; changes nothing and says False
    if none has room."""
    device = DEVICE_TYPES[shape.device]
    suitable = [node for node in nodes if device.has(node, shape.model)]
    return any(_take_from(pool, shape, free) for pool in device.pools(shape, suitable))


def _take_from(pool: Sequence[Node], shape: DeviceShape, free: _Free) -> bool:
    bundle = DEVICE_TYPES[shape.device].bundle(shape)
    left = {node.id: dict(free[node.id]) for node in pool}
    for _ in range(shape.workers):
        having = (
            one
            for one in left.values()
            if all(one.get(name, 0.0) >= need - _ACCURACY for name, need in bundle.items())
        )
        node = next(having, None)
        if node is None:
            return False
        for name, need in bundle.items():
            node[name] -= need
    free.update(left)
    return True
