"""What is said of types, aggregates and functions at definition, compared with what Spark says."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from tidemark.errors import ExpressionError
from tidemark.graph.aggregates.aggregate_types import aggregate_type
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.expressions.expression_types import type_of
from tidemark.graph.expressions.expressions import Site, parse_sql
from tidemark.graph.expressions.sql_functions import forbidden_function
from tidemark.graph.model.aggregates import Aggregate, Partial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = (
    "i INT, l BIGINT, s STRING, d DOUBLE, f FLOAT, b BOOLEAN, ts TIMESTAMP, dt DATE, dec DECIMAL(10,2), sm SMALLINT, ti TINYINT, "
    "arr ARRAY<INT>, m MAP<STRING, INT>, st STRUCT<x: INT, y: STRUCT<z: STRING>>, ntz TIMESTAMP_NTZ, sarr ARRAY<STRUCT<x: INT>>"
)
# One expression per line. Lines of the second text are those whose type the graph leaves open.
KNOWN = """
i
dec
arr
i + i
i + l
i * d
i / i
i / l
i - sm
sm + sm
ti + ti
l % i
i % d
-i
-dec
i + 1
d + 1
d * 1.5
1
2147483648
1e3
'x'
true
i > 1
i = 1 AND b
NOT b
i IN (1, 2)
s LIKE 'x'
i BETWEEN 1 AND 2
s IS NULL
i IS NOT NULL
i <=> l
coalesce(i, 1)
coalesce(i, l)
coalesce(s, 'x')
coalesce(NULL, i)
if(b, i, l)
if(b, NULL, i)
if(b, dec, dec)
CASE WHEN b THEN i ELSE 0 END
CASE WHEN b THEN 'a' END
CASE WHEN b THEN 1 ELSE d END
upper(s)
trim(s)
length(s)
concat(s, 'x')
s || 'x'
concat_ws(',', s, s)
replace(s, 'a', 'b')
regexp_replace(s, 'a', 'b')
regexp_extract(s, 'a', 1)
s RLIKE 'a'
startswith(s, 'a')
contains(s, 'a')
instr(s, 'a')
md5(s)
date_trunc('hour', ts)
date_trunc('day', dt)
hour(ts)
minute(ts)
year(ts)
month(dt)
day(ts)
dayofweek(ts)
quarter(ts)
weekofyear(ts)
to_date(s)
add_months(dt, 1)
last_day(dt)
dt + 1
unix_timestamp(ts)
unix_millis(ts)
from_unixtime(l)
date_format(ts, 'yyyy')
timestamp_millis(l)
timestamp_seconds(l)
make_date(2020, 1, 1)
current_timestamp()
current_date
ts + INTERVAL 1 HOUR
ts - INTERVAL 1 DAY
abs(i)
abs(d)
greatest(i, l)
least(d, d)
sqrt(i)
pow(d, 2)
exp(d)
ln(d)
rand()
isnan(d)
isnull(i)
CAST(i AS STRING)
CAST(s AS DECIMAL(10,2))
try_cast(s AS INT)
i::bigint
1L
1.5D
nullif(i, 1)
arr[0]
m['k']
element_at(arr, 1)
element_at(m, 'k')
st.x
st.y.z
ST.Y
sarr[0].x
size(arr)
array_contains(arr, 1)
exists(arr, x -> x > 1)
to_json(st)
get_json_object(s, '$.a')
hash(s)
xxhash64(s)
(i + 1) * l
(unix_timestamp(ts) - unix_timestamp(ts)) / 60
"""
OPEN = """
f * i
i + 1.5
1.5
dec + 1
dec * 2
dec / 2
s + 1
'5' + i
ts - ts
dt - dt
trunc(dt, 'MM')
timestampdiff(MINUTE, ts, ts)
round(i)
sarr.x
-s
abs(s)
concat(arr, arr)
date_trunc('hour', ntz)
"""


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


def test_types_are_sparks(spark: SparkSession) -> None:
    schema = parse_schema(COLUMNS)
    frame = spark.createDataFrame([], COLUMNS)
    said = {text: type_of(parse_sql(text, Site("test", "")), schema) for text in lines(KNOWN)}
    fields = frame.selectExpr(*(f"{text} AS c{number}" for number, text in enumerate(said))).schema.fields
    found = {text: field.dataType.simpleString() for text, field in zip(said, fields, strict=True)}
    assert {text: kind.lower().replace(", ", ",").replace(": ", ":") if kind else None for text, kind in said.items()} == found


@pytest.mark.parametrize("kind", ["STRUCT<comment: STRING>", "STRUCT<a: INT NOT NULL>", "ARRAY<STRUCT<comment: STRING, not: INT>>"])
def test_a_struct_may_have_a_field_called_comment(spark: SparkSession, kind: str) -> None:
    ddl = f"review {kind} NOT NULL COMMENT 'x', n INT"
    assert list(parse_schema(ddl).names) == spark.createDataFrame([], ddl).columns


@pytest.mark.parametrize("text", lines(OPEN))
def test_uncertain_types_are_left_open(text: str) -> None:
    assert type_of(parse_sql(text, Site("test", "")), parse_schema(COLUMNS)) is None


def test_types_of_aggregates_are_sparks(spark: SparkSession) -> None:
    schema = parse_schema(COLUMNS)
    frame = spark.createDataFrame([], COLUMNS)
    calls = [(kind, column) for kind in ("sum", "avg") for column in ("ti", "i", "l", "f", "d")] + [("sum", "dec")]
    calls += [(kind, column) for kind in ("min", "max", "first", "collect_list") for column in ("i", "s", "dec", "ts")]
    calls += [(kind, "d") for kind in ("count", "stddev", "variance_pop", "approx_count_distinct")]
    spelled = {"variance_pop": "var_pop"}
    for kind, column in calls:
        text = f"{spelled.get(kind, kind)}({column})"
        aggregate = Aggregate(kind, (column,), (Partial("x", text, "max({x})"),), "{x}")
        said = aggregate_type(aggregate, schema)
        found = frame.selectExpr(f"{text} AS x").schema.fields[0].dataType.simpleString()
        assert said is not None
        assert said.lower().replace(", ", ",") == found, text


def test_every_function_that_is_not_of_one_row_is_refused(spark: SparkSession) -> None:
    """Spark's own registry says which functions are aggregates, window functions and generators; all others must pass."""
    groups = functions_by_group(spark)
    assert len(groups["agg_funcs"]) > 80
    refused = groups["agg_funcs"] | groups["window_funcs"] | groups["generator_funcs"] | {"window", "session_window", "window_time"}
    names = {name for group in groups.values() for name in group if name.isidentifier()}
    wrong = {name for name in names if is_refused(name) not in {name in refused, None}}
    # Spark counts this generator with its subject.
    assert wrong <= {"json_tuple"}


def functions_by_group(spark: SparkSession) -> dict[str, set[str]]:
    jvm: Any = spark._jvm  # noqa: SLF001 - SQL's SHOW FUNCTIONS does not say which functions are aggregates
    entries = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.expressions().iterator()
    groups: dict[str, set[str]] = {}
    while entries.hasNext():
        entry = entries.next()
        info = entry.productElement(1).productElement(0)
        groups.setdefault(info.getGroup(), set()).add(entry.productElement(0))
    return groups


def is_refused(name: str) -> bool | None:
    for arguments in ("a", "a, b", "a, 0.5", "", "a, b, c"):
        with contextlib.suppress(ExpressionError):
            return forbidden_function(parse_sql(f"{name}({arguments})", Site("test", ""))) is not None
    return None
