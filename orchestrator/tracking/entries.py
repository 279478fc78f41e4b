"""What a run in MLflow is to be told, in a form that MLflow takes: keys, lengths, numbers. Pure values."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.masking import mask, mask_settings
from orchestrator.results import jsonable
from orchestrator.trial import flatten

# Limits of MLflow 3 in characters (mlflow/utils/validation.py); longer values are refused or cut without a mark.
LONGEST_KEY = 250
LONGEST_PARAM = 6000
LONGEST_TAG = 8000
LONGEST_ERROR = 1000  # of the tag: our own limit, so that a table of runs stays readable
CUT_MARK = "…"


class MetricValue(NamedTuple):
    """`time_ms` is in milliseconds since the epoch (Unix)."""

    key: str
    value: float
    time_ms: int
    step: int


class RunEnd(NamedTuple):
    """`status` is MLflow's word: FINISHED, FAILED or KILLED."""

    status: str
    time_ms: int


class Upload(NamedTuple):
    """A file for the run's artifacts, or `text` to be stored under the name in `path`. `tries` have failed."""

    path: Path
    folder: str = ""
    text: str | None = None
    tries: int = 0


@dataclass(kw_only=True)
class Entries:
    """What is still to be written about one run."""

    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    metrics: list[MetricValue] = field(default_factory=list)
    uploads: list[Upload] = field(default_factory=list)
    end: RunEnd | None = None

    def __bool__(self) -> bool:
        return bool(self.tags or self.params or self.metrics or self.uploads or self.end)

    def then(self, later: Entries) -> Entries:
        """These entries followed by later ones, whose tags win."""
        return Entries(
            tags={**self.tags, **later.tags},
            params={**later.params, **self.params},
            metrics=[*self.metrics, *later.metrics],
            uploads=[*self.uploads, *later.uploads],
            end=later.end or self.end,
        )

    def add_tags(self, facts: Mapping[str, str]) -> None:
        for key, value in facts.items():
            self.tags[safe_key(key)] = tag_value(value)

    def add_settings(self, config: Mapping[str, Any]) -> None:
        """The settings as params and in full as the artifact `config.json`; secrets are masked."""
        shown = mask_settings(config)
        self.params.update({safe_key(key): param_value(value) for key, value in flatten(shown).items()})
        text = json.dumps(jsonable(shown), indent=2, allow_nan=False) + "\n"
        self.uploads.append(Upload(Path("config.json"), text=text))

    def add_error(self, error: str) -> None:
        """The error as a tag, and in full as the artifact `error.txt` where it is long."""
        shown = mask(error)
        self.tags["error"] = cut(shown, LONGEST_ERROR)
        if len(shown) > LONGEST_ERROR:
            self.uploads.append(Upload(Path("error.txt"), text=shown))

    def add_metric(self, name: str, value: float, time_s: float, step: int) -> None:
        """MLflow stores NaN as such, but infinity as 1.8e308, which looks like a number: NaN is written."""
        number = float(value)
        if math.isinf(number):
            number = math.nan
        self.metrics.append(MetricValue(safe_key(name), number, int(time_s * 1000), step))


@lru_cache(maxsize=4096)
def safe_key(key: str) -> str:
    """`key` with only what MLflow allows in one. A key that had to be changed ends in a part of its hash, so
    that two odd keys never become the same one."""
    safe = re.sub(r"[^/\w.\- :]", "_", key)
    safe = "/".join(part for part in safe.split("/") if part.strip(".")) or "_"
    if safe == key and len(key) <= LONGEST_KEY:
        return key
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{safe[: LONGEST_KEY - 9]}-{digest}"


@lru_cache(maxsize=1024)
def tag_value(value: str) -> str:
    return cut(mask(str(value)), LONGEST_TAG)


def param_value(value: Any) -> str:
    """Texts as they are, numbers as Python writes them, anything else as JSON."""
    if isinstance(value, str):
        return cut(value, LONGEST_PARAM)
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    return cut(json.dumps(jsonable(value), ensure_ascii=False), LONGEST_PARAM)


def cut(text: str, longest: int) -> str:
    """`text`, or its beginning and a mark. What cannot be encoded is replaced."""
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= longest else text[: longest - 1] + CUT_MARK
