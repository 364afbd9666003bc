"""Running aggregates of more rows than one task takes: written once, beside what there was, whichever way the stored groups are read."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import tidemark as tm
from tidemark.spark.operators.changelog import contents
from tidemark.spark.operators.changelog.contents import STORED
from tidemark.spark.operators.group_aggregate import runtime
from tidemark.spark.state_api.state_processor import savepoint
from tidemark.state.log.progress import EpochProgress
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "t BIGINT, k STRING, v INT, x DOUBLE, d DECIMAL(10, 2)"
JOBS = {"all are read": 2, "few are looked up": 4, "a group may be large": 3}
"""Of an epoch: one takes the rows into the state, one writes the changes. To look groups up, one adds up rows, and one sends their keys to
the tasks; where a group may be large, one stages it before, with its rows of results."""

Row = tuple[int, str | None, int | None, float | None, None]
Result = tuple[int, int | None, int | None, float | None, None]


def rows_of(epochs: int) -> list[list[Row]]:
    """Return the rows of epochs: keys that come once, again, and never again, with nulls."""
    dice = Random(5)
    made: list[list[Row]] = []
    for epoch in range(epochs):
        keys = [None, "", *dice.choices(["a", "b", "ä", f"only {epoch}"], k=12)]
        values = dice.choices([1, -2, 7, None], k=len(keys))
        made.append(
            [(1_000 * epoch + n, key, value, value and value / 2, None) for n, (key, value) in enumerate(zip(keys, values, strict=True))]
        )
    return made


def results(rows: list[Row]) -> dict[str | None, Result]:
    """Return the number, sum, maximum and mean by key, and the sum of what is null everywhere."""
    found: dict[str | None, Result] = {}
    for key in {row[1] for row in rows}:
        values = [row[2] for row in rows if row[1] == key and row[2] is not None]
        number = sum(row[1] == key for row in rows)
        mean = sum(value / 2 for value in values) / len(values) if values else None
        found[key] = (number, sum(values) if values else None, max(values, default=None), mean, None)
    return found


def changes(epochs: list[list[Row]]) -> set[tuple[Any, ...]]:
    """Return what an appended history has to have."""
    found: set[tuple[Any, ...]] = set()
    before: dict[str | None, Result] = {}
    for epoch in range(len(epochs)):
        after = results([row for rows in epochs[: epoch + 1] for row in rows])
        for key, result in after.items():
            if before.get(key) != result:
                found.add((epoch, "update" if key in before else "insert", key, *result))
        before = after
    return found


def aggregates() -> dict[str, Any]:
    return {"n": tm.count(), "total": tm.sum("v"), "most": tm.max("v"), "mean": tm.avg("x"), "none": tm.sum("d")}


def shown(name: str) -> list[tuple[Any, ...]]:
    table = tm.memory_table(name)
    assert table is not None
    return [tuple(row[column] for column in ("epoch", "operation", "k", *aggregates())) for row in table.to_pylist()]


def state_columns(store: Path) -> set[bool]:
    """Return of which files of state it is so that they have what there was before, too."""
    return {STORED in pq.read_schema(path).names for path in (store / "groups" / "state" / "groups").rglob("*.parquet")}


@pytest.mark.parametrize("way", list(JOBS))
def test_changes_state_and_jobs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    looked_up: list[DataFrame | None] = []
    current = contents.Contents.current

    def noted(table: contents.Contents, hashes: DataFrame | None = None, **options: Any) -> DataFrame:
        looked_up.append(hashes)
        return current(table, hashes, **options)

    monkeypatch.setattr(contents.Contents, "current", noted)
    monkeypatch.setattr("tidemark.spark.columns.few_rows.FEW_ROWS", -1)
    if way == "few are looked up":
        for module in (runtime, contents):
            monkeypatch.setattr(module, "MANY_ROWS", 0)
        monkeypatch.setattr(runtime, "FEW_OF", 0)
    epochs, given = rows_of(4), aggregates()
    if way == "a group may be large":
        given["texts"] = tm.collect_list("k")
    rows = tm.source("rows", tm.from_elements(epochs=epochs, schema=SCHEMA), watermarks=tm.ascending(timestamp="t"))
    groups = rows.key_by("k").aggregate(**given).uid("groups")
    done: list[EpochProgress] = []
    job = tm.Job("groups", {"groups": tm.memory(groups, f"{tmp_path}/{way}")}, store=str(tmp_path / "store"), parallelism=2)
    tm.run(job, spark=spark, clock=ManualClock(1_700_000_000_000), on_epoch=done.append)
    assert set(shown(f"{tmp_path}/{way}")) == changes(epochs)
    assert len(shown(f"{tmp_path}/{way}")) == len(changes(epochs))
    stored = savepoint("groups", store=str(tmp_path / "store")).tables("groups", spark)["groups"].collect()
    last = results([row for rows in epochs for row in rows])
    assert {row["k"]: tuple(row[name] for name in aggregates()) for row in stored} == last
    assert [operator.keys for epoch in done for operator in epoch.operators.values()][-1] == len(last)
    # In some epochs files of state are merged.
    assert min(epoch.spark_jobs for epoch in done[1:]) == JOBS[way], [epoch.spark_jobs for epoch in done]
    assert (True in state_columns(tmp_path / "store")) == (way != "a group may be large"), state_columns(tmp_path / "store")
    assert any(each is not None for each in looked_up) == (way == "few are looked up")
