"""Decimals of the greatest precision, added and divided without a loss of digits.

Spark gives ``a + b`` one digit more before the point than ``a`` and ``b`` have; where these have 38 digits in all, it takes that digit from
those after the point. Values that need less than 38 digits are added as such; greater ones by their whole and fractional parts.

Of a scale of 37 or 38 no digit is left for a sum, and rows of one epoch may add up to more than the type holds although the content does
not. There the sum is two numbers from the beginning: the whole multiples of a unit, and what is left of each value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_MOST: Final = 38
_LEAST_SCALE: Final = 6
"""Spark keeps so many digits after the point, whatever the precision."""

_LARGEST_SCALE: Final = 36
"""Of a greater scale, fractional parts cannot be added exactly; no digit is left for the sum."""

_HALF: Final = 19
HIGH: Final = "DECIMAL(30, 0)"
LOW: Final = f"DECIMAL(30, {_HALF})"
"""The types of whole multiples of a unit, and of what is left: for ten thousand million rows."""


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
    return f"CAST({_as_text(whole, rest, scale)} AS {kind})"


def _as_text(whole: str, rest: str, scale: int) -> str:
    """Return SQL of the text of a whole number and a fraction of at least 0, added up."""
    borrows = f"({whole} < 0 AND {rest} > 0)"
    digits = f"abs(if({borrows}, {whole} + 1, {whole}))"
    # With 1 before the point, no text is written with an exponent.
    positive = f"CAST(if({borrows}, 1BD - {rest}, {rest}) AS DECIMAL({scale + 1}, {scale}))"
    after = f"substr(CAST(1BD + {positive} AS STRING), 2)"
    return f"concat(if({whole} < 0, '-', ''), CAST({digits} AS STRING), {after})"


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


@dataclass(frozen=True)
class FineSums:
    """Sums of decimals of a scale that leaves no digit for a sum: values in a unit, of which they have 19 digits before the point.

    Args:
        total: the type of the sum.
        mean: the type of the mean.
    """

    total: str
    mean: str

    @property
    def _unit(self) -> int:
        """The number of digits after the point that the unit has."""
        shape = decimal_of(self.total)
        return (0 if shape is None else shape[1]) - _HALF

    def of(self, value: str, weight: str) -> dict[str, str]:
        """Return SQL of the aggregates that make the two numbers, by name; ``value`` and ``weight`` are columns."""
        units = f"(CAST({value} AS {self.total}) / 0.{'0' * (self._unit - 1)}1BD)"
        return {
            "high": f"CAST(coalesce(sum(floor({units}) * {weight}), 0) AS {HIGH})",
            "low": f"CAST(coalesce(sum(if({weight} > 0, 1BD, -1BD) * pmod({units}, 1BD)), 0) AS {LOW})",
        }

    @staticmethod
    def merged(before: str, delta: str) -> dict[str, str]:
        """Return SQL of the numbers of two structs."""
        return {name: f"CAST({before}.{name} + {delta}.{name} AS {kind})" for name, kind in (("high", HIGH), ("low", LOW))}

    def sum(self, sums: str) -> str:
        """Return SQL of the sum, null where it does not fit its type."""
        return f"try_cast(concat({self._text(sums)}, 'E-{self._unit}') AS {self.total})"

    def average(self, sums: str) -> str:
        """Return SQL of the mean, rounded half up to the digits after the point that values have; null where it or the sum does not fit."""
        units = f"try_cast({self._text(sums)} AS DECIMAL({_MOST}, {_HALF})) / {sums}.n"
        return f"try_cast(concat(CAST(CAST({units} AS DECIMAL({_MOST}, {_HALF})) AS STRING), 'E-{self._unit}') AS {self.mean})"

    def _text(self, sums: str) -> str:
        return _as_text(self._whole(sums), self._rest(sums), _HALF)

    @staticmethod
    def _whole(sums: str) -> str:
        return f"({sums}.high + floor({sums}.low))"

    @staticmethod
    def _rest(sums: str) -> str:
        return f"pmod({sums}.low, 1BD)"


def is_fine(kind: str) -> bool:
    """Return whether sums of a type are two numbers.

    >>> is_fine("decimal(38,37)"), is_fine("decimal(38,36)"), is_fine("interval day to second")
    (True, False, False)
    """
    shape = decimal_of(kind)
    return shape is not None and shape[1] > _LARGEST_SCALE
