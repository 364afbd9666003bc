"""Reference implementations of the built-in aggregates in plain Python: a Fold over (value, timestamp, position) of the same name.

They keep all elements and compute from scratch, so that nothing incremental can be wrong. Values are the results of a row's expression:
None for null, a tuple where the aggregate takes several expressions (``min_by``, ``max_by``, ``top_k`` with ``by``).
Numbers are summed as fractions and rounded once. For approximate aggregates the fold is exact: compare within their error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from typing import TypeVar

from tidemark.semantics.reference.reference_operator import Fold, Position

Number = int | float | Decimal
Value = TypeVar("Value")


@dataclass(frozen=True)
class Taken:
    """An element that a fold has seen."""

    timestamp: int
    position: Position
    value: object


Elements = tuple[Taken, ...]


def over_ordered(function: Callable[[list[object]], object]) -> Fold[Elements]:
    """Return a fold that applies a function to all values, in order of (event time, source position).

    >>> fold = over_ordered(lambda values: values)
    >>> fold.result(fold.add(fold.add(fold.create(), "b", 2, ()), "a", 1, ()))
    ['a', 'b']
    """

    def result(elements: Elements) -> object:
        return function([taken.value for taken in sorted(elements, key=lambda taken: (taken.timestamp, taken.position))])

    return Fold(create=tuple, add=lambda elements, value, time, position: (*elements, Taken(time, position, value)), result=result)


def count() -> Fold[Elements]:
    """Number of elements whose value is not null; for ``count()`` without argument, pass any value."""
    return over_ordered(lambda values: len(_present(values)))


def sum() -> Fold[Elements]:
    """Exact sum of integers and decimals; the sum of floats is rounded once."""
    return over_ordered(lambda values: _total(_numbers(values)))


def avg() -> Fold[Elements]:
    """Mean: for decimals a Decimal with 38 digits, else a float."""
    return over_ordered(lambda values: _mean(_numbers(values)))


def min() -> Fold[Elements]:
    """Least value, NaN greatest."""
    return over_ordered(lambda values: next(iter(_ascending(_present(values))), None))


def max() -> Fold[Elements]:
    """Greatest value, NaN greatest."""
    return over_ordered(lambda values: next(reversed(_ascending(_present(values))), None))


def variance() -> Fold[Elements]:
    """Squared deviations over n - 1."""
    return over_ordered(lambda values: _variance(_numbers(values), 1))


def variance_pop() -> Fold[Elements]:
    """Squared deviations over n."""
    return over_ordered(lambda values: _variance(_numbers(values), 0))


def stddev() -> Fold[Elements]:
    """Root of the sample variance."""
    return over_ordered(lambda values: _root(_variance(_numbers(values), 1)))


def stddev_pop() -> Fold[Elements]:
    """Root of the population variance."""
    return over_ordered(lambda values: _root(_variance(_numbers(values), 0)))


def first(*, ignore_nulls: bool = False) -> Fold[Elements]:
    """Value of the earliest element."""
    return over_ordered(lambda values: next(iter(_present(values) if ignore_nulls else values), None))


def last(*, ignore_nulls: bool = False) -> Fold[Elements]:
    """Value of the latest element."""
    return over_ordered(lambda values: next(reversed(_present(values) if ignore_nulls else values), None))


def min_by() -> Fold[Elements]:
    """Over (value, by): the value with the least ``by``, the earliest of equal ones."""
    return over_ordered(lambda pairs: next((value for value, _ in _by(pairs)), None))


def max_by() -> Fold[Elements]:
    """Over (value, by): the value with the greatest ``by``, the latest of equal ones."""
    return over_ordered(lambda pairs: next((value for value, _ in reversed(_by(pairs))), None))


def collect_list() -> Fold[Elements]:
    """Values that are not null, in order."""
    return over_ordered(_present)


def collect_set() -> Fold[Elements]:
    """Distinct values that are not null, ascending."""
    return over_ordered(lambda values: _distinct(_present(values)))


def count_distinct() -> Fold[Elements]:
    """Number of distinct values; of tuples, those without a null."""
    return over_ordered(lambda values: len(_distinct([value for value in _present(values) if not _holds_null(value)])))


def percentile(p: float) -> Fold[Elements]:
    """Least value with at least the share p of all at or below it, as a float; what ``approx_percentile`` estimates."""

    def found(values: list[object]) -> float | None:
        ordered = _ascending([float(number) for number in _numbers(values)])
        rank = math.ceil(Fraction(repr(p)) * len(ordered))
        return ordered[rank - 1 if rank else 0] if ordered else None

    return over_ordered(found)


def top_k(k: int, *, by: bool = False) -> Fold[Elements]:
    """The k greatest values, descending; with ``by`` over (value, by), of equal ``by`` the latest first."""
    if by:
        return over_ordered(lambda pairs: [value for value, _ in _by(pairs)[::-1][:k]])
    return over_ordered(lambda values: _ascending(_present(values))[::-1][:k])


def _present(values: Iterable[object]) -> list[object]:
    return [value for value in values if value is not None]


def _numbers(values: Iterable[object]) -> list[Number]:
    return [value for value in values if isinstance(value, int | float | Decimal)]


def _rank(value: object) -> tuple[object, ...]:
    """Return a key that orders values as Spark does: NaN above every number."""
    if isinstance(value, tuple):
        return tuple(_rank(item) for item in value)
    return (1, 0) if isinstance(value, float) and math.isnan(value) else (0, value)


def _ascending(values: Sequence[Value]) -> list[Value]:
    return sorted(values, key=_rank)


def _distinct(values: Sequence[object]) -> list[object]:
    return _ascending(list({_rank(value): value for value in values}.values()))


def _holds_null(value: object) -> bool:
    return isinstance(value, tuple) and any(item is None for item in value)


def _by(pairs: Sequence[object]) -> list[tuple[object, object]]:
    """Return the pairs whose second is not null, ascending by it; sorting keeps the order of equal ones."""
    kept = [pair for pair in pairs if isinstance(pair, tuple) and pair[1] is not None]
    return sorted(kept, key=lambda pair: _rank(pair[1]))


def _total(numbers: Sequence[Number]) -> Number | None:
    if not numbers:
        return None
    if not all(math.isfinite(number) for number in numbers):
        return math.fsum(number for number in map(float, numbers) if not math.isfinite(number)) if _one_sign(numbers) else math.nan
    return _of_type(_fraction(numbers), numbers)


def _mean(numbers: Sequence[Number]) -> Number | None:
    total = _total(numbers)
    if total is None or not math.isfinite(total):
        return total
    mean = _fraction(numbers) / len(numbers)
    return _of_type(mean, numbers) if isinstance(total, Decimal) else float(mean)


def _variance(numbers: Sequence[Number], less: int) -> float | None:
    if len(numbers) <= less:
        return None
    if not all(math.isfinite(number) for number in numbers):
        return math.nan
    mean = _fraction(numbers) / len(numbers)
    squares = [(Fraction(number) - mean) ** 2 for number in numbers]
    return float(_fraction_sum(squares) / (len(numbers) - less))


def _root(variance: float | None) -> float | None:
    return None if variance is None else math.sqrt(variance)


def _one_sign(numbers: Sequence[Number]) -> bool:
    infinite = {number > 0 for number in numbers if math.isinf(number)}
    return len(infinite) == 1 and not any(math.isnan(number) for number in numbers)


def _fraction(numbers: Sequence[Number]) -> Fraction:
    return _fraction_sum([Fraction(number) for number in numbers])


def _fraction_sum(fractions: Sequence[Fraction]) -> Fraction:
    total = Fraction(0)
    for fraction in fractions:
        total += fraction
    return total


def _of_type(total: Fraction, numbers: Sequence[Number]) -> Number:
    """Return an exact number in the type of the inputs: a decimal with 38 digits, an integer, or a float, infinite where too large."""
    if isinstance(numbers[0], Decimal):
        with localcontext(prec=38, rounding=ROUND_HALF_UP):
            return Decimal(total.numerator) / Decimal(total.denominator)
    if isinstance(numbers[0], int):
        return int(total)
    try:
        return float(total)
    except OverflowError:
        return math.copysign(math.inf, total)
