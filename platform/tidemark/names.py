"""Which names are allowed. Names become folders, table columns of the job's history, metric names and asset keys."""

from __future__ import annotations

import os
import re

from tidemark.errors import InvalidNameError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_SOURCE_NAME = re.compile(r"[A-Za-z0-9_]{1,100}")


def is_blank(value: object) -> bool:
    """Return whether a value is not text, or is empty or blank text."""
    return not isinstance(value, str) or not value.strip()


def location_fix(value: object, otherwise: str) -> str:
    """Return the fix for a location that is not text: ``str(path)`` for a ``PathLike``, else ``otherwise``.

    >>> location_fix(5, "give a folder")
    'give a folder'
    """
    return "write it as text: str(path)" if isinstance(value, os.PathLike) else otherwise


def is_name(value: object) -> bool:
    """Return whether ``validate_name`` accepts a value.

    >>> is_name("hourly-tips"), is_name("../tips")
    (True, False)
    """
    return isinstance(value, str) and bool(_NAME.fullmatch(value)) and ".." not in value


def validate_name(kind: str, name: object, *, place: str | None = None) -> str:
    """Return the name if it is valid.

    Args:
        kind: what is named, for the error: ``"job"``, ``"uid"``, ``"output"``, ``"output tag"``.
        name: 1 to 100 letters, digits, ``_``, ``-`` or ``.``, beginning with a letter or digit, without ``..``.
        place: file and line of the definition, for the error.

    Raises:
        InvalidNameError: not text, or not of that form.

    >>> validate_name("uid", "hourly-tips")
    'hourly-tips'
    """
    if isinstance(name, str) and is_name(name):
        return name
    if not isinstance(name, str):
        raise InvalidNameError(f"{kind} name is a {type(name).__name__}, not text", fix=f"write it as text: {_example(kind)}", place=place)
    raise InvalidNameError(
        f"{kind} name {name!r} is not allowed",
        fix="use 1 to 100 letters, digits, '_', '-' or '.', beginning with a letter or digit, without '..'",
        place=place,
    )


def _example(kind: str) -> str:
    return {
        "job": "tm.Job('taxi', outputs={...}), the name first",
        "uid": ".uid('hourly')",
        "output": "outputs={'fares': tm.delta(...)}",
        "output tag": "tm.OutputTag('late')",
    }.get(kind, "'name'")


def validate_source_name(name: object, *, place: str | None = None) -> str:
    """Return a source's name if it is valid: 1 to 100 letters, digits or ``_``, since Spark keys its offsets by it.

    Raises:
        InvalidNameError: not of that form.

    >>> validate_source_name("trips")
    'trips'
    """
    if isinstance(name, str) and _SOURCE_NAME.fullmatch(name):
        return name
    if not isinstance(name, str):
        fix = "the name comes first: tm.source('trips', tm.files(...), watermarks=...)"
        raise InvalidNameError(f"source name is a {type(name).__name__}, not text", fix=fix, place=place)
    raise InvalidNameError(f"source name {name!r} is not allowed", fix="use 1 to 100 letters, digits or '_'", place=place)
