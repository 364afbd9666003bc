"""Decimals of the greatest precision, added and divided without a loss of digits.

Spark gives ``a + b`` one digit more before the point than ``a`` and ``b`` have; where these have 38 digits in all, it takes that digit from
those after the point. Values that need less than 38 digits are added as such; greater ones by their whole and fractional parts.
"""

from __future__ import annotations

import re
from typing import Final

_MOST: Final = 38
_LEAST_SCALE: Final = 6
"""Spark keeps so many digits after the point, whatever the precision."""

_LARGEST_SCALE: Final = 36
"""Of a greater scale, fractional parts cannot be added exactly; no digit is left for the sum."""


def decimal_of(kind: str) -> tuple[int, int] | None:
    """Return the precision and the scale of a type, None if it is no decimal.

    >>> decimal_of("decimal(38,18)"), decimal_of("interval day to second")
    ((38, 18), None)
    """
    found = re.fullmatch(r"decimal\((\d+),(\d+)\)", kind)
    return None if found is None else (int(found[1]), int(found[2]))


def added(one: str, other: str, kind: str) -> str:
    """Return SQL of the sum of two values of a type, with that type: exact for decimals of a scale of up to 36."""
    plain = f"CAST({one} + {other} AS {kind})"
    shape = decimal_of(kind)
    if shape is None or shape[0] < _MOST or not _LEAST_SCALE < shape[1] <= _LARGEST_SCALE:
        return plain
    scale = shape[1]
    limit, smaller = f"1{'0' * (_MOST - 1 - scale)}BD", f"DECIMAL({_MOST - 1}, {scale})"
    few = f"CAST(CAST({one} AS {smaller}) + CAST({other} AS {smaller}) AS {kind})"
    return f"CASE WHEN abs({one}) < {limit} AND abs({other}) < {limit} THEN {few} ELSE {_by_parts(one, other, kind, scale)} END"


def _by_parts(one: str, other: str, kind: str, scale: int) -> str:
    """Return SQL of the sum by whole parts and fractions of at least 0, which are put together as text."""
    fraction = f"(pmod({one}, 1BD) + pmod({other}, 1BD))"
    whole, rest = f"(floor({one}) + floor({other}) + floor({fraction}))", f"pmod({fraction}, 1BD)"
    borrows = f"({whole} < 0 AND {rest} > 0)"
    digits = f"abs(if({borrows}, {whole} + 1, {whole}))"
    # With 1 before the point, no text is written with an exponent.
    positive = f"CAST(if({borrows}, 1BD - {rest}, {rest}) AS DECIMAL({scale + 1}, {scale}))"
    after = f"substr(CAST(1BD + {positive} AS STRING), 2)"
    return f"CAST(concat(if({whole} < 0, '-', ''), CAST({digits} AS STRING), {after}) AS {kind})"


def divided(total: str, number: str, kind: str, mean: str) -> str:
    """Return SQL of a total of a type, divided by a number of rows, as a mean of another type."""
    plain = f"CAST({total} / {number} AS {mean})"
    shape, wanted = decimal_of(kind), decimal_of(mean)
    if shape is None or wanted is None or max(_MOST - (shape[0] - shape[1]), _LEAST_SCALE) >= wanted[1]:
        return plain
    # The fewer digits before the point, the more Spark keeps after it.
    before = _MOST - wanted[1]
    few = f"CAST(CAST({total} AS DECIMAL({before + shape[1]}, {shape[1]})) / {number} AS {mean})"
    return f"CASE WHEN abs({total}) < 1{'0' * before}BD THEN {few} ELSE {plain} END"
