"""Divides params, tags and metrics into requests within MLflow's limits."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.tracking.entries import Entries, MetricValue

MOST_ITEMS = 1000
MOST_PARAMS = MOST_TAGS = 100
MOST_CHARACTERS = 150_000  # at six bytes each, as JSON may need, below a server's 1 MB

_Item = tuple[str, str] | MetricValue


def batches(entries: Entries) -> Iterator[Entries]:
    """The params, tags and metrics in as few requests as may be."""
    batch, characters = Entries(), 0
    for kind, item in _items(entries):
        size = sum(len(part) for part in item if isinstance(part, str))
        is_full = count(batch) == MOST_ITEMS or len(batch.params) == MOST_PARAMS or len(batch.tags) == MOST_TAGS
        if is_full or (characters and characters + size > MOST_CHARACTERS):
            yield batch
            batch, characters = Entries(), 0
        _add(batch, kind, item)
        characters += size
    if batch:
        yield batch


def halves(batch: Entries) -> tuple[Entries, Entries]:
    """The batch in two; it holds at least two items."""
    first, second = Entries(), Entries()
    middle = count(batch) // 2
    for number, (kind, item) in enumerate(_items(batch)):
        _add(first if number < middle else second, kind, item)
    return first, second


def count(batch: Entries) -> int:
    return len(batch.params) + len(batch.tags) + len(batch.metrics)


def _items(entries: Entries) -> Iterator[tuple[str, _Item]]:
    yield from (("param", item) for item in entries.params.items())
    yield from (("tag", item) for item in entries.tags.items())
    yield from (("metric", item) for item in entries.metrics)


def _add(batch: Entries, kind: str, item: _Item) -> None:
    if isinstance(item, MetricValue):
        batch.metrics.append(item)
    else:
        (batch.params if kind == "param" else batch.tags)[item[0]] = item[1]
