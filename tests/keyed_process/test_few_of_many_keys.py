"""Epochs that touch a few of many keys look up the state of these, and of keys that are due; the results are the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

import tidemark as tm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = 40
EPOCHS: list[list[tuple[str | None, int, int]]] = [
    [(f"k{number}", number, 1) for number in range(KEYS)] + [(None, 3, 1)],
    [("k7", 60, 5), ("k9", 61, 5)],
    [("k3", 110, 7), (None, 111, 9)],
    [("new", 1_000, 1)],
    [("k9", 1_010, 1), ("k3", 1_011, 1)],
]
"""The third and the fourth reach timers of keys without elements."""


class TotalLater:
    """Adds up; gives the total a while after the newest element, and drops it."""

    total = tm.value_state("BIGINT", default=0)
    seen = tm.map_state("BIGINT", "STRUCT<at: BIGINT>")

    def process(self, element: Mapping[str, Any], ctx: tm.ProcessContext) -> Iterator[Mapping[str, object]]:
        self.total.update(self.total.value() + element["v"])
        self.seen.put(element["t"], {"at": ctx.timestamp})
        ctx.timer_service().register_event_time_timer(ctx.timestamp + 100, name="silence")
        yield {"k": element["k"], "at": ctx.timestamp, "total": self.total.value(), "seen": len(list(self.seen.keys()))}

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> Iterator[Mapping[str, object]]:
        yield {"k": ctx.current_key["k"], "at": timestamp, "total": -self.total.value(), "seen": len(list(self.seen.keys()))}
        self.total.clear()
        self.seen.clear()


def run(spark: SparkSession, folder: Path) -> tuple[list[tuple[Any, ...]], list[int | None]]:
    """Return the results, and the number of keys after each epoch."""
    given = tm.from_elements(epochs=EPOCHS, schema="k STRING, t BIGINT, v BIGINT")
    source = tm.source("rides", given, watermarks=tm.ascending(timestamp="t"))
    totals = source.key_by("k").process(TotalLater(), returns="k STRING, at BIGINT, total BIGINT, seen BIGINT").uid("totals")
    job = tm.Job("totals", outputs={"totals": tm.memory(totals, str(folder))}, store=f"{folder}/store", parallelism=3)
    keys: list[int | None] = []
    tm.run(job, spark=spark, on_epoch=lambda progress: keys.append(progress.operators["totals"].keys), max_epochs=len(EPOCHS))
    table = tm.memory_table(str(folder))
    assert table is not None
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr), keys


@pytest.fixture(scope="module")
def passed_all(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[tuple[Any, ...]], list[int | None]]:
    return run(spark, tmp_path_factory.mktemp("all"))


def test_timers_fire_where_a_key_has_no_element(passed_all: tuple[list[tuple[Any, ...]], list[int | None]]) -> None:
    results, keys = passed_all
    fired = {row[0]: row for row in results if row[2] < 0}
    assert len(fired) == KEYS + 1
    assert fired["k7"] == ("k7", 160, -6, 2)
    assert fired["k20"] == ("k20", 120, -1, 1)
    assert keys[0] == KEYS + 1
    assert keys[-1] == 3


def test_looked_up_keys_give_the_same(
    spark: SparkSession, tmp_path: Path, passed_all: tuple[list[tuple[Any, ...]], list[int | None]]
) -> None:
    with mock.patch("tidemark.spark.operators.keyed.packed_input.FEW_ROWS", -1):
        assert run(spark, tmp_path) == passed_all


def test_elements_meet_the_state_of_their_keys_where_the_session_changes_its_parallelism(
    spark: SparkSession, tmp_path: Path, passed_all: tuple[list[tuple[Any, ...]], list[int | None]]
) -> None:
    setting = "spark.sql.shuffle.partitions"
    before = str(spark.conf.get(setting))
    crash_point = "tidemark.spark.operators.keyed_process.runtime.crash_point"
    try:
        with mock.patch(crash_point, side_effect=lambda _: spark.conf.set(setting, "2")) as staged:
            assert run(spark, tmp_path) == passed_all
    finally:
        spark.conf.set(setting, before)
    assert staged.called
