"""Structs in states that have more fields now: the engine and the harness give what is stored with null in these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tidemark.errors import StateMismatchError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.restore import Restore
from tidemark.state.store.store import JobStore
from tidemark.testing import OperatorHarness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = Mapping[str, Any]
RETURNS = "k STRING, seen STRING"
BEFORE, AFTER = "STRUCT<x: INT, deep: ARRAY<STRUCT<p: INT>>>", "STRUCT<y: STRING, deep: ARRAY<STRUCT<p: BIGINT, q: DATE>>, x: BIGINT>"
FIRST, SECOND = [("a", 1, 1), ("b", 2, 0)], [("a", 3, 2), ("b", 4, 2)]


def remembering(ddl: str) -> object:
    class Remembering:
        """Keeps each element in three states, and says what is kept of those before; of v = 0 it keeps null."""

        last = tm.value_state(ddl)
        every = tm.list_state(ddl, ttl=tm.state_ttl("1 day", domain="event"))
        best = tm.reducing_state(ddl, lambda one, other: other or one)
        by_name = tm.map_state("INT" if ddl == BEFORE else "BIGINT", ddl)

        def process(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
            del ctx
            kept = self.last.value(), list(self.every.get()), self.best.get(), dict(self.by_name.items())
            yield {"k": element["k"], "seen": repr(kept)}
            v = element["v"]
            value = {"x": v, "deep": [{"p": 1}, None]} if v else {"x": None, "deep": None}
            self.last.update(value)
            self.every.add(value)
            self.best.add(value)
            self.by_name.put(v, value)

    return Remembering


def declared(ddl: str, epochs: list[list[tuple[str, int, int]]]) -> tm.Stream:
    read = tm.source(
        "e",
        tm.from_elements(epochs=epochs, schema="k STRING, t BIGINT, v BIGINT"),
        watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="t"),
    )
    return read.key_by("k").process(remembering(ddl), returns=RETURNS).uid("w")


def seen(value: object) -> str:
    """Return what the function says when all states hold one value, which is kept by a number."""
    number = 1 if isinstance(value, dict) and value["x"] else 0
    return repr((value, [value], value, {number: value}))


EXPECTED = [
    seen({"y": None, "deep": [{"p": 1, "q": None}, None], "x": 1}),
    seen({"y": None, "deep": None, "x": None}),
]


@pytest.mark.spark
def test_of_a_job(spark: SparkSession, tmp_path: Path) -> None:
    table, store = f"{tmp_path}/out", str(tmp_path / "store")

    def job(ddl: str, epochs: list[list[tuple[str, int, int]]]) -> tm.Job:
        return tm.Job("job", outputs={"out": tm.memory(declared(ddl, epochs), table)}, store=store, parallelism=2)

    tm.run(job(BEFORE, [FIRST]), spark=spark, handle_signals=False)
    SavepointStore(JobStore.open(store), "job").take("first")
    tm.clear_memory(table)
    tm.run(job(AFTER, [FIRST, SECOND]), spark=spark, handle_signals=False, restore=Restore("first"))
    found = tm.memory_table(table)
    assert found is not None
    assert [row["seen"] for row in sorted(found.to_pylist(), key=lambda row: row["k"])] == EXPECTED
    (replayed,) = tm.replay(job(AFTER, [FIRST, SECOND]), "w", key={"k": "a"}, spark=spark)
    assert (replayed.differences, [row["seen"] for _, row in replayed.calls[0].emitted]) == ((), EXPECTED[:1])


@pytest.mark.spark
def test_of_an_epoch_that_another_type_committed(spark: SparkSession, tmp_path: Path) -> None:
    def job(ddl: str) -> tm.Job:
        outputs = {"out": tm.memory(declared(ddl, [FIRST, SECOND]), f"{tmp_path}/out")}
        return tm.Job("job", outputs=outputs, store=str(tmp_path / "store"), parallelism=2)

    tm.run(job(BEFORE), spark=spark, handle_signals=False)
    (replayed,) = tm.replay(job(AFTER), "w", key={"k": "a"}, spark=spark)
    assert [row["seen"] for _, row in replayed.calls[0].emitted] == EXPECTED[:1]
    assert replayed.differences == ()


def test_of_the_harness() -> None:
    before, after, back = (OperatorHarness(declared(ddl, [])) for ddl in (BEFORE, AFTER, BEFORE))
    for k, t, v in FIRST:
        before.process({"k": k, "t": t, "v": v}, at=t)
    before.advance_watermark(2)
    after.restore(before.snapshot())
    for k, t, v in SECOND:
        after.process({"k": k, "t": t, "v": v}, at=t)
    assert [row["seen"] for row in after.advance_watermark(4)] == EXPECTED
    with pytest.raises(StateMismatchError, match="values of the state 'last' in the snapshot do not fit"):
        back.restore(after.snapshot())
