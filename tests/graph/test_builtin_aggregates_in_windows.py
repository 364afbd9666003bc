"""Every built-in aggregate passes the checks of a window, and its misuse does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tidemark as tm
from tidemark.errors import ColumnError
from tidemark.graph.api.columns import lineage, schema_of
from tidemark.graph.model.aggregates import Aggregate

ONE_COLUMN = (
    "count sum avg min max first last stddev stddev_pop variance variance_pop collect_list collect_set count_distinct approx_count_distinct"
)
CALLS: list[tuple[str, Callable[[str], Aggregate]]] = [
    *((name, lambda column, name=name: getattr(tm, name)(column)) for name in ONE_COLUMN.split()),
    ("min_by", lambda column: tm.min_by("zone", column)),
    ("max_by", lambda column: tm.max_by("zone", column)),
    ("approx_percentile", lambda column: tm.approx_percentile(column, 0.5)),
    ("approx_percentiles", lambda column: tm.approx_percentile(column, [0.5, 0.99])),
    ("top_k", lambda column: tm.top_k(column, 3)),
    ("sql_aggregate", lambda column: tm.sql_aggregate(partials={"s": (f"sum({column})", "sum({s})")}, result="{s}")),
]
each_call = pytest.mark.parametrize("call", [call for _, call in CALLS], ids=[name for name, _ in CALLS])


def windowed(aggregate: Aggregate) -> tm.Stream:
    spec = tm.from_elements([], schema="zone INT, fare DOUBLE, at TIMESTAMP")
    stream = tm.source("trips", spec, watermarks=tm.ascending(timestamp="at"))
    return stream.key_by("zone").window(tm.tumbling("1 hour")).aggregate(x=aggregate).uid("w")


@each_call
def test_accepted_with_its_columns_known(call: Callable[[str], Aggregate]) -> None:
    stream = windowed(call("fare"))
    schema = schema_of(stream.node)
    assert schema is not None
    assert schema.names == ("zone", "window_start", "window_end", "x", "pane_timing", "pane_index")
    assert ("trips", "fare") in lineage(stream.node, "x")
    assert ("trips", "at") not in lineage(stream.node, "x")


@each_call
def test_unknown_column_is_found(call: Callable[[str], Aggregate]) -> None:
    aggregate = call("fair")
    with pytest.raises(ColumnError, match="'fair'"):
        windowed(aggregate)
