"""Which functions there are, and which types each aggregate takes, compared with the running Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import tidemark as tm
from tidemark.errors import ExpressionError
from tidemark.graph.aggregates.aggregate_types import aggregate_type
from tidemark.graph.api.columns import schema_of
from tidemark.graph.checks.function_names import called_functions
from tidemark.graph.expressions.spark_functions import SPARK_FUNCTIONS, SYNTAX
from tidemark.graph.model.aggregates import Aggregate
from tidemark.spark.env.session import engine_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

VALUES = {
    "BOOLEAN": "true",
    "TINYINT": "1Y",
    "SMALLINT": "1S",
    "INT": "1",
    "BIGINT": "1L",
    "FLOAT": "1F",
    "DOUBLE": "1D",
    "DECIMAL(10, 2)": "CAST(1.25 AS DECIMAL(10, 2))",
    "STRING": "'abc'",
    "BINARY": "X'01'",
    "DATE": "DATE'2025-01-01'",
    "TIMESTAMP": "TIMESTAMP'2025-01-01 00:00:00'",
    "TIMESTAMP_NTZ": "TIMESTAMP_NTZ'2025-01-01 00:00:00'",
    "INTERVAL DAY TO SECOND": "INTERVAL '1 10' DAY TO HOUR",
    "ARRAY<INT>": "array(1)",
    "MAP<STRING, INT>": "map('a', 1)",
    "STRUCT<a: INT>": "named_struct('a', 1)",
    "STRUCT<a: MAP<INT, INT>>": "named_struct('a', map(1, 1))",
    "ARRAY<VARIANT>": "array(parse_json('1'))",
    "VARIANT": "parse_json('1')",
}
KINDS = {
    **{
        name: getattr(tm, name)("v")
        for name in ["count", "sum", "avg", "min", "max", "stddev", "stddev_pop", "variance", "variance_pop", "first", "last"]
    },
    **{name: getattr(tm, name)("v") for name in ["count_distinct", "approx_count_distinct", "collect_set", "collect_list"]},
    "several distinct": tm.count_distinct("v", "o"),
    "approx_percentile": tm.approx_percentile("v", 0.5),
    "percentiles": tm.approx_percentile("v", [0.5, 0.9]),
    "top_k": tm.top_k("v", 3),
    "top_k by": tm.top_k("o", 3, "v"),
    "top_k of": tm.top_k("v", 3, "o"),
    "min_by": tm.min_by("v", "o"),
    "min_by by": tm.min_by("o", "v"),
    "max_by": tm.max_by("v", "o"),
    "max_by by": tm.max_by("o", "v"),
}
_COMPUTED = ("stddev", "stddev_pop", "variance", "variance_pop", "approx_percentile", "percentiles")
_NUMERIC = ("sum", "avg", *_COMPUTED)
CASTS = {
    *((kind, "STRING") for kind in _NUMERIC),
    *((kind, "TIMESTAMP") for kind in ("sum", *_COMPUTED)),
    *((kind, type_) for kind in _COMPUTED for type_ in ("BOOLEAN", "VARIANT")),
}
"""What Spark takes all the same, by a cast to DOUBLE that nobody wrote: of text it fails at the first that is no number."""


RUN = ("DATE", "INTERVAL DAY TO SECOND", "STRUCT<a: INT>")
"""Types for which the results are computed, too; tests/aggregates does so for the others."""


def source(kind: str) -> tm.Stream:
    spec = tm.files("landing", format="json", schema=f"v {kind}, o INT, t TIMESTAMP")
    return tm.source("rows", spec, watermarks=tm.ascending(timestamp="t"))


def defined(aggregate: Aggregate, kind: str) -> bool:
    try:
        source(kind).window_all(tm.tumbling("1 hour")).aggregate(x=aggregate)
    except ExpressionError:
        return False
    return True


def rows(spark: SparkSession, kind: str) -> DataFrame:
    order = "named_struct('t', CAST(o AS BIGINT), 'row', 1L) AS place"
    return spark.sql(f"SELECT {VALUES[kind]} AS v, o, {order} FROM VALUES (1), (2) AS numbers(o)")


def computed(rows: DataFrame, aggregates: Mapping[str, Aggregate]) -> DataFrame | None:
    """Return the results as Spark analyses them, a column each; None where it refuses one."""
    parts = {(name, part.name): part for name, aggregate in aggregates.items() for part in aggregate.partials}
    names = {place: f"p{number}" for number, place in enumerate(parts)}
    own = {name: {part.name: names[name, part.name] for part in aggregate.partials} for name, aggregate in aggregates.items()}
    try:
        made = rows.groupBy().agg(*(F.expr(part.create.format(order="place")).alias(names[place]) for place, part in parts.items()))
        merges = (
            (names[place], F.expr(part.merge.format(**own[place[0]])), made.schema[names[place]].dataType) for place, part in parts.items()
        )
        # As the engine does, so that a sum of sums is no wider than a sum.
        merged = made.groupBy().agg(*((c if isinstance(t, StructType) else c.cast(t)).alias(name) for name, c, t in merges))
        return merged.selectExpr(*(f"{aggregate.result.format(**own[name])} AS `{name}`" for name, aggregate in aggregates.items()))
    except AnalysisException:
        return None


@pytest.mark.parametrize("kind", VALUES)
def test_definition_accepts_what_spark_computes(spark: SparkSession, kind: str) -> None:
    schema = schema_of(source(kind).node)
    input_rows = rows(spark, kind)
    accepted = {name: aggregate for name, aggregate in KINDS.items() if defined(aggregate, kind)}
    with engine_settings(spark):
        # An analysis of each takes long; of what is accepted there is one.
        found = computed(input_rows, accepted)
        apart = KINDS if found is None else {name: aggregate for name, aggregate in KINDS.items() if name not in accepted}
        takes = {name for name, aggregate in apart.items() if computed(input_rows, {name: aggregate}) is not None}
        takes |= accepted.keys() if found is not None else set()
        assert accepted.keys() == {name for name in takes if (name, kind) not in CASTS}
        assert found is not None
        for name, aggregate in accepted.items():
            known = aggregate_type(aggregate, schema)
            if known is not None and not kind.startswith(("INTERVAL", "STRUCT")):
                assert (name, found.schema[name].dataType.simpleString().upper()) == (name, known.replace(", ", ","))
        if kind not in RUN:
            return
        # They run, too; Spark's Python cannot hold each of these values.
        (row,) = found.select(*(F.col(f"`{name}`").isNotNull().alias(name) for name in accepted)).collect()
        assert len(row) == len(accepted)


def test_the_functions_are_those_of_the_running_spark(spark: SparkSession) -> None:
    there = {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect() if row[0].isidentifier()}
    assert there == SPARK_FUNCTIONS


def described(spark: SparkSession) -> Iterator[str]:
    """Return what Spark says of each of its functions, with examples; nearly all at once, where a description of each takes long."""
    infos: Any = spark._jvm.org.apache.spark.sql.api.python.PythonSQLUtils.listBuiltinFunctionInfos()  # type: ignore[union-attr]  # noqa: SLF001
    texts = {info.getName(): info.getExamples() for info in infos}
    for name in sorted(SPARK_FUNCTIONS):
        if name in texts:
            yield texts[name]
        else:
            yield "\n".join(row[0] for row in spark.sql(f"DESCRIBE FUNCTION EXTENDED `{name}`").collect())


def test_no_example_of_spark_s_own_calls_something_else(spark: SparkSession) -> None:
    known = SPARK_FUNCTIONS | SYNTAX
    unknown: dict[str, str] = {}
    examples = 0
    for text in described(spark):
        for example in re.findall(r"^\s*> (SELECT .*?;)\s*$", text, re.MULTILINE | re.DOTALL):
            examples += 1
            # A table in the FROM of an example has its columns in brackets.
            called = called_functions(re.sub(r"(\bAS)?\s(tab|people)\s*\(", " (", example))
            unknown |= {each: example for each in called if each.lower() not in known}
    assert unknown == {}
    assert examples > 1000


FORMS = ("{}(a)", "{}(a AS INT)", "{}(HOUR, a, b)", "{}(HOUR FROM a)", "{}(a, b)", "{}()")


_PARSED = """
public class Parsed implements java.util.function.BiFunction {
  public Object apply(Object parser, Object texts) {
    StringBuilder kinds = new StringBuilder();
    String[] given = ((String) texts).split("\\n");
    for (int i = 0; i < given.length; i++) {
      String kind = "";
      try {
        kind = ((org.apache.spark.sql.catalyst.parser.ParserInterface) parser).parseExpression(given[i]).getClass().getSimpleName();
      } catch (Exception e) {
      }
      kinds.append(kind).append("\\n");
    }
    return kinds.toString();
  }
}
"""


def parsed(spark: SparkSession, texts: Sequence[str]) -> list[str]:
    """Return the class of what the parser of Spark makes of each text, empty where it refuses it: an error in Python takes long."""
    jvm: Any = spark._jvm  # noqa: SLF001  # only Java has the parser
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(_PARSED)
    no_types = spark.sparkContext._gateway.new_array(jvm.java.lang.Class, 0)  # type: ignore[union-attr]  # noqa: SLF001
    nothing = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, 0)  # type: ignore[union-attr]  # noqa: SLF001
    parser = compiler.getClassLoader().loadClass("Parsed").getDeclaredConstructor(no_types).newInstance(nothing)
    found: str = parser.apply(spark._jsparkSession.sessionState().sqlParser(), "\n".join(texts))  # noqa: SLF001
    return found.split("\n")[:-1]


def test_what_the_parser_of_spark_reads_by_itself_is_no_unknown_function(spark: SparkSession) -> None:
    """Keywords that are written like functions, such as ``try_cast``, are in no list of functions."""
    keywords = [row[0] for row in spark.sql("SELECT lower(keyword) FROM sql_keywords()").collect()]
    texts = [(keyword, form.format(keyword)) for keyword in keywords for form in FORMS]
    kinds = parsed(spark, [text for _, text in texts])
    # Others it leaves to the functions that the session has.
    found = [each for each, kind in zip(texts, kinds, strict=True) if kind not in ("", "UnresolvedFunction")]
    known = SPARK_FUNCTIONS | SYNTAX
    assert {name.lower() for _, text in found for name in called_functions(text)} - known == set()
    assert {"try_cast", "timestampadd", "timestampdiff", "timediff"} <= {keyword for keyword, _ in found}
