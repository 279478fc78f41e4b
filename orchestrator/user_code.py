"""Where in the user's own files an exception came from, in the few lines that the user reads."""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from pathlib import Path

_LONGEST_MESSAGE = 2000  # characters; a failed loader subprocess sends its whole traceback as a message
_LIBRARIES = tuple(
    Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_OURS = Path(__file__).resolve().parent


def describe_error(error: BaseException, folder: Path) -> str:
    """The line of code under `folder` that raised, then type and message of the exception.

    Frames of libraries and of the orchestrator are left out: of the user's own ones the last is shown, as
    `FILE:LINE: code`. `FILE` is relative to `folder`. Without such a frame it is the exception alone.
    """
    if isinstance(error, SyntaxError):
        return _describe_syntax(error, folder)
    message = "".join(traceback.format_exception_only(error)).strip()
    if len(message) > _LONGEST_MESSAGE:
        half = _LONGEST_MESSAGE // 2
        message = f"{message[:half]}\n  ...\n{message[-half:]}"
    where = last_own_line(error, folder)
    return f"{where}\n{message}" if where else message


def last_own_line(error: BaseException, folder: Path) -> str | None:
    """`FILE:LINE: code` of the last frame in the user's files; None if the exception passed none of them."""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        name = frame.f_code.co_filename
        if is_own(Path(name), folder):
            return f"{_relative(name, folder)}:{line}: {linecache.getline(name, line).strip()}".rstrip(": ")
    return None


def is_own(file: Path, folder: Path) -> bool:
    """Is it a file of the user's: under `folder`, and neither a library's nor the orchestrator's?"""
    file = file.resolve()
    return (
        file.is_relative_to(folder.resolve())
        and not any(file.is_relative_to(place) for place in (*_LIBRARIES, _OURS))
        and "site-packages" not in file.parts
    )


def _describe_syntax(error: SyntaxError, folder: Path) -> str:
    where = f"{_relative(error.filename or '?', folder)}:{error.lineno}: {error.msg}"
    if not error.text:
        return where
    code = error.text.rstrip("\n")
    indent = len(code) - len(code.lstrip())
    column = max((error.offset or 1) - 1 - indent, 0)
    return f"{where}\n    {code.strip()}\n    {' ' * column}^"


def _relative(name: str, folder: Path) -> str:
    file = Path(name).resolve()
    return str(file.relative_to(folder.resolve())) if file.is_relative_to(folder.resolve()) else name
