"""Rows that are taken back from groups whose state has expired: of these nothing is taken back, and rows that come begin them again."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

import tidemark as tm
from tests.seeds import only_long
from tidemark.spark.operators.changelog import contents
from tidemark.state.log.progress import EpochProgress
from tidemark.testing import ManualClock, OperatorHarness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "at TIMESTAMP, op STRING, id INT, k STRING, v INT, d DOUBLE, m DECIMAL(12, 2)"
NOW = 1_800_000_000_000
Change = tuple[Any, ...]
Domain = Literal["event", "processing"]


def change(second: int, op: str, number: int, key: str | None, value: int) -> Change:
    return datetime.fromtimestamp(NOW // 1000 + second, UTC), op, number, key, value, value / 2, Decimal(value)


EPOCHS: list[list[Change]] = [
    [change(0, "insert", 1, None, 5), change(0, "insert", 2, None, 8), change(0, "insert", 3, "b", 1)],
    # The groups expire.
    [change(20, "insert", 9, "c", 3)],
    [change(21, "update_before", 1, None, 5), change(21, "update_after", 1, None, 7), change(21, "delete", 3, "b", 1)],
    # Of two rows that the first group had, one came again. As in Flink the other is taken back from it, and nothing is left.
    [change(22, "insert", 4, "b", 2), change(23, "delete", 2, None, 8), change(23, "insert", 10, "c", 4)],
    [change(24, "insert", 5, None, 6)],
    [change(25, "update_before", 5, None, 6), change(25, "update_after", 5, "b", 9)],
]
SUMS = {"n": tm.count(), "total": tm.sum("v"), "halves": tm.sum("d"), "mean": tm.avg("m"), "spread": tm.stddev_pop("d")}
MORE = {"n": tm.count(), "total": tm.sum("v"), "most": tm.max("v"), "vs": tm.collect_list("v"), "kinds": tm.count_distinct("v")}


def changes() -> tm.Stream:
    rows = tm.source("rows", tm.from_elements(epochs=EPOCHS, schema=SCHEMA), watermarks=tm.ascending(timestamp="at"))
    return rows.as_changelog(key=["id"], operation="op")


def of_values(kind: str, values: list[int]) -> tuple[object, ...]:
    """Return the results of a group with these values, in the order in which they came."""
    n, total = len(values), sum(values)
    if kind == "more":
        return n, total, max(values), values, len(set(values))
    mean = total / n
    return n, total, total / 2, Decimal(total) / n, (sum((value / 2 - mean / 2) ** 2 for value in values) / n) ** 0.5


WANTED: list[tuple[int, str, str | None, list[int]]] = [
    (0, "insert", None, [5, 8]),
    (0, "insert", "b", [1]),
    (1, "insert", "c", [3]),
    (2, "insert", None, [7]),
    (3, "insert", "b", [2]),
    (3, "delete", None, [7]),
    (3, "update", "c", [3, 4]),
    (4, "insert", None, [6]),
    (5, "delete", None, [6]),
    (5, "update", "b", [2, 9]),
]


@pytest.mark.spark
@pytest.mark.parametrize(("domain", "kind"), [("event", "sums"), ("processing", "more"), pytest.param("event", "more", marks=only_long)])
def test_nothing_is_taken_back_from_groups_without_state(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, domain: Domain, kind: str
) -> None:
    if domain == "processing":
        # Only the groups are read that rows are taken back from.
        monkeypatch.setattr(contents, "MANY_ROWS", 0)
    aggregates = SUMS if kind == "sums" else MORE
    made = changes().key_by("k").aggregate(ttl=tm.state_ttl("10 seconds", domain=domain), **aggregates).uid("made")
    clock, keys = ManualClock(NOW), list[int]()

    def after(epoch: EpochProgress) -> None:
        clock.advance(1_000 if keys else 20_000)
        keys.append(epoch.operators["made"].keys)

    job = tm.Job("expired", outputs={"made": tm.memory(made, f"{tmp_path}/made")}, store=str(tmp_path / "store"))
    tm.run(job, spark=spark, clock=clock, handle_signals=False, on_epoch=after)
    table = tm.memory_table(f"{tmp_path}/made")
    assert table is not None
    found = [tuple(row.values()) for row in table.select(["epoch", "operation", "k", *aggregates]).to_pylist()]
    wanted = [(epoch, operation, key, *of_values(kind, values)) for epoch, operation, key, values in WANTED]
    assert sorted(found, key=str) == sorted(wanted, key=str)
    assert keys[-3:] == [2, 3, 2]


def test_the_harness_begins_an_expired_group_again() -> None:
    harness = OperatorHarness(changes().key_by("k").aggregate(ttl=tm.state_ttl("10 seconds", domain="event"), **MORE).uid("more"))
    shown = []
    for number, epoch in enumerate([*EPOCHS[:3], EPOCHS[3][:1]]):
        for at, op, *values in epoch:
            row = dict(zip(("id", "k", "v", "d", "m"), values, strict=True))
            harness.process({**row, "op": op, "at": at}, at=at, operation=op)
        emitted = harness.advance_watermark(int(epoch[-1][0].timestamp() * 1000) - 1)
        shown += [(number, row["operation"], row["k"], row["n"], row["vs"]) for row in emitted]
    assert sorted(shown, key=str) == sorted(
        ((epoch, operation, key, len(values), values) for epoch, operation, key, values in WANTED[:5]), key=str
    )
