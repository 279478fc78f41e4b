"""The contract of a device type: everything that placement asks about it. One file a type implements it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, kw_only=True)
class Node:
    """One machine of the cluster as Ray describes it: resource totals and labels."""

    id: str
    address: str
    cpus: int
    resources: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    emulated: bool = False


@dataclass(frozen=True, kw_only=True)
class DeviceShape:
    """What a worker group is made of, and so which trials it can take: equal shapes share groups.

    `devices` are accelerators per trial, `workers` processes per trial. `model` is None where any will do.
    `emulated` devices are made up for a rehearsal: the framework trains on the CPU in their place.
    `environment` names the software that the group's processes need, None for the driver's own.
    """

    device: str
    model: str | None
    devices: int
    workers: int
    cpus_per_worker: int
    framework: str
    emulated: bool = False
    environment: str | None = None

    def __str__(self) -> str:
        name = f"{self.device}:{self.model}" if self.model else self.device
        size = f"{self.workers} workers, " if self.workers > 1 else ""
        return f"{'emulated ' if self.emulated else ''}{name} ({size}{self.cpus_per_worker} CPU each)"

    @property
    def devices_per_worker(self) -> int:
        return max(1, self.devices // self.workers)


class DeviceType(ABC):
    """What the orchestrator knows of a type of device. Methods are cheap; vendor libraries load inside them.

    A model is a text after the type's name: "H100" in "gpu:H100", "v6e-8" in "tpu:v6e-8".
    """

    name: ClassVar[str]
    resource: ClassVar[str]  # Ray's name for it

    @abstractmethod
    def count(self, node: Node) -> int:
        """How many devices the node has."""

    @abstractmethod
    def model(self, node: Node) -> str | None:
        """The model of the node's devices as Ray names it ("H100"), None if unknown."""

    @abstractmethod
    def local_model(self) -> str | None:
        """The model of the device that this process sees, in the vendor's words."""

    @abstractmethod
    def workers(self, devices: int, requested: int | None, nodes: Sequence[Node] = ()) -> int:
        """Processes of a trial on `devices` devices; `nodes` are those that it may run on, if known.

        Raises:
            ValueError: `requested` does not agree with the devices.
        """

    @abstractmethod
    def bundle(self, shape: DeviceShape) -> dict[str, float]:
        """The Ray resources of one worker of the shape."""

    def has(self, node: Node, model: str | None) -> bool:
        """Has the node devices of that model, or any where it is None?"""
        return self.count(node) > 0 and model in (None, self.model(node))

    def devices(self, model: str | None, requested: int | None) -> int:
        """Devices of a trial: those requested, else those that the model's name implies, else one.

        Raises:
            ValueError: there is no such model, or it contradicts the request.
        """
        return requested or 1

    def labels(self, shape: DeviceShape) -> dict[str, str]:
        """Ray's label selector of one worker of the shape."""
        return {}

    def pools(self, shape: DeviceShape, nodes: Sequence[Node]) -> list[Sequence[Node]]:
        """Sets of nodes; all workers of one trial come from one of them."""
        return [nodes]
