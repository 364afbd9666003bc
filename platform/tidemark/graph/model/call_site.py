"""Where in the user's program something was declared, so that an error can point there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Final

from tidemark.errors import TidemarkError
from tidemark.semantics.user_lines import is_of_tidemark

_IMPORTS: Final = "<frozen importlib._bootstrap"
"""The file names of Python's own import machinery begin with it."""

_DECLARED: Final[ContextVar[str]] = ContextVar("_DECLARED", default="")


def call_site() -> str:
    """Return ``file:line`` of the innermost caller outside Tidemark, or the place that ``declared_at`` gives; empty if there is none."""
    if declared := _DECLARED.get():
        return declared
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - inspect.stack() reads every source file on the way
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


def importing_module() -> str:
    """Return the name of the module whose import, in this thread, calls this function; empty if no import does."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - as above
    module = ""
    while frame is not None:
        if frame.f_code.co_filename.startswith(_IMPORTS):
            return module
        if frame.f_code.co_name == "<module>":
            module = str(frame.f_globals.get("__name__", ""))
        frame = frame.f_back
    return ""


def _is_ours(frame: FrameType) -> bool:
    filename = frame.f_code.co_filename
    if filename == "<string>":
        # Methods that dataclasses generate have this file name, and so has the user's program under `python -c`.
        return str(frame.f_globals.get("__name__", "")).startswith("tidemark")
    return is_of_tidemark(filename)


@contextmanager
def with_call_site(place: str) -> Iterator[None]:
    """Set the place of errors that the block raises without one."""
    try:
        yield
    except TidemarkError as error:
        if error.place is None:
            error.place = place
        raise


@contextmanager
def declared_at(place: str) -> Iterator[None]:
    """Set the place of all that the block declares, for streams that are declared in a file other than a program, such as YAML."""
    token = _DECLARED.set(place)
    try:
        with with_call_site(place):
            yield
    finally:
        _DECLARED.reset(token)
