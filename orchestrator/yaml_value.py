"""Values on the command line, read as YAML 1.2: `1e-3` is a number, `on` and `no` are texts."""

from __future__ import annotations

import re
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """PyYAML follows YAML 1.1, where `1e-3` is a text, `on` is true, `010` is 8 and `1:30` is 90."""


_Loader.yaml_implicit_resolvers = {}


def _int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = loader.construct_scalar(node)
    return int(text, 0) if text.startswith(("0x", "0o")) else int(text)


def _float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    return float(loader.construct_scalar(node).lower().replace(".inf", "inf").replace(".nan", "nan"))


# The core schema of YAML 1.2.2, section 10.3.2.
_FORMS = {
    "null": (r"~|null|Null|NULL|", "~nN"),
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
}
for _name, (_form, _first) in _FORMS.items():
    _tag = f"tag:yaml.org,2002:{_name}"
    _Loader.add_implicit_resolver(
        _tag, re.compile(f"^(?:{_form})$"), [*_first, *([""] if _name == "null" else [])]
    )
_Loader.add_constructor("tag:yaml.org,2002:int", _int)
_Loader.add_constructor("tag:yaml.org,2002:float", _float)


def read_value(text: str) -> Any:
    """The value of `text`.

    Raises:
        ValueError: it is no YAML; the message says what is wrong.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # a SafeLoader: makes plain values only
    except yaml.YAMLError as error:
        raise ValueError(getattr(error, "problem", None) or str(error)) from None


def read_values(text: str) -> list[Any]:
    """The values of a list with commas: `0.1,0.2`, or `[64, 64],[128]`.

    Raises:
        ValueError: it is no list of YAML values; the message says what is wrong.
    """
    values = read_value(f"[{text}]")
    assert isinstance(values, list)
    return values
