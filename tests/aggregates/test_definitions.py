"""What an aggregate refuses when it is declared, and what it says of itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tidemark as tm
from tidemark.errors import DefinitionError
from tidemark.graph.aggregates.aggregates_custom import plain
from tidemark.graph.aggregates.aggregates_percentile import Buckets
from tidemark.graph.model.aggregates import Aggregate


def python(**changes: object) -> Aggregate:
    given: dict[str, object] = {"arguments": ["x"], "state": "INT", "returns": "INT", **changes}
    functions = {name: given.pop(name, lambda *_: 0) for name in ("create", "add", "merge", "result")}
    return tm.python_aggregate(**functions, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: tm.sum(""), r"sum\(''\): the argument is not an SQL expression.*Fix: pass a column"),
        (lambda: tm.max(3), r"max\(3\): the argument is not an SQL expression"),  # type: ignore[arg-type]
        (lambda: tm.min_by("x", " "), r"min_by\(' '\)"),
        (lambda: tm.count_distinct("x", ""), r"count_distinct\(''\)"),
        (lambda: tm.approx_percentile("x", 1.5), r"p=1.5 is not a number from 0 to 1"),
        (lambda: tm.approx_percentile("x", [0.5, -0.1]), r"p=-0.1 is not a number from 0 to 1"),
        (lambda: tm.approx_percentile("x", "0.5"), r"p='0' is not a number"),  # type: ignore[arg-type]
        (lambda: tm.approx_percentile("x", float("nan")), r"p=nan is not a number from 0 to 1"),
        (lambda: tm.approx_percentile("x", []), r"p is an empty list"),
        (lambda: tm.approx_percentile("x", 0.5, relative_error=0.0), r"relative_error=0.0 is not a number from 0.001 to 0.5"),
        (lambda: tm.approx_count_distinct("x", relative_error=1), r"relative_error=1 is not a number from 0.001 to 0.25"),
        (lambda: tm.top_k("x", 0), r"k=0 is not a whole number from 1 to 100000"),
        (lambda: tm.top_k("x", 2.0), r"k=2.0 is not a whole number"),  # type: ignore[arg-type]
        (lambda: tm.top_k("x", True), r"k=True is not a whole number"),
        (lambda: tm.sql_aggregate({}, "1"), r"no partials are given"),
        (lambda: tm.sql_aggregate({"a b": ("sum(x)", "sum({a})")}, "{a}"), r"may not be named 'a b'"),
        (lambda: tm.sql_aggregate({"order": ("sum(x)", "sum({order})")}, "{order}"), r"may not be named 'order'"),
        (lambda: tm.sql_aggregate({"a": ("sum({x})", "sum({a})")}, "{a}"), r"\{x\} in create of 'a'.*stands for nothing.*write \{order\}"),
        (lambda: tm.sql_aggregate({"a": ("sum(x)", "sum({b})")}, "{a}"), r"\{b\} in merge of 'a'.*stands for nothing.*write \{a\}"),
        (lambda: tm.sql_aggregate({"a": ("sum(x)", "sum({a})")}, "{order}"), r"\{order\} in result"),
        (lambda: tm.sql_aggregate({"a": ("sum(x)", "sum({a}")}, "{a"), r"the braces in result, '\{a', do not match"),
        (lambda: python(arguments=[]), r"arguments=\[\] is not a list of SQL expressions"),
        (lambda: python(arguments="x"), r"arguments='x' is not a list of SQL expressions"),
        (lambda: python(state=" "), r"state=' ' is not a type"),
        (lambda: python(merge=None), r"merge=None cannot be called"),
    ],
)
def test_refused(declare: Callable[[], Aggregate], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        declare()


def test_kind_and_arguments() -> None:
    aggregate = tm.max_by(" zone ", "fare")
    assert (aggregate.kind, aggregate.arguments) == ("max_by", ("zone", "fare"))
    assert tm.count().arguments == tm.count("*").arguments == ()


def test_which_need_an_order() -> None:
    ordered = [
        tm.first("x"),
        tm.last("x"),
        tm.min_by("x", "y"),
        tm.max_by("x", "y"),
        tm.collect_list("x"),
        tm.top_k("x", 1, by="y"),
        python(),
    ]
    free = [tm.count(), tm.sum("x"), tm.avg("x"), tm.stddev("x"), tm.collect_set("x"), tm.top_k("x", 1), tm.approx_percentile("x", 0.5)]
    assert all(aggregate.ordered for aggregate in ordered)
    assert not any(aggregate.ordered for aggregate in free)


def test_python_functions_have_names_of_their_own() -> None:
    names = [function.name for aggregate in (python(), python()) for function in aggregate.functions]
    assert len(set(names)) == 6


def test_equal_declarations_in_python_are_the_same_to_stored_state() -> None:
    from tidemark.graph.operators.window.definition import aggregate_definition

    assert aggregate_definition("a", python()) == aggregate_definition("a", python())


@pytest.mark.parametrize("error", [0.001, 0.0015, 0.01, 0.5])
def test_all_buckets_can_be_counted(error: float) -> None:
    buckets = Buckets(error)
    assert buckets.tracked <= 1_000_000
    assert buckets.smallest <= 1e-126


def test_rows_become_plain_values() -> None:
    class Struct(tuple[object, ...]):
        __slots__ = ()

        def asDict(self) -> dict[str, object]:  # noqa: N802 - as Spark's Row
            return {"inner": self[0]}

    assert plain(Struct([Struct([1])])) == {"inner": {"inner": 1}}
    assert plain([Struct([{"k": Struct([2])}])]) == [{"inner": {"k": {"inner": 2}}}]
