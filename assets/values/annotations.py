"""Resolves annotations that ``from __future__ import annotations`` left as text."""

from __future__ import annotations

import typing
from collections.abc import Callable


def with_types(function: Callable[..., object]) -> Callable[..., object]:
    """Resolve a function's annotations in place, and return it.

    Dagster compares the annotation of ``context`` with its own types and does not resolve text. Annotations that cannot be resolved
    here, of names that exist only for type checkers, are not changed.
    """
    try:
        function.__annotations__ = typing.get_type_hints(function)
    except (NameError, TypeError, AttributeError):
        return function
    return function
