"""The contract of a device type: everything that placement asks about it. One file a type implements it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
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
    """

    device: str
    model: str | None
    devices: int
    workers: int
    cpus_per_worker: int
    framework: str

    def __str__(self) -> str:
        name = f"{self.device}:{self.model}" if self.model else self.device
        size = f"{self.workers} workers, " if self.workers > 1 else ""
        return f"{name} ({size}{self.cpus_per_worker} CPU each)"


class DeviceType(ABC):
    """What the orchestrator knows of a type of device. Methods are cheap; vendor libraries load inside them."""

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
    def workers(self, devices: int, requested: int | None) -> int:
        """Processes of a trial on `devices` devices.

        Raises:
            ValueError: `requested` does not agree with the devices.
        """

    @abstractmethod
    def bundle(self, shape: DeviceShape) -> dict[str, float]:
        """The Ray resources of one worker of the shape."""
