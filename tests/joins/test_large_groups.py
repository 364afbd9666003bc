"""A key with many rows costs a regular join what has changed of it: what is staged, what is compared, and what is emitted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

import tidemark as tm
from tests.joins.changelog_programs import Row, run_history
from tests.seeds import PROFILE, only_long
from tidemark.spark.columns.state_files import write_folder
from tidemark.spark.operators.regular_join.frames import JoinFrames
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = 20_000 if PROFILE == "long" else 8_000
TEXT = "long enough that rows which are staged without it are seen in the bytes, of which there are as many as rows: {}"

Given = Sequence[Sequence[tuple[Any, ...]]]


def table(name: str, epochs: Given) -> tm.Stream:
    """Return changes of a table with the key ``<name>_id``, all of whose rows have one key of the join, and a long text."""
    rows = [[(number, operation, key, "k", TEXT.format(key * 7919)) for operation, key in epoch] for number, epoch in enumerate(epochs)]
    schema = f"t BIGINT, op STRING, {name}_id INT, k STRING, {name}_text STRING"
    given = tm.source(name, tm.from_elements(epochs=rows, schema=schema), watermarks=tm.ascending(timestamp="t"))
    return given.as_changelog(key=[f"{name}_id"], operation="op").select(f"{name}_id", "k", f"{name}_text")


def many(first: int = 0) -> list[tuple[str, int]]:
    return [("insert", number) for number in range(first, ROWS)]


class Staged:
    """The rows and bytes that each epoch stages."""

    def __init__(self) -> None:
        self.rows: Counter[int] = Counter()
        self.bytes: Counter[int] = Counter()

    def write(self, rows: DataFrame, store: JobStore, folder: str, **settings: Any) -> Sequence[Any]:
        """Write rows, and note the files."""
        found = write_folder(rows, store, folder, **settings)
        epoch = int(re.findall(r"(\d{12})-", folder)[0])
        self.rows[epoch] += sum(file.rows for file in found)
        self.bytes[epoch] += sum(file.bytes for file in found)
        return found


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> Staged:
    """Note what is staged; keys are looked up as in large tables."""
    found = Staged()
    monkeypatch.setattr("tidemark.spark.operators.base.staged_rows.write_folder", found.write)
    monkeypatch.setattr("tidemark.spark.operators.regular_join.runtime.MANY_ROWS", 0)
    monkeypatch.setattr("tidemark.spark.operators.regular_join.concerned.FEW_ROWS", 0)
    return found


def by_epoch(history: Sequence[Row]) -> list[list[Row]]:
    """Return changes by epoch, of three."""
    return [[row for row in history if row["epoch"] == epoch] for epoch in range(3)]


def test_rows_that_only_count_are_staged_without_their_columns(spark: SparkSession, tmp_path: Path, staged: Staged) -> None:
    left = table("l", [[("insert", 1), ("insert", 2)], [], []])
    right = table("r", [many(), [("delete", 5)], [("delete", 6)]])
    ran = by_epoch(run_history(spark, tmp_path, {"pairs": left.join(right, on="k", how="full").uid("pairs")})["pairs"])
    assert [len(rows) for rows in ran] == [2 * ROWS, 2, 2]
    assert {(row["operation"], row["l_id"], row["r_id"]) for row in ran[1]} == {("delete", 1, 5), ("delete", 2, 5)}
    assert staged.rows[0] == ROWS + 2 >= staged.rows[1]
    assert staged.bytes[1] * 20 < staged.bytes[0], "rows that only count have no columns"


@pytest.mark.parametrize("how", [pytest.param("semi", marks=only_long), "anti"])
def test_left_rows_are_read_only_where_the_right_input_loses_or_gets_their_key(
    spark: SparkSession, tmp_path: Path, staged: Staged, how: Literal["semi", "anti"]
) -> None:
    left = table("l", [many(), [], []])
    right = table("r", [[("insert", 1), ("insert", 2)], [("delete", 1)], [("delete", 2)]])
    ran = by_epoch(run_history(spark, tmp_path, {"some": left.join(right, on="k", how=how).uid("some")})["some"])
    assert [len(rows) for rows in ran] == ([ROWS, 0, ROWS] if how == "semi" else [0, 0, ROWS])
    # The right rows are staged twice: to find the keys, and for the results.
    assert staged.rows[1] == 4
    assert staged.rows[2] == ROWS + 2


def test_pairs_of_which_no_row_changes_are_not_compared(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size, compared, results = 300 if PROFILE == "long" else 100, list[int](), JoinFrames.results

    def counted(frames: JoinFrames, *args: Any, **settings: Any) -> DataFrame:
        made = results(frames, *args, **settings)
        made.collect()
        compared.append(rows_compared(made))
        return made

    monkeypatch.setattr(JoinFrames, "results", counted)
    monkeypatch.setattr("tidemark.spark.operators.regular_join.runtime.MOST_COMPARED", 0)
    left, right = (table(name, [many(ROWS - size), [("delete", ROWS - 1), ("insert", 1)], []]) for name in ("l", "r"))
    ran = by_epoch(run_history(spark, tmp_path, {"pairs": left.join(right, on="k").uid("pairs")})["pairs"])
    # Of each side one row goes and another one comes.
    assert [len(rows) for rows in ran] == [size * size, 2 * (2 * size - 1), 0]
    assert compared[0] == size * size
    assert compared[1] <= 2 * len(ran[1]), "not all with all"


def rows_compared(frame: DataFrame) -> int:
    """Return how many rows the joins of a plan that ran have compared, where all have one key."""
    plan = frame._jdf.queryExecution().executedPlan()  # noqa: SLF001 - PySpark has no metrics of a plan
    return sum(prod(map(rows_of, children(join))) for join in nodes(plan) if join.nodeName().endswith("Join"))


def nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in children(plan):
        yield from nodes(child)


def children(plan: Any) -> list[Any]:
    found = plan.children()
    return [found.apply(number) for number in range(found.size())]


def rows_of(plan: Any) -> int:
    """Return how many rows a part of a plan gave: what it, or the first part below it, has counted."""
    counted = plan.metrics().get("numOutputRows")
    if counted.isDefined():
        return int(counted.get().value())
    (child,) = children(plan)
    return rows_of(child)
