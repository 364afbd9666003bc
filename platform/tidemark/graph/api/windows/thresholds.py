"""Thresholds of delta triggers and evictors."""

from __future__ import annotations

from math import isfinite

from tidemark.errors import DefinitionError


def finite(function: str, threshold: object) -> float:
    """Return a threshold if it is a finite number.

    Raises:
        DefinitionError: it is not.

    >>> finite("delta_trigger", 2.5)
    2.5
    """
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not isfinite(threshold):
        raise DefinitionError(
            f"{function}: threshold={threshold!r} is not a finite number", fix="pass a number, such as threshold=10, before the function"
        )
    return threshold
