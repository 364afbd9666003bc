"""Aggregates of aggregates, steps between them, and lifetimes of groups."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.group_aggregate.test_contents import run
from tests.group_aggregate.worlds import World, alike, changelog, fold, grouped, some
from tidemark.state.log.progress import EpochProgress
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _most(world: World, epoch: int, least: int) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the mean, per second key, of the greatest number of each group that is not below a bound."""
    categories: dict[Any, list[int]] = {}
    for (_, category), rows in grouped(world.contents[epoch].values(), ["g", "h"]).items():
        values = some(rows, "i")
        if values and max(values) >= least:
            categories.setdefault((category,), []).append(max(values))
    return {key: {"mean": sum(values) / len(values), "n": len(values)} for key, values in categories.items()}


@pytest.mark.spark
def test_an_aggregate_of_aggregates_with_a_filter_between(spark: SparkSession, tmp_path: Path) -> None:
    world = World(random.Random(8)).run(changes=240, cuts=3)
    # Columns that are named as those of state are.
    rows = changelog(world).with_columns(key_h="0", of_id="0", most__value="0", newest__end="0")
    most = rows.key_by("g", "h").aggregate(most=tm.max("i"), newest=tm.last("s")).uid("most")
    means = (
        most.filter("most >= 0").with_columns(twice="2 * most").key_by("h").aggregate(mean=tm.avg("twice / 2"), n=tm.count()).uid("means")
    )
    run({"means": tm.memory(means, f"{tmp_path}/means")}, tmp_path, spark, 2)
    table = tm.memory_table(f"{tmp_path}/means")
    assert table is not None
    for epoch in range(len(world.contents)):
        found, wanted = fold(table.to_pylist(), ["h"], epoch), _most(world, epoch, 0)
        assert set(found) == set(wanted)
        for key, values in wanted.items():
            assert all(alike(found[key][name], value) for name, value in values.items()), (epoch, key, found[key], values)


SCHEMA = "at TIMESTAMP, id INT, k STRING, v INT"


def _at(seconds: int) -> datetime:
    return datetime.fromtimestamp(1_700_000_000 + seconds, UTC)


def _shown(name: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    table = tm.memory_table(name)
    assert table is not None
    return sorted(tuple(row[column] for column in ("epoch", "operation", *columns)) for row in table.to_pylist())


@pytest.mark.spark
def test_expired_groups_begin_again_and_are_not_deleted(spark: SparkSession, tmp_path: Path) -> None:
    epochs = [
        [(_at(0), 1, "a", 5), (_at(0), 2, "b", 1)],
        [(_at(8), 3, "b", 2)],
        [(_at(15), 4, "c", 7)],
        [(_at(16), 5, "a", 6), (_at(16), 6, "b", 3)],
    ]
    rows = tm.source("rows", tm.from_elements(epochs=epochs, schema=SCHEMA), watermarks=tm.ascending(timestamp="at"))
    ttl, results = tm.state_ttl("10 seconds", domain="event"), {"n": tm.count(), "most": tm.max("v"), "vs": tm.collect_list("v")}
    made = {
        "grown": rows.key_by("k").aggregate(ttl=ttl, **results).uid("grown"),
        "changed": rows.as_changelog(key=["id"]).key_by("k").aggregate(ttl=ttl, **results).uid("changed"),
    }
    outputs = {name: tm.memory(stream, f"{tmp_path}/{name}") for name, stream in made.items()}
    expired: list[int] = []
    job = tm.Job("lives", outputs=outputs, store=str(tmp_path / "store"))
    tm.run(
        job,
        spark=spark,
        clock=ManualClock(1_800_000_000_000),
        handle_signals=False,
        on_epoch=lambda epoch: expired.append(epoch.operators["changed"].keys_expired),
    )
    wanted = [
        (0, "insert", "a", 1, 5, [5]),
        (0, "insert", "b", 1, 1, [1]),
        (1, "update", "b", 2, 2, [1, 2]),
        (2, "insert", "c", 1, 7, [7]),
        (3, "insert", "a", 1, 6, [6]),
        (3, "update", "b", 3, 3, [1, 2, 3]),
    ]
    for name in made:
        assert _shown(f"{tmp_path}/{name}", ["k", "n", "most", "vs"]) == wanted, name
    assert expired[:4] == [0, 0, 1, 0]


@pytest.mark.spark
def test_a_lifetime_that_is_added_later_reaches_the_groups_that_are_there(spark: SparkSession, tmp_path: Path) -> None:
    first = [[(_at(0), 1, "a", 5), (_at(0), 2, "b", 1)]]
    later = [[(_at(5), 3, "b", 1)], [(_at(12), 4, "b", 1)], [(_at(16), 5, "c", 1)], [(_at(17), 6, "a", 6), (_at(17), 7, "b", 1)]]
    clock, expired = ManualClock(1_800_000_000_000), dict[str, list[int]](event=[], processing=[])

    def after(epoch: EpochProgress) -> None:
        clock.advance(4_000)
        for name, counts in expired.items():
            counts.append(epoch.operators[name].keys_expired)

    for epochs, ttl in (
        (first, {}),
        (first + later, {name: tm.state_ttl("10 seconds", domain="event" if name == "event" else "processing") for name in expired}),
    ):
        rows = tm.source("rows", tm.from_elements(epochs=epochs, schema=SCHEMA), watermarks=tm.ascending(timestamp="at"))
        made = {name: rows.key_by("k").aggregate(ttl=ttl.get(name), n=tm.count(), vs=tm.collect_list("v")).uid(name) for name in expired}
        outputs = {name: tm.memory(stream, f"{tmp_path}/{name}") for name, stream in made.items()}
        job = tm.Job("grown", outputs=outputs, store=str(tmp_path / "store"))
        tm.run(job, spark=spark, clock=clock, handle_signals=False, on_epoch=after)
    for name in expired:
        last = [row for row in _shown(f"{tmp_path}/{name}", ["k", "n", "vs"]) if row[0] == 4]
        assert last == [(4, "insert", "a", 1, [6]), (4, "update", "b", 4, [1, 1, 1, 1])], name
    assert expired == {"event": [0, 0, 0, 1, 0], "processing": [0, 0, 0, 0, 1]}
