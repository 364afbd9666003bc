"""How aggregates take rows back: which state each kind keeps for it, and the SQL of counted values.

``signed``: sums to which a row is added, and from which it is taken. ``counted``: each value with the number of its rows. ``kept``: the
partial results of each single row, which are merged again where one of a group changed; any aggregate in SQL can be kept so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from tidemark.graph.aggregates.aggregate_arguments import in_template
from tidemark.graph.model.aggregates import Aggregate
from tidemark.graph.operators.state_names import partial_column

Way = Literal["signed", "counted", "kept"]

_SIGNED: Final = frozenset({"count", "sum", "avg", "variance", "variance_pop", "stddev", "stddev_pop"})
_COUNTED: Final = frozenset({"min", "max", "count_distinct", "approx_count_distinct", "collect_set", "approx_percentile"})
_BUCKETS: Final = re.compile(r"approx_top_k_accumulate\((?P<bucket>.+), \d+\) FILTER \(WHERE .+\)", re.DOTALL)
_ESTIMATE: Final = re.compile(r"approx_top_k_estimate\(\{buckets\}, \d+\)")

SUMS: Final = "sums"
VALUE: Final = "value"
"""The names of the parts of state of a signed and of a counted aggregate."""


@dataclass(frozen=True)
class Counted:
    """A counted aggregate: the value of a row, null where the row does not count; and the result.

    ``over_values`` is an aggregate over the distinct values ``{value}`` and their numbers ``{number}``, and ``result`` a scalar expression
    over what it gives, ``{found}``; null where there is no value.
    """

    value: str
    over_values: str
    result: str = "{found}"


def way_of(aggregate: Aggregate) -> Way:
    """Return how an aggregate takes rows back."""
    if aggregate.kind in _SIGNED:
        return "signed"
    return "counted" if aggregate.kind in _COUNTED else "kept"


def counted(aggregate: Aggregate) -> Counted:
    """Return the SQL of a counted aggregate."""
    arguments = [in_template(argument).format() for argument in aggregate.arguments]
    value = arguments[0]
    if len(arguments) > 1:
        present = " AND ".join(f"{each} IS NOT NULL" for each in arguments)
        value = f"CASE WHEN {present} THEN struct({', '.join(arguments)}) END"
    match aggregate.kind:
        case "min" | "max":
            return Counted(value, f"{aggregate.kind}({{value}})")
        case "collect_set":
            return Counted(value, "array_sort(collect_set({value}))", "coalesce({found}, array())")
        case "approx_percentile":
            found = _BUCKETS.fullmatch(aggregate.partials[0].create)
            if found is None:
                raise ValueError(aggregate.partials[0].create)
            buckets = "collect_list(CASE WHEN {value} IS NOT NULL THEN named_struct('item', {value}, 'count', {number}) END)"
            result = _ESTIMATE.sub("coalesce({found}, array())", aggregate.result)
            return Counted(found["bucket"].format(), buckets, result)
    return Counted(value, "count({value})", "coalesce({found}, 0L)")


def state_columns_of(name: str, aggregate: Aggregate, *, takes_back: bool) -> list[str]:
    """Return the columns of state that belong to an aggregate."""
    way = way_of(aggregate) if takes_back else "kept"
    if way == "signed":
        return [partial_column(name, SUMS)]
    return [partial_column(name, VALUE)] if way == "counted" else [partial_column(name, part.name) for part in aggregate.partials]
