"""Sums of doubles from which values can be taken back, as SQL: the sum of the same values is the same, however they came and went.

A value is split into whole multiples of 2^60, 2^30, 1 and so on, each at most 2^30 in size, and each of these limbs is added up as a
BIGINT, which is exact. What is left of a value below the last unit, and values that are too large for the first, are added up as doubles,
with the error of each addition beside (Knuth's two-sum), and begin again at 0 where no such value is left. NaN and infinities are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

_LIMB: Final = 30
_HALF: Final = 32
_LOW: Final = 2**_HALF - 1
_SCALE: Final = 128
_SQUARED: Final = 60
"""Values below this power of two have squares that limbs hold."""


def power(exponent: int) -> str:
    """Return SQL of a power of two."""
    return f"{2.0**exponent!r}D"


def error_of_sum(left: str, right: str) -> str:
    """Return SQL of what the double ``left + right`` lacks to the sum."""
    total = f"({left} + {right})"
    return f"(({left} - ({total} - ({total} - {left}))) + ({right} - ({total} - {left})))"


def let(name: str, value: str, expression: str) -> str:
    """Return SQL of an expression in which a name stands for a value that is computed once."""
    return f"element_at(transform(array({value}), {name} -> {expression}), 1)"


def compensated(terms: Sequence[str]) -> str:
    """Return SQL of the sum of terms as a struct: ``s``, and ``e``, by which the sum differs from it."""
    step = f"named_struct('s', a.s + x, 'e', a.e + {error_of_sum('a.s', 'x')})"
    end = "named_struct('s', a.s + a.e, 'e', a.e - ((a.s + a.e) - a.s))"
    return f"aggregate(array({', '.join(terms)}), named_struct('s', 0D, 'e', 0D), (a, x) -> {step}, a -> {end})"


@dataclass(frozen=True)
class Limbs:
    """The limbs of values.

    Args:
        prefix: of the fields' names.
        first: the exponent of the greatest unit.
        number: of limbs.
    """

    prefix: str
    first: int
    number: int

    @property
    def bound(self) -> str:
        """SQL of the least magnitude that is too large."""
        return power(self.first + _LIMB)

    @property
    def names(self) -> list[str]:
        """The names of the fields."""
        return [f"{self.prefix}{number}" for number in range(self.number)]

    @property
    def exponents(self) -> list[int]:
        """The exponents of the units, from the greatest."""
        return [self.first - _LIMB * number for number in range(self.number)]

    def of(self, value: str) -> list[str]:
        """Return SQL of the limbs of a value that is not too large."""
        rounded = [f"rint({value} * {power(-exponent)})" for exponent in self.exponents]
        parts = [rounded[0], *(f"{this} - {above} * {power(_LIMB)}" for above, this in pairwise(rounded))]
        return [f"CAST({part} AS BIGINT)" for part in parts]

    def left(self, value: str) -> str:
        """Return SQL of what is left of a value below the last unit."""
        last = self.exponents[-1]
        return f"({value} - rint({value} * {power(-last)}) * {power(last)})"

    def terms(self, struct: str) -> list[str]:
        """Return SQL of doubles that add up to the limbs of a struct exactly, the least units first."""
        found = []
        for name, exponent in zip(reversed(self.names), reversed(self.exponents), strict=True):
            found.append(f"CAST({struct}.{name} & {_LOW}L AS DOUBLE) * {power(exponent)}")
            found.append(f"CAST(shiftright({struct}.{name}, {_HALF}) AS DOUBLE) * {power(exponent + _HALF)}")
        return found


VALUES: Final = Limbs("l", 60, 6)
SQUARES: Final = Limbs("q", 90, 8)

_COUNTS: Final = ("n", "nan", "up", "down", "bigs", "smalls")
"""How many values there are; of these, NaN and infinities; those too large for limbs, and those with something left."""

_PAIRS: Final = {"big": "bigs", "small": "smalls"}
"""Sums of doubles, which have their errors beside them, by what counts their values."""


def _is_big(value: str, bound: str) -> str:
    return f"(abs({value}) < double('Infinity') AND abs({value}) >= {bound})"


def _inside(value: str, limbs_bound: str) -> str:
    return f"if(abs({value}) < {limbs_bound}, {value}, 0D)"


def sums_of_doubles(value: str, weight: str) -> str:
    """Return SQL of an aggregate: a struct with the sums of a column of doubles.

    Args:
        value: the column's name.
        weight: a column with 1 for a row that comes, -1 for one that goes.
    """
    return _struct(_fields(value, weight, _inside(value, VALUES.bound), VALUES.bound))


def _fields(value: str, weight: str, inside: str, bound: str) -> dict[str, str]:
    """Return SQL of the fields of a struct of sums; ``inside`` is the value, or zero where it is not below the bound."""
    big, left = _is_big(value, bound), VALUES.left(inside)
    counted = {
        "n": f"{value} IS NOT NULL",
        "nan": f"isnan({value})",
        "up": f"{value} = double('Infinity')",
        "down": f"{value} = double('-Infinity')",
        "bigs": big,
        "smalls": f"{left} <> 0D",
    }
    fields = {name: f"coalesce(sum(if({test}, {weight}, 0L)), 0L)" for name, test in counted.items()}
    fields |= {name: f"coalesce(sum({part} * {weight}), 0L)" for name, part in zip(VALUES.names, VALUES.of(inside), strict=True)}
    for name, part in (("big", f"if({big}, {value} * {power(-_SCALE)}, 0D)"), ("small", left)):
        fields |= {name: f"coalesce(sum({part} * {weight}), 0D)", f"{name}_error": "0D"}
    return fields


def _struct(fields: dict[str, str]) -> str:
    listed = ", ".join(f"'{name}', {text}" for name, text in fields.items())
    return f"named_struct({listed})"


def merged_sums(left: str, right: str, *, squares: bool = False) -> str:
    """Return SQL of the sums of two structs, neither of which is null, in the order of their fields."""
    fields = {name: f"{left}.{name} + {right}.{name}" for name in (*_COUNTS, *VALUES.names)}
    for name, count in _PAIRS.items():
        some = f"{left}.{count} + {right}.{count} <> 0"
        error = f"{left}.{name}_error + {right}.{name}_error + {error_of_sum(f'{left}.{name}', f'{right}.{name}')}"
        fields[name] = f"if({some}, {left}.{name} + {right}.{name}, 0D)"
        fields[f"{name}_error"] = f"if({some}, {error}, 0D)"
    if squares:
        some = f"{left}.bigs + {right}.bigs <> 0 OR {left}.smalls + {right}.smalls <> 0"
        fields |= {name: f"{left}.{name} + {right}.{name}" for name in SQUARES.names}
        fields["rest"] = f"if({some}, {left}.rest + {right}.rest, 0D)"
    return _struct(fields)


def sum_of(struct: str) -> str:
    """Return SQL of the sum of the values of a struct that has some."""
    finite = f"{compensated([f'{struct}.small_error', f'{struct}.small', *VALUES.terms(struct)])}.s"
    big = f"if({struct}.bigs = 0, 0D, ({struct}.big + {struct}.big_error) * {power(_SCALE)})"
    return (
        f"CASE WHEN {struct}.nan > 0 OR ({struct}.up > 0 AND {struct}.down > 0) THEN double('NaN')"
        f" WHEN {struct}.up > 0 THEN double('Infinity') WHEN {struct}.down > 0 THEN double('-Infinity')"
        f" ELSE {finite} + {big} END"
    )


def moment_columns(value: str) -> list[dict[str, str]]:
    """Return SQL of the columns that ``moments_of_doubles`` reads beside the column of doubles, in steps.

    A square is two doubles, its value and the error of that (Dekker's product), so that its limbs have all digits. Values whose squares
    are too large for limbs are left out.
    """
    inside = f"{value}_inside"
    return [
        {inside: _inside(value, power(_SQUARED))},
        {f"{value}_square": f"{inside} * {inside}", f"{value}_error": error_of_product(inside, inside)},
    ]


def moments_of_doubles(value: str, weight: str) -> str:
    """Return SQL of an aggregate: a struct with the sums of a column of doubles, and of their squares."""
    inside, square, error = (f"{value}_{name}" for name in ("inside", "square", "error"))
    fields = _fields(value, weight, inside, power(_SQUARED))
    for name, high, low in zip(SQUARES.names, SQUARES.of(square), SQUARES.of(error), strict=True):
        fields[name] = f"coalesce(sum(({high} + {low}) * {weight}), 0L)"
    lefts = (VALUES.left(inside), SQUARES.left(square), SQUARES.left(error))
    rest = f"(if({_is_big(value, power(_SQUARED))}, {value} * {value}, 0D) + {lefts[1]} + {lefts[2]})"
    fields["rest"] = f"coalesce(sum({rest} * {weight}), 0D)"
    some = " OR ".join(f"{each} <> 0D" for each in lefts)
    fields["smalls"] = f"coalesce(sum(if({some}, {weight}, 0L)), 0L)"
    return _struct(fields)


def error_of_product(left: str, right: str) -> str:
    """Return SQL of what the double ``left * right`` lacks to the product."""
    factor = "134217729D"
    parts = []
    for value in (left, right):
        high = f"({factor} * {value} - ({factor} * {value} - {value}))"
        parts.append((high, f"({value} - {high})"))
    (high, low), (other_high, other_low) = parts
    return f"((({high} * {other_high} - {left} * {right}) + {high} * {other_low} + {low} * {other_high}) + {low} * {other_low})"


def deviations_of(struct: str) -> str:
    """Return SQL of the sum of squared deviations from the mean, of the values of a struct that has some; NaN if one is not finite."""
    big = f"if({struct}.bigs = 0, 0D, ({struct}.big + {struct}.big_error) * {power(_SCALE)})"
    total = compensated([f"{struct}.small_error", f"{struct}.small", *VALUES.terms(struct), big])
    squares = compensated([f"{struct}.rest", *SQUARES.terms(struct)])
    count = f"CAST({struct}.n AS DOUBLE)"
    # The square of the sum, divided by the number, in two doubles each.
    found = "greatest(0D, if(d <= q.s * " + power(-95) + ", 0D, d))"
    found = let("d", f"((q.s - v.a) + {error_of_sum('q.s', '(- v.a)')}) + (q.e - v.b)", found)
    rest = f"(((p.a - w * n) - {error_of_product('w', 'n')}) + p.b) / n"
    found = let("v", f"named_struct('a', w, 'b', {rest})", found)
    found = let("w", "p.a / n", found)
    found = let("p", f"named_struct('a', t.s * t.s, 'b', {error_of_product('t.s', 't.s')} + 2D * t.s * t.e)", found)
    found = let("n", count, let("q", squares, let("t", total, found)))
    return f"if({struct}.nan + {struct}.up + {struct}.down > 0, double('NaN'), {found})"
