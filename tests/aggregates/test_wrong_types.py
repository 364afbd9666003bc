"""A Python function that returns a value of another type than declared: an error that names it, never a null."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import tidemark as tm
from tests.engine.lab import Lab, elements
from tests.seeds import PROFILE, some
from tidemark.errors import UserCodeError
from tidemark.spark.columns.aggregate_functions import register_functions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemark.graph.model.aggregates import Aggregate

pytestmark = pytest.mark.spark

NOON = datetime(2024, 3, 4, 12, tzinfo=UTC)


def rows(*more: Sequence[tuple[object, ...]]) -> tm.Stream:
    return elements([("a", 1, 4), ("a", 2, 5)], *more, schema="k STRING, t BIGINT, v BIGINT")


def per_key(aggregate: Aggregate, stream: tm.Stream | None = None) -> tm.Stream:
    windows = (rows() if stream is None else stream).key_by("k").window(tm.tumbling("10 ms"))
    return windows.aggregate(made=aggregate).uid("w")


def giving(value: object, returns: str) -> Aggregate:
    """Return an aggregate whose result is a value."""
    return tm.python_aggregate(
        int, lambda n, _: n + 1, lambda a, b: a + b, lambda _: value, arguments=["v"], state="BIGINT", returns=returns
    )


def keeping(value: object, state: str) -> Aggregate:
    """Return an aggregate whose state is a value after each element."""
    return tm.python_aggregate(int, lambda *_: value, lambda a, _: a, str, arguments=["v"], state=state, returns="STRING")


def merging_to(value: object, state: str) -> Aggregate:
    """Return an aggregate whose state is a value once two epochs were merged."""
    return tm.python_aggregate(int, lambda n, _: n + 1, lambda *_: value, str, arguments=["v"], state=state, returns="STRING")


def returning(value: Any) -> Callable[..., Any]:
    return lambda *_: value


LATER = [("a", 3, 6)]

ROW = pa.struct([pa.field("a", pa.int64(), nullable=False)])

WRONG: dict[str, tuple[Callable[[], tm.Stream], str]] = {
    "a text for DOUBLE": (
        lambda: per_key(giving("abc", "DOUBLE")),
        "aggregate 'made': result returned 'abc' (str), which does not fit DOUBLE",
    ),
    "a list for BIGINT": (lambda: per_key(giving([1], "BIGINT")), "returned [1] (list), which does not fit BIGINT"),
    "a fraction for BIGINT": (lambda: per_key(giving(1.5, "BIGINT")), "returned 1.5 (float), which does not fit BIGINT"),
    "too much for TINYINT": (lambda: per_key(giving(300, "TINYINT")), "returned 300 (int), which does not fit TINYINT"),
    "a text for TIMESTAMP": (lambda: per_key(giving("2024", "TIMESTAMP")), "returned '2024' (str), which does not fit TIMESTAMP"),
    "a number for STRING": (lambda: per_key(giving(5, "STRING")), "returned 5 (int), which does not fit STRING"),
    "digits that DECIMAL lacks": (lambda: per_key(giving(Decimal("1.505"), "DECIMAL(10,2)")), "does not fit DECIMAL(10,2)"),
    "an item": (lambda: per_key(giving([1, "x"], "ARRAY<BIGINT>")), "returned 'x' (str), which does not fit BIGINT"),
    "a field": (lambda: per_key(giving({"n": "x"}, "n BIGINT, m BIGINT")), "returned 'x' (str) as 'n', which does not fit BIGINT"),
    "a field that is not there": (
        lambda: per_key(giving({"nn": 1}, "n BIGINT")),
        "returned {'nn': 1} (dict), which does not fit struct<n:bigint>",
    ),
    "a state": (lambda: per_key(keeping("abc", "DOUBLE")), "aggregate 'made': add returned 'abc' (str), which does not fit DOUBLE"),
    "a state in a map": (
        lambda: per_key(keeping({"a": 1.5}, "MAP<STRING, BIGINT>")),
        "add returned 1.5 (float), which does not fit BIGINT",
    ),
    "a merged state": (lambda: per_key(merging_to("abc", "BIGINT"), rows(LATER)), "merge returned 'abc' (str), which does not fit BIGINT"),
    "a reduced row": (
        lambda: rows().key_by("k").window(tm.tumbling("10 ms")).reduce(lambda a, _: {**a, "v": "x"}, columns=["v"]).uid("w"),
        "the function given to reduce() returned 'x' (str) as 'v', which does not fit BIGINT",
    ),
    "a row of process": (
        lambda: rows().key_by("k").window(tm.tumbling("10 ms")).process(returning([{"n": 1.5}]), returns="n BIGINT").uid("w"),
        "the window function returned 1.5 (float) as 'n', which does not fit BIGINT, for the key {'k': 'a'} and the window [0, 10)",
    ),
    "a mistyped column of process": (
        lambda: rows().key_by("k").window(tm.tumbling("10 ms")).process(returning([{"m": 1}]), returns="n BIGINT").uid("w"),
        "a column 'm', which it does not declare",
    ),
    "a row of map": (lambda: rows().map(returning({"n": 1.5}), returns="n BIGINT"), "1.5 (float) as 'n', which does not fit BIGINT"),
    "a number for TIMESTAMP": (
        lambda: rows().map(returning({"at": 5}), returns="at TIMESTAMP"),
        "5 (int) as 'at', which does not fit TIMESTAMP",
    ),
    "a truth for DOUBLE": (lambda: rows().map(returning({"x": True}), returns="x DOUBLE"), "True (bool) as 'x', which does not fit DOUBLE"),
    "a mistyped column": (lambda: rows().map(returning({"totl": 1}), returns="total BIGINT"), "it has 'totl', and no 'total'"),
    "a row of flat_map": (
        lambda: rows().flat_map(returning([{"n": "x"}]), returns="n BIGINT"),
        "'x' (str) as 'n', which does not fit BIGINT",
    ),
    "a column of a batch": (lambda: batches(pa.array(["x", "y"]), "n BIGINT"), "column 'n' is of type STRING and does not fit BIGINT"),
    "fractions of a batch": (lambda: batches(pa.array([1.5, 2.0]), "n BIGINT"), "column 'n' is of type DOUBLE and does not fit BIGINT"),
    "a null of a batch": (lambda: batches(pa.array([1, None]), "n BIGINT NOT NULL"), "column 'n' has nulls and is declared NOT NULL"),
    "a null in a field of a batch": (
        lambda: batches(pa.array([{"a": 1}, {"a": None}]), "n STRUCT<a: INT NOT NULL>"),
        "column 'n.a' has nulls and is declared NOT NULL",
    ),
    "a null in a field that a batch declares NOT NULL": (
        lambda: batches(pa.array([[{"a": 1}, {"a": None}], []], pa.list_(ROW)), "n ARRAY<STRUCT<a: BIGINT NOT NULL>>"),
        "column 'n.a' has nulls and is declared NOT NULL",
    ),
    "a null in a map of a batch": (
        lambda: batches(pa.array([None, {"k": {"a": None}}], pa.map_(pa.string(), ROW)), "n MAP<STRING, STRUCT<a: BIGINT NOT NULL>>"),
        "column 'n.a' has nulls and is declared NOT NULL",
    ),
    "an evictor's answer": (lambda: evicting(Evicting(7)), "evictor Evicting() answered"),
    "an evictor's places": (lambda: evicting(Evicting({"first"})), "evictor Evicting() answered"),
    "a trigger's answer": (lambda: triggered(Answering("FIRE")), "trigger Answering() failed"),
}


def batches(column: pa.Array, returns: str) -> tm.Stream:
    def run(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([column.slice(0, batch.num_rows)], names=["n"])

    return rows().map(run, returns=returns, batches=True)


class Evicting:
    """An evictor that answers with a value."""

    after = False

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def evicted(self, elements: Sequence[object]) -> Any:  # noqa: ARG002
        return self.answer

    def describe(self) -> str:
        return "Evicting()"


class Answering:
    """A trigger that answers with a value."""

    can_merge = False

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def on_element(self, element: object, timestamp: int, window: object, context: object) -> Any:  # noqa: ARG002
        return self.answer

    def on_epoch_end(self, window: object, context: object) -> Any:  # noqa: ARG002
        return self.answer

    def on_event_time(self, time: int, window: object, context: object) -> Any:  # noqa: ARG002
        return self.answer

    on_processing_time = on_event_time

    def on_merge(self, window: object, context: object) -> None: ...

    def describe(self) -> str:
        return "Answering()"


def evicting(evictor: Any) -> tm.Stream:
    windows = rows().key_by("k").window(tm.tumbling("10 ms")).evictor(evictor)
    return windows.process(returning([{"n": 1}]), returns="n BIGINT").uid("w")


def triggered(trigger: Any) -> tm.Stream:
    windows = rows().key_by("k").window(tm.tumbling("10 ms")).trigger(trigger)
    return windows.process(returning([{"n": 1}]), returns="n BIGINT").uid("w")


OF_RESULTS = list(WRONG)[:10]
"""What a function gives as the result of an aggregate; one of them is seen in a job, too."""

SHOWN_ELSEWHERE = {*OF_RESULTS[1:], "a mistyped column of process"}
"""The last one is among what fails in ``tests/engine/test_buffered_windows.py``."""


class Registered(dict[str, Callable[..., object]]):
    """Functions by what of an aggregate they are."""

    def register(self, name: str, function: Callable[..., object], returns: str) -> None:  # noqa: ARG002
        self[name.rpartition("_")[2]] = function


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("name", OF_RESULTS)
def test_a_result_is_named_by_the_function_that_spark_calls(name: str) -> None:
    make, says = WRONG[name]
    registered = Registered()
    register_functions(SimpleNamespace(udf=registered), [make().node])  # type: ignore[arg-type]
    with pytest.raises(UserCodeError) as raised:
        registered["result"](2)
    assert says in str(raised.value)
    assert (raised.value.uid, len(str(raised.value).splitlines())) == ("w", 1)
    assert str(raised.value.place).startswith(__file__)


@pytest.mark.parametrize("name", [name for name in some(WRONG, 3) if PROFILE == "long" or name not in SHOWN_ELSEWHERE])
def test_it_is_named_in_one_line(spark: SparkSession, tmp_path: Path, name: str) -> None:
    make, says = WRONG[name]
    try:
        ran = Lab(spark, tmp_path).run({"out": make()})
    except UserCodeError as error:
        said = str(error)
    else:
        pytest.fail(f"nothing was said, and the rows are {ran.rows}")
    assert says in said
    assert len(said.splitlines()) == 1
    assert said.startswith("[TM501] ")
    assert "job 'job'" in said
    assert re.search(rf"at {re.escape(__file__)}:\d+\)", said), said
    assert " Fix: " in said


RIGHT: list[tuple[object, str, object]] = [
    (5, "DOUBLE", 5.0),
    (2.0, "BIGINT", 2),
    (None, "BIGINT", None),
    (np.int64(3), "BIGINT", 3),
    (np.float64(1.5), "DOUBLE", 1.5),
    (np.array([1, 2]), "ARRAY<BIGINT>", [1, 2]),
    (7, "DECIMAL(10, 2)", Decimal("7.00")),
    (Decimal("1.5"), "DECIMAL(10, 2)", Decimal("1.50")),
    ((1, None), "ARRAY<DOUBLE>", [1.0, None]),
    ({"a": 1}, "MAP<STRING, DOUBLE>", {"a": 1.0}),
    ({"n": 1}, "STRUCT<n: DOUBLE, m: STRING>", {"n": 1.0, "m": None}),
    (NOON, "TIMESTAMP", NOON),
    (date(2024, 3, 4), "DATE", date(2024, 3, 4)),
    (b"x", "BINARY", b"x"),
    (True, "BOOLEAN", True),
]


def test_what_loses_nothing_is_taken(spark: SparkSession, tmp_path: Path) -> None:
    windows = rows().key_by("k").window(tm.tumbling("10 ms"))
    aggregates = {f"r{number}": giving(value, returns) for number, (value, returns, _) in enumerate(RIGHT)}
    states = {f"s{number}": kept(value, state) for number, (value, state, _) in enumerate(RIGHT)}
    ran = Lab(spark, tmp_path).run({"out": windows.aggregate(**aggregates, **states).uid("w")})
    (row,) = ran.rows["out"]
    for number, (_, _, meant) in enumerate(RIGHT):
        assert plain(row[f"r{number}"]) == meant
        assert plain(row[f"s{number}"]) == meant


def kept(value: object, state: str) -> Aggregate:
    return tm.python_aggregate(returning(value), returning(value), returning(value), same, arguments=["v"], state=state, returns=state)


def same(value: object) -> object:
    return value


def plain(value: Any) -> object:
    """Return a value as Python: a row as a dict, a time with its zone."""
    if hasattr(value, "asDict"):
        return value.asDict()
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return dict(value)
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


def test_rows_that_lose_nothing_are_taken(spark: SparkSession, tmp_path: Path) -> None:
    made = {f"c{number}": value for number, (value, _, _) in enumerate(RIGHT)}
    returns = ", ".join(f"c{number} {ddl}" for number, (_, ddl, _) in enumerate(RIGHT))
    stream = rows()
    mapped = stream.map(returning(made), returns=returns)
    processed = stream.key_by("k").window(tm.tumbling("10 ms")).process(returning([made]), returns=returns).uid("w")
    ran = Lab(spark, tmp_path).run({"mapped": mapped, "processed": processed})
    for found in (*ran.rows["mapped"], *ran.rows["processed"]):
        assert [plain(found[name]) for name in made] == [meant for _, _, meant in RIGHT]


def more_columns(row: Mapping[str, object]) -> Iterator[dict[str, object]]:
    yield {**row, "n": 1}


def test_columns_that_are_not_declared_are_left_out_where_none_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    ran = Lab(spark, tmp_path).run({"out": rows().flat_map(more_columns, returns="n BIGINT")})
    assert ran.rows["out"] == [{"n": 1}, {"n": 1}]
