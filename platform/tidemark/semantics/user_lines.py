"""Finds the line of the user's code where an exception was raised, or a function was defined."""

from __future__ import annotations

import linecache
from pathlib import Path
from types import CodeType
from typing import Final

_FILE = Path(__file__)
_PACKAGES: Final = tuple(
    str(next(folder for folder in file.parents if folder.name == "tidemark")) + "/" for file in (_FILE.absolute(), _FILE.resolve())
)
"""The package's folder, as modules were imported by it, which may be a symbolic link, and as it is."""


def is_of_tidemark(file: str) -> bool:
    """Return whether code with this file name is Tidemark's own."""
    return file.startswith(_PACKAGES)


def raised_at(error: BaseException) -> str | None:
    """Return ``file:line`` of the innermost frame outside Tidemark through which an exception came, None if there is none."""
    found, trace = None, error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not is_of_tidemark(file):
            found = f"{file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def source_of(place: str | None) -> str:
    """Return the line of source at ``file:line``, empty where it cannot be read."""
    file, _, line = (place or "").rpartition(":")
    return linecache.getline(file, int(line)).strip() if file and line.isdigit() else ""


def defined_at(function: object) -> str | None:
    """Return ``file:line`` of a function that is written in Python outside Tidemark, None of others."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or is_of_tidemark(code.co_filename):
        return None
    return f"{code.co_filename}:{code.co_firstlineno}"
