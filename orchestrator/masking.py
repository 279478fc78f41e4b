"""Hides credentials in addresses, texts and settings. Masking twice changes nothing more."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MASK = "***"

_SECRET_NAME = (
    r"[\w.-]*(?:passw(?:or)?d|pwd|passphrase|token|secret|credentials?|signature"
    r"|api[_-]?key|access[_-]?key(?:[_-]?id)?|secret[_-]?key|account[_-]?key|private[_-]?key)"
)


def _userinfo(stop: str) -> re.Pattern[str]:
    """What stands between "://" and the "@" before the host; `stop` are characters that end an address.

    The second form is for passwords that hold an unescaped slash; a port is not taken for one.
    """
    return re.compile(rf"(?<=://)(?:[^/{stop}]+|[^/:@{stop}]*:(?!\d{{1,5}}(?:[/?#]|$))[^@{stop}]*)@")


_IN_TEXT = _userinfo(r"""\s"'<>`""")
_ALONE = _userinfo("")
_NAMED = re.compile(rf"(?i)((?:^|[^\w.-]){_SECRET_NAME}=)(?:\"[^\"]*\"|'[^']*'|[^\s&;,\"'<>)}}\]]+)")
_SHORT_QUERY = re.compile(r"(?i)([?&](?:sig|key|auth|code)=)[^\s&;\"'<>]+")
_QUOTED = re.compile(rf"(?i)([\"']{_SECRET_NAME}[\"']\s*:\s*)(?:\"[^\"]*\"|'[^']*')")
_HEADER = re.compile(r"(?i)\b(Bearer|Basic)\s+[\w.~+/=-]{8,}")
_KNOWN_FORM = re.compile(
    r"\b(?:AKIA[0-9A-Z]{16}|gh[opsu]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{20,}|hf_[A-Za-z0-9]{20,}"
    r"|dapi[0-9a-f]{32}|xox[abpr]-[\w-]{10,}|sk-[A-Za-z0-9_-]{20,})\b"
)

_SECRET_KEY = re.compile(rf"(?i){_SECRET_NAME}")
_TEXT_TOKEN = re.compile(r"(?i)(?:^|.*[_.-])(?:pad|eos|bos|unk|sep|cls|mask|start|end|special)[_.-]?token")
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def mask(text: str) -> str:
    """`text` with every credential replaced by "***": in addresses (the whole of user and password),
    in `password=...` and the like, in authorization headers, and keys of well-known forms."""
    if "://" in text:
        text = _IN_TEXT.sub(f"{MASK}@", text)
    if "=" in text:
        text = _SHORT_QUERY.sub(rf"\g<1>{MASK}", _NAMED.sub(rf"\g<1>{MASK}", text))
    if ":" in text:
        text = _QUOTED.sub(rf'\g<1>"{MASK}"', text)
    return _KNOWN_FORM.sub(MASK, _HEADER.sub(rf"\g<1> {MASK}", text))


def mask_uri(uri: str) -> str:
    """One address, which may hold any character, without its credentials."""
    return mask(_ALONE.sub(f"{MASK}@", uri))


def mask_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with "***" for every value whose key names a secret, and texts masked.

    Numbers under a key that ends in "token" are left: `max_token = 512` is no secret.
    """
    return {key: MASK if _is_secret(str(key), value) else _masked(value) for key, value in settings.items()}


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping):
        return mask_settings(value)
    if type(value) in (list, tuple):
        return type(value)(_masked(item) for item in value)
    return value


def _is_secret(key: str, value: Any) -> bool:
    name = _WORDS.sub("_", key)
    if value is None or isinstance(value, bool) or value == "" or not _SECRET_KEY.fullmatch(name):
        return False
    is_token = name.lower().endswith("token")
    return not (is_token and (isinstance(value, int | float) or _TEXT_TOKEN.fullmatch(name)))
