"""Maps are dicts to the user's functions, in elements and in states, in the engine as in the harness."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import tidemark as tm
from tidemark.spark.operators.keyed.python_values import python_rows, python_values
from tidemark.testing import OperatorHarness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT = datetime(2025, 1, 6, tzinfo=UTC)
SCHEMA = "id INT, cart MAP<STRING, INT>, deep ARRAY<STRUCT<m: MAP<INT, MAP<STRING, INT>>>>, at TIMESTAMP"
ROWS = [(1, {"tea": 2}, [{"m": {1: {"x": 1}}}, None], AT), (2, None, None, AT)]
SEEN = [repr(({"tea": 2}, [{"m": {1: {"x": 1}}}, None])), repr((None, None))]
RETURNS = "seen STRING, cart MAP<STRING, INT>"

Row = Mapping[str, Any]


def seen(element: Row) -> dict[str, object]:
    return {"seen": repr((element["cart"], element["deep"])), "cart": element["cart"]}


class Counts:
    """Counts the elements of a key in a map within a value, and in a map state of maps."""

    last = tm.value_state("MAP<STRING, INT>")
    by_id = tm.map_state("INT", "MAP<STRING, INT>")

    def process(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        before = self.last.value() or {}
        stored = self.by_id.get(element["id"]) or {}
        now = {"n": before.get("n", 0) + 1}
        self.last.update(now)
        self.by_id.put(element["id"], {"n": stored.get("n", 0) + 1})
        assert self.last.value() == self.by_id.get(element["id"]) == now
        yield {**seen(element), "seen": f"{seen(element)['seen']} {now} {ctx.current_key}"}


async def asked(element: Row) -> Row:
    return seen(element)


def rows() -> tm.Stream:
    return tm.source("rows", tm.from_elements(epochs=[ROWS, ROWS], schema=SCHEMA), watermarks=tm.ascending(timestamp="at"))


@pytest.mark.spark
def test_functions_see_dicts_in_elements_and_states(spark: SparkSession, tmp_path: Path) -> None:
    given, day = rows(), tm.tumbling("1 day")
    outputs = {
        "keyed": given.key_by("id").process(Counts(), returns=RETURNS).uid("keyed"),
        "mapped": given.map(seen, returns=RETURNS),
        "processed": given.process(lambda element, _: [seen(element)], returns=RETURNS),
        "asked": given.async_map(asked, returns=RETURNS, timeout="1 minute").uid("asked"),
        "window": given.key_by("id").window(day).process(lambda found, _: map(seen, found), returns=RETURNS).uid("window"),
    }
    job = tm.Job("maps", {name: tm.memory(each, f"{tmp_path}/{name}") for name, each in outputs.items()}, store=str(tmp_path / "store"))
    tm.run(job, spark=spark, end_of_input=True, handle_signals=False)
    made = {name: tm.memory_table(f"{tmp_path}/{name}") for name in outputs}
    found = {name: each.to_pylist(maps_as_pydicts="strict") for name, each in made.items() if each is not None}
    assert {name: sorted(row["seen"] for row in each) for name, each in found.items() if name != "keyed"} == dict.fromkeys(
        ("mapped", "processed", "asked", "window"), sorted(SEEN * 2)
    )
    keyed = [f"{text} {{'n': {n}}} {{'id': {number}}}" for number, text in enumerate(SEEN, 1) for n in (1, 2)]
    assert sorted(row["seen"] for row in found["keyed"]) == sorted(keyed)
    assert all(row["cart"] == ({"tea": 2} if "tea" in row["seen"] else None) for each in found.values() for row in each)


def test_the_harness_shows_dicts() -> None:
    harness = OperatorHarness(rows().key_by("id").process(Counts(), returns=RETURNS).uid("keyed"))
    for number, cart, deep, at in ROWS * 2:
        harness.process({"id": number, "cart": cart, "deep": deep, "at": at}, at=at)
    assert [row["cart"] for row in harness.advance_watermark(AT)] == [{"tea": 2}, {"tea": 2}, None, None]
    assert harness.state() == [{"id": 1, "last": {"n": 2}, "by_id": {1: {"n": 2}}}, {"id": 2, "last": {"n": 2}, "by_id": {2: {"n": 2}}}]


def test_maps_whose_keys_python_cannot_look_up_are_pairs() -> None:
    odd = pa.map_(pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int64()))
    column = pa.array([[({"a": 1}, {"k": 2})], None, []], odd)
    assert python_values(column) == [[({"a": 1}, {"k": 2})], None, []]
    plain = pa.array([{"a": 1}, None, {}], pa.map_(pa.string(), pa.int64()))
    batch = pa.RecordBatch.from_arrays([column, plain, pa.array([1, 2, 3])], names=["odd", "plain", "n"])
    assert python_rows(batch)[0] == {"odd": [({"a": 1}, {"k": 2})], "plain": {"a": 1}, "n": 1}
    assert [row["plain"] for row in python_rows(batch)] == [{"a": 1}, None, {}]
