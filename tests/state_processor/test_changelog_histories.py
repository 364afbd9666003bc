"""State of aggregates, tables and joins that is made from a history goes on as that of a run from the beginning does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.changelog.changes import Histories, Row, Table
from tests.seeds import PROFILE
from tidemark.errors import DefinitionError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.export.importing import import_savepoint
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

BEFORE = 2
"""So many epochs are the history."""

ROWS = "t BIGINT, id INT, k STRING, v INT, m DECIMAL(38, 10)"
CHANGES = f"{ROWS}, op STRING"
OTHERS = "t BIGINT, rid INT, k STRING, w INT, op STRING"


def row(time: int, number: int, key: str | None, value: int | None) -> Row:
    """Return a row of the table of ``ROWS``."""
    return {"t": time, "id": number, "k": key, "v": value, "m": None if value is None else Decimal(value) / 8}


def tables() -> tuple[list[list[Row]], list[list[Row]], list[Table]]:
    """Return the changes of two tables by epoch, and both tables as they are when the history ends."""
    rows, others = Table(["id"]), Table(["rid"])
    for time, (number, key, value) in enumerate([(1, "a", 8), (2, "a", 3), (3, "b", 5), (4, None, 7), (5, "c", 1), (6, "d", 9)]):
        rows.put(row(time, number, key, value))
        others.put({"t": time, "rid": 10 + number, "k": key if number % 2 else "a", "w": value})
    first = [rows.take(), others.take()]
    rows.put(row(11, 2, "b", 4))
    rows.delete((5,))
    rows.put(row(13, 7, "a", None))
    others.delete((11,))
    others.put({"t": 14, "rid": 15, "k": "d", "w": 2})
    second = [rows.take(), others.take()]
    ended = [Table(each.key, dict(each.content)) for each in (rows, others)]
    rows.put(row(21, 1, "b", 8))
    rows.delete((3,))
    rows.put(row(22, 8, "c", 6))
    others.put({"t": 23, "rid": 13, "k": "b", "w": 0})
    epochs = [first, second]
    if PROFILE == "long":
        epochs.append([rows.take(), others.take()])
    for number in (2, 6, 7):
        rows.delete((number,))
    others.delete((12,))
    epochs.append([rows.take(), others.take()])
    return [each[0] for each in epochs], [each[1] for each in epochs], ended


def source(name: str, epochs: Sequence[Sequence[Row]], schema: str) -> tm.Stream:
    """Return rows as a stream."""
    columns = [part.split()[0] for part in schema.replace("(38, 10)", "").split(", ")]
    given = [[tuple(each[column] for column in columns) for each in epoch] for epoch in epochs]
    return tm.source(name, tm.from_elements(epochs=given, schema=schema), watermarks=tm.ascending(timestamp="t"))


def streams(rows: Sequence[Sequence[Row]], others: Sequence[Sequence[Row]]) -> dict[str, tm.Stream]:
    """Return an operator of each kind whose state is a table."""
    changes, right = source("rows", rows, CHANGES), source("others", others, OTHERS)
    table = changes.as_changelog(key=["id"], operation="op").select("t", "id", "k", "v", "m")
    other = right.as_changelog(key=["rid"], operation="op").select("rid", "k", "w")
    sums: dict[str, Any] = {"n": tm.count(), "total": tm.sum("m"), "mean": tm.avg("v"), "most": tm.max("v"), "spread": tm.stddev("v")}
    listed: dict[str, Any] = {
        "last": tm.last("v"),
        "of": tm.max_by("id", "v"),
        "ids": tm.collect_list("id"),
        "kinds": tm.count_distinct("v"),
    }
    newest = changes.latest(by=["id"], deleted="op = 'delete'")
    found = {
        "added": changes.key_by("k").aggregate(**sums, **listed),
        "groups": table.key_by("k").aggregate(**sums, **listed),
        "newest": newest,
        "top": table.top_n(2, by=["k"], order="v DESC", rank="place"),
    }
    found["pairs"] = table.select("id", "k", "v").join(other, on="k", how="full")
    return {name: stream.uid(name) for name, stream in found.items()}


def of_changes(history: Mapping[str, list[list[Row]]], skipped: int) -> dict[str, list[list[str]]]:
    """Return the changes of some epochs, as texts in order."""
    return {
        name: [sorted(str({**change, "epoch": None}) for change in epoch) for epoch in epochs[skipped:]] for name, epochs in history.items()
    }


def kept(stored: Any, uid: str, spark: SparkSession) -> dict[str, list[str]]:
    return {name: sorted(map(str, rows.collect())) for name, rows in stored.tables(uid, spark).items()}


@pytest.mark.slow
def test_a_job_goes_on_from_a_history_as_from_its_own_past(spark: SparkSession, tmp_path: Path) -> None:
    rows, others, ended = tables()
    whole = Histories(spark, tmp_path / "whole").run(streams(rows, others), max_epochs=len(rows))

    def frame(given: Sequence[Row], schema: str) -> DataFrame:
        return spark.createDataFrame([tuple(each.get(name) for name in schema_names(schema)) for each in given], schema)

    elements = frame([change for epoch in rows[:BEFORE] for change in epoch], CHANGES)
    contents = [frame(list(table.content.values()), schema) for table, schema in zip(ended, (ROWS, OTHERS), strict=True)]
    histories: dict[str, Any] = dict.fromkeys(("added", "newest"), elements)
    histories |= dict.fromkeys(("groups", "top"), contents[0]) | {"pairs": {"left": contents[0], "right": contents[1]}}

    going_on = streams(rows[BEFORE:], others[BEFORE:])
    job = tm.Job("job", outputs={name: tm.memory(stream, name) for name, stream in going_on.items()}, store=str(tmp_path / "store"))
    made = tm.new_savepoint(f"{tmp_path}/made", job, spark=spark)
    for uid in going_on:
        made.bootstrap(job, uid, histories[uid], time="t", watermark=13)
    folder = made.write("from-history")
    import_savepoint(SavepointStore(JobStore.open(str(tmp_path / "restored" / "store-job")), "job"), folder)
    found = Histories(spark, tmp_path / "restored").run(going_on, restore=tm.Restore("from-history"))
    wanted = of_changes(whole, BEFORE)
    for name, changes in of_changes(found, 0).items():
        assert any(wanted[name]), name
        assert changes == wanted[name], name
    stored = [tm.savepoint("job", store=str(tmp_path / folder / "store-job")) for folder in ("whole", "restored")]
    for uid in going_on:
        assert kept(stored[0], uid, spark) == kept(stored[1], uid, spark), uid


def schema_names(schema: str) -> list[str]:
    return [part.split()[0] for part in schema.replace("(38, 10)", "").split(", ")]


def test_a_changelog_has_one_row_for_each_key(spark: SparkSession, tmp_path: Path) -> None:
    rows, others, _ = tables()
    given = streams(rows, others)
    job = tm.Job("job", outputs={name: tm.memory(stream, name) for name, stream in given.items()}, store=str(tmp_path / "store"))
    twice = spark.createDataFrame([(1, 7, "a", 1, None), (2, 7, "b", 1, None)], ROWS)
    made = tm.new_savepoint(f"{tmp_path}/made", job, spark=spark)
    with pytest.raises(DefinitionError, match=r"input 'rows' of 'groups' has the key \{\"id\":7\} more than once") as caught:
        made.bootstrap(job, "groups", twice, time="t")
    assert caught.value.fix == "give the content of the changelog: of each key the newest row"
    untimed = spark.createDataFrame([(1, 7, "a", 1, None), (None, 8, "b", 1, None)], ROWS)
    with pytest.raises(DefinitionError, match=r"no event time in the row of the key \{\"id\":8\}"):
        made.bootstrap(job, "groups", untimed, time="t")
    with pytest.raises(DefinitionError, match="the content of the input 'right' of 'pairs' is not given"):
        made.bootstrap(job, "pairs", {"left": untimed.where("t IS NOT NULL")}, time="t")
