"""Approximate percentiles from relative-error buckets.

As DDSketch (Masson, Rim, Lee 2019): a value x lies in bucket ceil(ln|x| / ln gamma), gamma = (1 + error) / (1 - error), and a bucket's
middle is within the relative error of every value in it. State is a count per bucket, so merging adds counts: exact, in any order,
and the same result however the input was split. Spark has no aggregate that adds up maps; ``approx_top_k_accumulate`` counts items,
exactly as long as there are no more distinct ones than it was asked to track, which is all buckets there can be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from tidemark.errors import DefinitionError
from tidemark.graph.aggregates.aggregate_arguments import in_template, number_between, sql_argument
from tidemark.graph.model.aggregates import Aggregate, Partial
from tidemark.graph.model.call_site import call_site

MIN_RELATIVE_ERROR = 0.001
_MAX_RELATIVE_ERROR = 0.5
_MAX_ITEMS = 1_000_000  # what approx_top_k_accumulate can track
_LARGEST = 1.7976931348623157e308
_SMALLEST_NORMAL = 2.2250738585072014e-308


@dataclass(frozen=True)
class Buckets:
    """The buckets of a relative error, as integers in order of their values.

    Values from ``smallest`` to the largest double have 1 to ``top - 1``, infinity ``top``, NaN ``top + 1``; negative ones the same
    below zero; what is nearer to zero than ``smallest`` has 0.
    """

    relative_error: float

    @property
    def log_gamma(self) -> float:
        """Logarithm of the ratio of a bucket's bounds."""
        return math.log1p(self.relative_error) - math.log1p(-self.relative_error)

    @property
    def smallest(self) -> float:
        """The least magnitude that is not counted as zero, so that all buckets can be tracked."""
        span = (_MAX_ITEMS // 2 - 4) * self.log_gamma
        return max(_SMALLEST_NORMAL, math.exp(math.log(_LARGEST) - span))

    @property
    def shift(self) -> int:
        """The offset that makes ceil(ln|x| / ln gamma) positive."""
        return 1 - math.floor(math.log(self.smallest) / self.log_gamma)

    @property
    def top(self) -> int:
        """The bucket of infinity."""
        return math.ceil(math.log(_LARGEST) / self.log_gamma) + self.shift + 1

    @property
    def tracked(self) -> int:
        """How many buckets there are in all."""
        return 2 * self.top + 2

    def of(self, value: str) -> str:
        """Return the SQL of a value's bucket, INT; null for null."""
        number = f"CAST({value} AS DOUBLE)"
        index = f"least(ceil(least(ln(abs({number})) / {self.log_gamma!r}D, {self.top}D)) + {self.shift}, {self.top})"
        return (
            f"CAST(CASE WHEN isnan({number}) THEN {self.top + 1} WHEN abs({number}) < {self.smallest!r}D THEN 0"
            f" ELSE sign({number}) * {index} END AS INT)"
        )

    def middle(self, bucket: str) -> str:
        """Return the SQL of the value that stands for a bucket, DOUBLE; null for null."""
        # 2 * gamma ** i / (1 + gamma), in logarithms since the power may overflow.
        lower = math.log(2) - math.log1p(math.exp(self.log_gamma))
        magnitude = f"least(exp((abs({bucket}) - {self.shift}) * {self.log_gamma!r}D + {lower!r}D), {_LARGEST!r}D)"
        return (
            f"CASE WHEN {bucket} = {self.top + 1} THEN double('NaN') WHEN {bucket} = 0 THEN 0D"
            f" WHEN abs({bucket}) = {self.top} THEN sign({bucket}) * double('Infinity') ELSE sign({bucket}) * {magnitude} END"
        )


def approx_percentile(expression: str, p: float | Sequence[float], relative_error: float = 0.01) -> Aggregate:
    """Estimate percentiles of the values that are not null.

    The p-percentile is the least value with at least that share of all values at or below it; the estimate is within
    ``relative_error`` of it. NaN is greater than any number and infinite values are kept; magnitudes below 2.3e-308 (1e-126 at a
    relative error of 0.001) count as zero.

    Args:
        expression: of any numeric type; read as DOUBLE.
        p: a share from 0 to 1, or several of them.
        relative_error: 0.001 to 0.5. State per key and window is 12 bytes per bucket in use, at 0.01 about 115 buckets for each
            power of ten that the values span.

    Result: DOUBLE, or ARRAY<DOUBLE> in the order of several ``p``; null where there is no value. The same values give the same
    result, however they were split and merged.

    Raises:
        DefinitionError: p or relative_error is out of range, or no p is given.
    """
    argument = sql_argument("approx_percentile", expression)
    shares = [number_between("approx_percentile", "p", each, minimum=0, maximum=1) for each in (p if isinstance(p, Sequence) else (p,))]
    if not shares:
        raise DefinitionError(
            "approx_percentile: p is an empty list", fix="pass a share from 0 to 1 or several, such as p=[0.5, 0.99]", place=call_site()
        )
    error = number_between("approx_percentile", "relative_error", relative_error, minimum=MIN_RELATIVE_ERROR, maximum=_MAX_RELATIVE_ERROR)
    buckets, value = Buckets(error), in_template(argument)
    create = f"approx_top_k_accumulate({buckets.of(value)}, {buckets.tracked}) FILTER (WHERE {value} IS NOT NULL)"
    partial = Partial("buckets", create, f"approx_top_k_combine({{buckets}}, {buckets.tracked})")
    found = _percentiles(buckets, shares)
    # Null rather than an array of nulls, as Spark's own of this name.
    several = f"CASE WHEN size(approx_top_k_estimate({{buckets}}, 1)) > 0 THEN {found} END"
    result = several if isinstance(p, Sequence) else f"{found}[0]"
    returns = "ARRAY<DOUBLE>" if isinstance(p, Sequence) else "DOUBLE"
    return Aggregate("approx_percentile", (argument,), (partial,), result, returns=returns)


def _percentiles(buckets: Buckets, shares: Sequence[float]) -> str:
    """Return the SQL of an array of estimates, one per share."""
    counted = f"array_sort(approx_top_k_estimate({{buckets}}, {buckets.tracked}))"
    # As decimals: 0.07 * 100 is a little more than 7 in doubles, and would be the eighth.
    wanted = ", ".join(f"CAST({Decimal(repr(share)):f} AS DECIMAL(19, 18))" for share in shares)
    total = "aggregate(counted, 0L, (sum, each) -> sum + each.count)"
    start = f"named_struct('left', greatest(1L, CAST(ceil(share * {total}) AS BIGINT)), 'bucket', CAST(NULL AS INT))"
    step = "CASE WHEN run.left > 0 THEN named_struct('left', run.left - each.count, 'bucket', each.item) ELSE run END"
    value = buckets.middle("run.bucket")
    one = f"aggregate(counted, {start}, (run, each) -> {step}, run -> {value})"
    # A transform of one array names the sorted counts, which would otherwise be sorted again for every share.
    return f"transform(array({counted}), counted -> transform(array({wanted}), share -> {one}))[0]"
