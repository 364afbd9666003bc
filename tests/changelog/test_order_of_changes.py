"""In which order the changes of a key count, and functions over a changelog that give another value each time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import tidemark as tm
from tidemark.errors import ExpressionError, UserCodeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "t BIGINT, id STRING, v INT, op STRING, lsn INT"
LATE: list[list[tuple[object, ...]]] = [
    # As the source has them: event times go back, and the log positions with them.
    [(9, "late", 1, "+I", 9), (5, "late", 1, "-U", 2), (6, "late", 2, "+U", 2), (9, "gone", 1, "+I", 3), (4, "gone", 1, "-D", 4)],
    [(3, "late", 2, "-U", 10), (2, "late", 3, "+U", 10), (1, "gone", 5, "+I", 5)],
    # Not as the source has them, but by their log positions.
    [
        (20, "swap", 8, "-U", 13),
        (21, "swap", 9, "+U", 13),
        (22, "swap", 7, "+I", None),
        (23, "swap", 7, "-U", 12),
        (24, "swap", 8, "+U", 12),
    ],
]


def given() -> tm.Stream:
    return tm.source("rows", tm.from_elements(epochs=LATE, schema=SCHEMA), watermarks=tm.ascending(timestamp="t"))


def rows_of(table: str) -> list[dict[str, Any]]:
    found = tm.memory_table(table)
    return [] if found is None else found.to_pylist()


def history(table: str) -> list[tuple[int, str, str, int]]:
    return sorted((row["epoch"], row["id"], row["operation"], row["v"]) for row in rows_of(table))


def test_changes_count_in_the_order_of_their_source_or_sequence(spark: SparkSession, tmp_path: Path) -> None:
    rows = given()
    outputs = {
        "source": rows.as_changelog(["id"], operation="op").filter("id <> 'swap'").select("id", "v"),
        "sequence": rows.filter("id = 'swap'").as_changelog(["id"], operation="op", sequence="lsn").select("id", "v"),
    }
    job = tm.Job("order", {name: tm.memory(each, f"order_{name}") for name, each in outputs.items()}, store=str(tmp_path))
    tm.run(job, spark=spark)
    found = {name: history(f"order_{name}") for name in outputs}
    assert found["source"] == [(0, "late", "insert", 2), (1, "gone", "insert", 5), (1, "late", "update", 3)]
    assert found["sequence"] == [(2, "swap", "insert", 9)]


@pytest.mark.parametrize("what", ["a step", "a key"])
def test_a_function_that_makes_another_column_each_time_is_refused(spark: SparkSession, tmp_path: Path, what: str) -> None:
    log = given().as_changelog(["id"], operation="op")
    streams = {
        "a step": lambda: log.with_columns(fine=lambda: F.col("v") + 1).with_columns(u=lambda: F.col("v") * F.rand()),
        "a key": lambda: log.key_by(u=F.current_timestamp).aggregate(n=tm.count()).uid("counts"),
    }
    job = tm.Job("refused", {"out": tm.memory(streams[what](), "refused")}, store=str(tmp_path))
    with pytest.raises(ExpressionError, match="is not deterministic, and is over a changelog") as raised:
        tm.run(job, spark=spark)
    assert "test_order_of_changes.py" in str(raised.value)


def test_an_update_without_the_row_before_is_noticed(spark: SparkSession, tmp_path: Path) -> None:
    epochs = [[(1, 1, 5, "+I"), (2, 2, 7, "+I")], [(3, 1, 6, "-U"), (4, 1, 6, "+U"), (5, 2, 8, "+U")]]
    rows = tm.source(
        "rows", tm.from_elements(epochs=epochs, schema="t BIGINT, id INT, v INT, op STRING"), watermarks=tm.ascending(timestamp="t")
    )
    best = rows.as_changelog(["id"], operation="op").top_n(2, order="v", rank="place").uid("best")
    job = tm.Job("half", {"best": tm.memory(best.select("place", "v"), "half")}, store=str(tmp_path))
    with pytest.raises(UserCodeError, match=r'top_n best: the key \{"id":2\} comes again without the row.*\.latest\(by='):
        tm.run(job, spark=spark)
    assert [row["v"] for row in rows_of("half")] == [5, 7]
