"""Finds the line of the user's code where an exception was raised, or a function was defined."""

from __future__ import annotations

import linecache
from pathlib import Path
from types import CodeType

_PACKAGE = str(next(folder for folder in Path(__file__).resolve().parents if folder.name == "tidemark")) + "/"


def raised_at(error: BaseException) -> str | None:
    """Return ``file:line`` of the innermost frame outside Tidemark through which an exception came, None if there is none."""
    found, trace = None, error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(_PACKAGE):
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
    if not isinstance(code, CodeType) or code.co_filename.startswith(_PACKAGE):
        return None
    return f"{code.co_filename}:{code.co_firstlineno}"
