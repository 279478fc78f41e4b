"""NVIDIA GPUs: one worker process a device."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.devices.base import DeviceShape, DeviceType, Node


class Gpu(DeviceType):
    name = "gpu"
    resource = "GPU"

    def count(self, node: Node) -> int:
        return int(node.resources.get(self.resource, 0))

    def model(self, node: Node) -> str | None:
        prefix = "accelerator_type:"
        models = (name.removeprefix(prefix) for name in node.resources if name.startswith(prefix))
        return next(models, None) if self.count(node) else None

    def local_model(self) -> str | None:
        import torch

        return torch.cuda.get_device_name() if torch.cuda.is_available() else None

    def workers(self, devices: int, requested: int | None, nodes: Sequence[Node] = ()) -> int:
        if requested is not None and requested != devices:
            raise ValueError(
                f"workers = {requested} does not agree with devices = {devices}: "
                "on gpu there is one worker a device"
            )
        return devices

    def bundle(self, shape: DeviceShape) -> dict[str, float]:
        resources = {"CPU": float(shape.cpus_per_worker), "GPU": 1.0}
        if shape.model:
            resources[f"accelerator_type:{shape.model}"] = 0.001
        return resources
