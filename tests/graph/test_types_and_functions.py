"""Wrong types, functions that there are not, and arguments out of range: found at definition, with the user's line, and no JVM."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tidemark as tm
from tests.graph.test_definition_errors import Case, job, trips, wrong
from tidemark.errors import DefinitionError, DurationError, ExpressionError, TidemarkError
from tidemark.graph.checks.function_names import called_functions

ROWS = "zone INT, at TIMESTAMP, day DATE, fare DOUBLE, user STRING, paid BOOLEAN, tags MAP<STRING, INT>, stops ARRAY<MAP<INT, INT>>"
LATE = tm.OutputTag("late")


def rows() -> tm.Stream:
    watermarks = tm.bounded_out_of_orderness("5 minutes", timestamp="at")
    return tm.source("rows", tm.files("landing", format="json", schema=ROWS), watermarks=watermarks)


def hourly(stream: tm.Stream | None = None, **aggregates: Any) -> tm.Stream:
    keyed = (rows() if stream is None else stream).key_by("zone").window(tm.tumbling("1 hour"))
    return keyed.aggregate(**(aggregates or {"n": tm.count()})).uid("hourly")


CASES = {
    # types of arguments
    "sum of text": Case(
        lambda: hourly(total=tm.sum("user")),
        ExpressionError,
        ("'total' = sum(user)", "'user' of type STRING, not a number"),
        ".with_columns(user='try_cast(user AS DOUBLE)')",
    ),
    "sum of an expression": Case(lambda: hourly(t=tm.sum("upper(user)")), ExpressionError, ("STRING",), "try_cast(upper(user) AS DOUBLE)"),
    "mean of truths": Case(lambda: hourly(share=tm.avg("paid")), ExpressionError, ("'paid' of type BOOLEAN",), "CAST(paid AS INT)"),
    "sum of times": Case(lambda: hourly(t=tm.sum("at")), ExpressionError, ("of type TIMESTAMP",), "unix_millis(at)"),
    "deviation of days": Case(lambda: hourly(d=tm.stddev("day")), ExpressionError, ("'d' = stddev(day)", "DATE"), "unix_date(day)"),
    "percentile of text": Case(lambda: hourly(p=tm.approx_percentile("user", 0.5)), ExpressionError, ("STRING",), "try_cast"),
    "greatest map": Case(lambda: hourly(m=tm.max("tags")), ExpressionError, ("MAP<STRING, INT>", "have an order"), "to_json(tags)"),
    "by a map": Case(lambda: hourly(m=tm.max_by("user", "tags")), ExpressionError, ("'tags' of type MAP",), "a field or an item"),
    "list of maps in arrays": Case(lambda: hourly(m=tm.collect_list("stops")), ExpressionError, ("ARRAY<MAP<",), "a field or an item"),
    "different maps": Case(lambda: hourly(m=tm.count_distinct("user", "tags")), ExpressionError, ("'tags' of type MAP",), ""),
    # functions
    "unknown function": Case(
        lambda: job(rows().filter("frobnicate(fare) > 1")),
        ExpressionError,
        ("filter condition 'frobnicate(fare) > 1'", "calls 'frobnicate'", "job 'taxi'"),
        "functions=['frobnicate']",
    ),
    "mistyped function": Case(
        lambda: job(rows().with_columns(name="uper(user)")), ExpressionError, ("'uper'", "did you mean 'upper'?"), "write 'upper'"
    ),
    "function of a key": Case(
        lambda: job(rows().key_by(k="dayofweeks(at)").window(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("w")),
        ExpressionError,
        ("key 'k' = 'dayofweeks(at)'", "'w'"),
        "'dayofweek'",
    ),
    "function of an aggregate": Case(
        lambda: job(hourly(total=tm.sum("absolute(fare)"))),
        ExpressionError,
        ("aggregate 'total' 'absolute(fare)'" and "'absolute'",),
        "functions=",
    ),
    "function of one's own aggregate": Case(
        lambda: job(hourly(total=tm.sql_aggregate({"x": ("suum(fare)", "sum({x})")}, "{x}"))), ExpressionError, ("'suum'",), "'sum'"
    ),
    "function of a reduction": Case(
        lambda: job(rows().key_by("zone").window(tm.tumbling("1 hour")).reduce(fare="greatset(a.fare, b.fare)").uid("w")),
        ExpressionError,
        ("reduce column 'fare'",),
        "'greatest'",
    ),
    "function of a timestamp": Case(
        lambda: job(trips(watermarks=tm.ascending(timestamp="to_timestmp(note)"))),
        ExpressionError,
        ("timestamp of source 'trips'",),
        "to_timestamp",
    ),
    "function of a gap": Case(
        lambda: job(rows().window_all(tm.session(gap_by="gaps(zone)")).aggregate(n=tm.count()).uid("w")),
        ExpressionError,
        ("gap_by",),
        "gaps",
    ),
    "function of a split": Case(
        lambda: job(rows().split({LATE: "isbig(fare)"}).side_output(LATE)), ExpressionError, ("split condition of 'late'",), "isbig"
    ),
    "functions as text": Case(lambda: job(trips(), functions="my_fn"), DefinitionError, ("functions='my_fn'",), "functions=['my_fn']"),
    "functions with a database": Case(
        lambda: job(trips(), functions=["db.my_fn"]), DefinitionError, ("'db.my_fn'",), "need not be declared"
    ),
    # aggregates
    "percentile of 95": Case(lambda: tm.approx_percentile("fare", 95), DefinitionError, ("p=95",), "0.95 for 95 per cent"),
    "percentile of none": Case(lambda: tm.approx_percentile("fare", []), DefinitionError, ("p is an empty list",), "p=[0.5"),
    "aggregate of a number": Case(lambda: tm.sum(wrong(5)), DefinitionError, ("sum(5)",), "sum('fare')"),
    "top of none": Case(lambda: tm.top_k("fare", 0), DefinitionError, ("k=0",), "from 1 to"),
    "own aggregate of nothing": Case(lambda: tm.sql_aggregate({}, "{x}"), DefinitionError, ("no partials",), "partials="),
    # runs, refused before Spark is started
    "run of a stream": Case(lambda: tm.run(wrong(trips())), DefinitionError, ("tm.run is given a Stream",), "tm.run(tm.Job("),
    "check of a stream": Case(lambda: tm.check(wrong(trips())), DefinitionError, ("tm.check is given a Stream",), "tm.check(tm.Job("),
    "savepoints of a stream": Case(lambda: tm.savepoints_of(wrong(trips())), DefinitionError, ("is given a Stream",), "tm.Job("),
    "parallelism that is a number": Case(
        lambda: tm.run(job(trips()), parallelism=0),  # type: ignore[arg-type]
        DefinitionError,
        ("parallelism=0 is not a function",),
        "tm.Job(..., parallelism=4)",
    ),
    "no epochs": Case(lambda: tm.run(job(trips()), max_epochs=0), DefinitionError, ("max_epochs=0",), "1 or more"),
    "negative epochs": Case(lambda: tm.run(job(trips()), max_epochs=-1), DefinitionError, ("max_epochs=-1",), "1 or more"),
    "epochs as text": Case(lambda: tm.run(job(trips()), max_epochs=wrong("2")), DefinitionError, ("max_epochs='2'",), "1 or more"),
    "epochs as truth": Case(lambda: tm.run(job(trips()), max_epochs=True), DefinitionError, ("max_epochs=True",), "1 or more"),
    "trigger without unit": Case(
        lambda: tm.run(job(trips()), trigger=wrong(10)), DurationError, ("trigger=10 has no unit",), "'10 seconds'"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_error_says_what_where_and_how_to_mend_it(case: Case) -> None:
    with pytest.raises(TidemarkError) as caught:
        case.build()
    assert type(caught.value) is case.error
    what, fix = str(caught.value).split(" Fix: ")
    assert all(part in what for part in case.says), what
    assert case.fix in fix
    assert re.search(rf"at {re.escape(__file__)}:\d+\)", what.rstrip(". ")) or "test_definition_errors.py" in what, what


def test_functions_of_the_session_are_declared_or_qualified() -> None:
    stream = rows().filter("my_fn(fare) > db.fn(fare) + catalog.db.fn(1)").with_columns(name="MY_FN(`Other`(user))")
    made = job(hourly(stream, total=tm.sum("my_fn(fare)")), functions=["My_fn", "other"])
    assert made.functions == ("My_fn", "other")


def test_what_only_looks_like_a_function_is_none() -> None:
    texts = [
        "CAST(fare AS DECIMAL(10, 2)) IN (1, 2) AND NOT (paid) OR fare BETWEEN (1) AND (2)",
        "transform(stops, x -> (x))",
        "CASE WHEN (paid) THEN (1) ELSE (2) END",
        "user RLIKE ('a') AND user LIKE ANY ('a', 'b') AND (fare DIV (2)) > 1",
        "'no_such(1)' || \"neither(2)\" || extract(YEAR FROM day) || INTERVAL '1' DAY",
    ]
    assert {name for text in texts for name in called_functions(text)} == {"CAST", "transform", "extract"}
    job(*(rows().with_columns(x=text) for text in texts[:1]))


@pytest.mark.parametrize("how", ["LIKE ANY", "LIKE SOME", "NOT LIKE ANY", "ILIKE ANY", "ILIKE SOME", "LIKE ALL"])
def test_a_comparison_with_several_patterns_is_no_aggregate(how: str) -> None:
    job(rows().filter(f"user {how} ('a%', 'b%')"))


def test_any_over_rows_is_an_aggregate() -> None:
    with pytest.raises(TidemarkError, match="the aggregate 'any'"):
        job(rows().filter("any(paid)"))


def test_what_runs_without_a_cast_passes() -> None:
    made = hourly(
        total=tm.sum("fare + zone"),
        mean=tm.avg("CAST(user AS DECIMAL(10, 2))"),
        spread=tm.stddev("zone"),
        first=tm.first("tags"),
        best=tm.max_by("tags", "fare"),
        users=tm.count_distinct("user", "paid"),
        longest=tm.sum("INTERVAL '1' DAY"),
        paid=tm.max("paid"),
        unknown=tm.sum("stops[0][1] + pi()"),
    )
    assert job(made).name == "taxi"


def test_the_type_of_a_percentile_is_known() -> None:
    from tidemark.graph.api.columns import schema_of

    found = schema_of(hourly(one=tm.approx_percentile("fare", 0.5), many=tm.approx_percentile("fare", [0.5, 0.9])).node)
    assert found is not None
    assert [(column.name, column.type) for column in found.columns[3:5]] == [("one", "DOUBLE"), ("many", "ARRAY<DOUBLE>")]
