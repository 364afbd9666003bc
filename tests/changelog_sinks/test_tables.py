"""Changelogs in tables: at each epoch's end an upserted one has the rows that are there, a history all changes, versions their times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import tidemark as tm
from tests.seeds import new_seeds
from tidemark.state.log.progress import EpochProgress
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = (None, "a", "b", "c", "d")
SCHEMA = "k STRING, v INT, tags MAP<STRING, INT>, op STRING, t BIGINT"
START = 1_700_000_000_000
Change = dict[str, Any]
Contents = dict[str | None, int]


def changes(random: Random, epochs: int) -> Iterator[list[Change]]:
    """Yield random changes epoch by epoch, each with the row before: several of a key in one epoch, and such that cancel out."""
    contents: Contents = {}
    time = 0
    for _ in range(epochs):
        found: list[Change] = []
        for _ in range(random.randint(1, 8)):
            key, time = random.choice(KEYS), time + 1
            value = random.choice([1, 2, 3, None])
            if key not in contents:
                found.append({"k": key, "v": value, "op": "insert", "t": time})
                contents[key] = value  # type: ignore[assignment]
            elif random.random() < 0.4:
                found.append({"k": key, "v": contents.pop(key), "op": "-D", "t": time})
            else:
                found.append({"k": key, "v": contents[key], "op": "update_before", "t": time})
                found.append({"k": key, "v": value, "op": "+U", "t": time + 1})
                contents[key], time = value, time + 1  # type: ignore[assignment]
        yield [{**each, "tags": {"n": each["v"] or 0}} for each in found]


def applied(contents: Contents, found: list[Change]) -> Contents:
    """Return the contents after changes."""
    after = dict(contents)
    for each in found:
        if each["op"] in ("insert", "+U"):
            after[each["k"]] = each["v"]
        else:
            after.pop(each["k"], None)
    return after


def operations(before: Contents, after: Contents) -> list[tuple[str | None, int | None, str]]:
    """Return the net changes between two contents, as a history has them."""
    found = []
    for key in before.keys() | after.keys():
        if key not in before:
            found.append((key, after[key], "insert"))
        elif key not in after:
            found.append((key, before[key], "delete"))
        elif before[key] != after[key]:
            found.append((key, after[key], "update"))
    return sorted(found, key=repr)


class Versions:
    """The versions of rows, kept one change after the other."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def apply(self, before: Contents, after: Contents, now: int) -> None:
        """Apply the changes of an epoch."""
        for key, value, operation in operations(before, after):
            for row in self.rows:
                if row["k"] == key and row["to"] is None:
                    row["to"] = now
            if operation != "delete":
                self.rows.append({"k": key, "v": value, "from": now, "to": None})


def read(path: Path, *columns: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table in order."""
    rows = DeltaTable(str(path)).to_pyarrow_table(columns=list(columns)).to_pylist()
    return sorted((tuple(row[name] for name in columns) for row in rows), key=repr)


def instant(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


@pytest.mark.spark
@pytest.mark.parametrize("seed", new_seeds("changelogs in tables"))
def test_tables_hold_what_the_changelog_says(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    given = list(changes(Random(seed), 6))
    rows = tm.source("rows", tm.from_elements(epochs=given, schema=SCHEMA), watermarks=tm.ascending(timestamp="t"))
    log = rows.as_changelog(["k"], operation="op").select("k", "v", "tags")
    few = log.filter("v >= 2")
    job = tm.Job(
        f"tables-{seed}",
        {
            "rows": tm.delta(log, str(tmp_path / "rows"), mode="upsert"),
            "few": tm.delta(few, str(tmp_path / "few"), mode="upsert", keys=["K"]),
            "history": tm.delta(few, str(tmp_path / "history")),
            "versions": tm.delta(few, str(tmp_path / "versions"), mode="scd2"),
            "files": tm.parquet(log, str(tmp_path / "files")),
        },
        store=str(tmp_path / "store"),
    )
    clock, contents, versions = ManualClock(START), Contents(), Versions()
    history: list[tuple[Any, ...]] = []

    def check(ran: EpochProgress) -> None:
        nonlocal contents, history
        after, epoch = applied(contents, given[ran.epoch]), ran.epoch
        before_few, after_few = visible(contents), visible(after)
        net = operations(before_few, after_few)
        history += [(key, value, operation, epoch) for key, value, operation in net]
        assert read(tmp_path / "rows", "k", "v") == sorted(after.items(), key=repr)
        assert read(tmp_path / "few", "k", "v") == sorted(after_few.items(), key=repr)
        assert read(tmp_path / "history", "k", "v", "operation", "epoch") == sorted(history, key=repr)
        counted = Counter(operation for _, _, operation in net)
        assert ran.outputs["history"].changes == {name: counted[name] for name in ("insert", "update", "delete")}
        versions.apply(before_few, after_few, clock.now_ms())
        wanted = [(row["k"], row["v"], instant(row["from"]), instant(row["to"])) for row in versions.rows]
        assert read(tmp_path / "versions", "k", "v", "valid_from", "valid_to") == sorted(wanted, key=repr)
        contents = after
        clock.advance(1_000)

    assert len(tm.run(job, spark=spark, clock=clock, on_epoch=check, handle_signals=False).epochs) == len(given)
    columns = {name: DeltaTable(str(tmp_path / name)).schema().to_arrow().names for name in ("rows", "history", "versions")}
    assert columns == {
        "rows": ["k", "v", "tags"],
        "history": ["k", "v", "tags", "operation", "epoch"],
        "versions": ["k", "v", "tags", "valid_from", "valid_to"],
    }
    files = pq.read_table(tmp_path / "files", columns=["operation"])["operation"].to_pylist()
    assert files.count("insert") - files.count("delete") == len(contents)


def visible(contents: Mapping[str | None, int | None]) -> Contents:
    """Return what a filter lets pass."""
    return {key: value for key, value in contents.items() if value is not None and value >= 2}


@pytest.mark.spark
def test_versions_that_come_late_are_put_between_those_there(spark: SparkSession, tmp_path: Path) -> None:
    random = Random(7)
    schema = "k STRING, at TIMESTAMP, v INT, t BIGINT"
    given: list[list[dict[str, Any]]] = [
        [
            {"k": random.choice([None, "a", "b"]), "at": instant(START + 1_000 * random.randint(0, 6)), "v": random.randint(0, 9), "t": n}
            for n in range(random.randint(1, 4))
        ]
        for _ in range(5)
    ]
    rows = tm.source("rows", tm.from_elements(epochs=given, schema=schema), watermarks=tm.ascending(timestamp="t"))
    table = tm.delta(rows.select("k", "at", "v"), str(tmp_path / "versions"), mode="scd2", keys=["k"], sequence="at")
    job = tm.Job("late-versions", {"versions": table}, store=str(tmp_path / "store"))
    known: dict[Any, dict[Any, int]] = {}

    def check(epoch: EpochProgress) -> None:
        for each in given[epoch.epoch]:
            known.setdefault(each["k"], {})[each["at"]] = each["v"]
        wanted = []
        for key, times in known.items():
            begun = sorted(times)
            wanted += [(key, times[at], at, end) for at, end in zip(begun, [*begun[1:], None], strict=True)]
        assert read(tmp_path / "versions", "k", "v", "valid_from", "valid_to") == sorted(wanted, key=repr)

    assert len(tm.run(job, spark=spark, on_epoch=check, handle_signals=False).epochs) == len(given)
