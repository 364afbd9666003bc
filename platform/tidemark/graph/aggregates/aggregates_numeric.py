"""Aggregates of numbers, and least and greatest values.

All of these are made by Spark's fast hash aggregation as long as their values have a fixed width: numbers, dates, timestamps,
booleans. ``min`` and ``max`` of strings, binaries or structs make Spark sort. Variances are merged through a short list per key.
"""

from __future__ import annotations

from tidemark.graph.aggregates.aggregate_arguments import in_template, sql_argument
from tidemark.graph.model.aggregates import Aggregate, Partial


def count(expression: str | None = None) -> Aggregate:
    """Count elements, or those where the expression is not null.

    Result: BIGINT, exact, never null.
    """
    argument = None if expression is None else sql_argument("count", expression)
    if argument is None or argument == "*":
        return Aggregate("count", (), (_added("count", "count(1)"),), "{count}")
    return Aggregate("count", (argument,), (_added("count", f"count({in_template(argument)})"),), "{count}")


def sum(expression: str) -> Aggregate:
    """Add up the values that are not null.

    Result: BIGINT for integers, DECIMAL(p + 10, s) for DECIMAL(p, s), else DOUBLE; null where there is no value.
    Integers and decimals are exact, and an overflow fails the epoch; doubles agree within 1e-9 of the sum of the absolute values.
    """
    argument = sql_argument("sum", expression)
    return Aggregate("sum", (argument,), (_added("sum", f"sum({in_template(argument)})"),), "{sum}")


def avg(expression: str) -> Aggregate:
    """Return the mean of the values that are not null.

    Result: DECIMAL(p + 4, s + 4) for DECIMAL(p, s), else DOUBLE; null where there is no value. Decimals are added up exactly and the
    mean is rounded half up to s + 4 digits; with p above 24 to fewer, never fewer than s; a sum of more than 32 digits before the
    point fails the epoch. As in Spark SQL, integers are added up as doubles, so that nothing overflows.
    """
    argument = sql_argument("avg", expression)
    value = in_template(argument)
    return Aggregate(
        "avg",
        (argument,),
        (
            # Division turns integers into doubles and leaves decimals what they are, whose type is not known here.
            _added("sum", f"sum({value} / 1)"),
            _added("count", f"count({value})"),
            # Of a type that no expression over sum and count has; merging casts to it.
            Partial(
                "mean",
                f"avg({value})",
                "sum({sum}) / nullif(sum({count}), 0)",
                "sum({sum}){over} / nullif(sum({count}){over}, 0)",
                f"{_plus('sum')} / nullif({_plus('count')}, 0)",
            ),
        ),
        "{mean}",
    )


def min(expression: str) -> Aggregate:
    """Return the least value that is not null; NaN is greater than any number.

    Result: the expression's type, exact; null where there is no value.
    """
    argument = sql_argument("min", expression)
    partial = Partial("min", f"min({in_template(argument)})", "min({min})", "min({min}){over}", "least({left_min}, {right_min})")
    return Aggregate("min", (argument,), (partial,), "{min}")


def max(expression: str) -> Aggregate:
    """Return the greatest value that is not null; NaN is greater than any number.

    Result: the expression's type, exact; null where there is no value.
    """
    argument = sql_argument("max", expression)
    partial = Partial("max", f"max({in_template(argument)})", "max({max})", "max({max}){over}", "greatest({left_max}, {right_max})")
    return Aggregate("max", (argument,), (partial,), "{max}")


# Chan, Golub, LeVeque 1979: means and squared deviations of two parts give those of the whole, without a difference of large squares.
# Sorted, so that the same parts give the same bits in whatever order they are read.
_MERGED_MOMENTS = """
aggregate(
  array_sort(collect_list({moments}) FILTER (WHERE {moments}.n > 0)),
  named_struct('n', 0L, 'mean', 0D, 'm2', 0D),
  (a, b) -> CASE WHEN a.n = 0 THEN b ELSE named_struct(
    'n', a.n + b.n,
    'mean', a.mean + (b.mean - a.mean) * (b.n / (a.n + b.n)),
    'm2', a.m2 + b.m2 + (b.mean - a.mean) * (b.mean - a.mean) * (a.n * (b.n / (a.n + b.n)))
  ) END
)
""".strip()


def variance(expression: str) -> Aggregate:
    """Return the sample variance of the values that are not null: squared deviations over n - 1.

    Result: DOUBLE; null for fewer than two values, NaN if one is NaN or infinite. Within 1e-9 relative as long as the mean is less than
    a million times the deviation: no large squares are subtracted.
    """
    return _moments("variance", expression, "CASE WHEN {moments}.n > 1 THEN {moments}.m2 / ({moments}.n - 1) END")


def variance_pop(expression: str) -> Aggregate:
    """Return the population variance of the values that are not null: squared deviations over n.

    Result: DOUBLE; null where there is no value; else as ``variance``.
    """
    return _moments("variance_pop", expression, "CASE WHEN {moments}.n > 0 THEN {moments}.m2 / {moments}.n END")


def stddev(expression: str) -> Aggregate:
    """Return the sample standard deviation, the root of ``variance``; nulls, type and exactness as there."""
    return _moments("stddev", expression, "CASE WHEN {moments}.n > 1 THEN sqrt({moments}.m2 / ({moments}.n - 1)) END")


def stddev_pop(expression: str) -> Aggregate:
    """Return the population standard deviation, the root of ``variance_pop``; nulls, type and exactness as there."""
    return _moments("stddev_pop", expression, "CASE WHEN {moments}.n > 0 THEN sqrt({moments}.m2 / {moments}.n) END")


def _moments(kind: str, expression: str, result: str) -> Aggregate:
    argument = sql_argument(kind, expression)
    value = f"CAST({in_template(argument)} AS DOUBLE)"
    create = f"named_struct('n', count({value}), 'mean', avg({value}), 'm2', var_pop({value}) * count({value}))"
    # A window function takes no FILTER; what is null is not collected.
    listed = "collect_list({moments}) FILTER (WHERE {moments}.n > 0)"
    running = _MERGED_MOMENTS.replace(listed, "collect_list(CASE WHEN {moments}.n > 0 THEN {moments} END){over}")
    return Aggregate(kind, (argument,), (Partial("moments", create, _MERGED_MOMENTS, running),), result)


def _added(name: str, create: str) -> Partial:
    """Return a partial that is merged by adding up."""
    return Partial(name, create, f"sum({{{name}}})", f"sum({{{name}}}){{over}}", _plus(name))


def _plus(name: str) -> str:
    return f"coalesce({{left_{name}}} + {{right_{name}}}, {{left_{name}}}, {{right_{name}}})"
