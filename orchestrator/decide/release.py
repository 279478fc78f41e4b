"""Which trial is handed out next: one whose device shape has a free slot, so that CPU trials never wait
behind GPU trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.devices import DeviceShape
from orchestrator.trial import Placement, Trial


def choose(
    held: Sequence[Trial], live: Mapping[DeviceShape, int], slots: Mapping[DeviceShape, int], ahead: int
) -> tuple[int, Placement] | None:
    """The first held trial with a free slot, and the placement that has most room; None if there is none.

    `live` counts trials handed out and not ended, `slots` the groups of each shape that fit at once. `ahead`
    trials more than slots are handed out of each shape, so that a group need not wait for its next one; a trial
    that may run on several shapes is only handed out to one that is free now.
    """
    for index, trial in enumerate(held):
        spare = 0 if len(trial.placements) > 1 else ahead
        room = [
            (slots[placement.shape] + spare - live.get(placement.shape, 0), -rank)
            for rank, placement in enumerate(trial.placements)
        ]
        most, rank = max(room)
        if most > 0:
            return index, trial.placements[-rank]
    return None
