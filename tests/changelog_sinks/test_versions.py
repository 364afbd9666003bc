"""Versions of a changelog's rows: those without an end are its content, whatever the times from which rows are valid."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

import tidemark as tm
from tidemark.state.log.progress import EpochProgress
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = 1_700_000_000_000
SCHEMA = "t BIGINT, op STRING, k STRING, v INT, at TIMESTAMP"
EPOCHS = 7
Row = tuple[int, int]
"""A value, and the time from which it is valid, seconds after the start."""


def instant(seconds: int) -> datetime:
    return datetime.fromtimestamp(START / 1000 + seconds, UTC)


@dataclass
class Line:
    """What a key's row was at each second: the last statement about a second counts. ``None`` means that there was no row."""

    seconds: dict[int, int | None] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)
    last: int = 60

    def state(self, value: int, since: int) -> None:
        """Say that a row is there from a time on."""
        self.begun = {each for each in self.begun if each < since} | {since}
        self.seconds |= dict.fromkeys(range(since, self.last + 1), value)

    def delete(self, now: int) -> None:
        """Say that there is no row from now on, as far as it was there; one that begins later never was."""
        until = max(now, *self.begun)
        self.begun = {each for each in self.begun if each < until}
        self.seconds |= dict.fromkeys(range(until, self.last + 1), None)

    def versions(self) -> list[tuple[int, int, int | None]]:
        """Return each run of seconds with a row, cut where a version begins: the value, the first second, and the one after its last."""
        found: list[tuple[int, int, int | None]] = []
        for second in range(self.last + 1):
            value = self.seconds.get(second)
            if value is None:
                continue
            if found and second not in self.begun and self.seconds.get(second - 1) is not None:
                found[-1] = (found[-1][0], found[-1][1], second + 1)
            else:
                found.append((value, second, second + 1))
        return [(value, since, None if end == self.last + 1 else end) for value, since, end in found]


KEYS = [None, *"abcdefghijklmno"]


def programs(random: Random) -> list[list[tuple[str, str | None, Row]]]:
    """Return changes by epoch: with times before and after the processing time, equal ones, and such that go back."""
    there: dict[str | None, Row] = {}
    # The worst cases: deleted and inserted from before the deletion on; deleted before it begins; deleted at the time of the insert.
    epochs: list[list[tuple[str, str | None, Row]]] = [
        [("insert", "again", (1, 1)), ("insert", "future", (1, 30)), ("insert", "same", (1, 0))],
        [("delete", "again", (1, 1)), ("delete", "future", (1, 30)), ("delete", "same", (1, 0))],
        [("insert", "again", (2, 2)), ("insert", "future", (2, 25))],
    ]
    epochs += [[] for _ in range(EPOCHS - len(epochs))]
    for number, changes in enumerate(epochs):
        for key in KEYS:
            row = (10 * number + random.randrange(9), max(0, 2 * number + random.randint(-6, 8)))
            if key not in there and random.random() < 0.7:
                changes.append(("insert", key, row))
                there[key] = row
            elif key in there and random.random() < 0.4:
                changes.append(("delete", key, there.pop(key)))
            elif key in there and random.random() < 0.6:
                changes += [("update_before", key, there[key]), ("update_after", key, row)]
                there[key] = row
    return epochs


@pytest.mark.spark
def test_versions_without_an_end_are_the_content(spark: SparkSession, tmp_path: Path) -> None:
    epochs = programs(Random(3))
    given = [
        [(100 * number + n, op, key, value, instant(at)) for n, (op, key, (value, at)) in enumerate(changes)]
        for number, changes in enumerate(epochs)
    ]
    rows = tm.source("rows", tm.from_elements(epochs=given, schema=SCHEMA), watermarks=tm.ascending(timestamp="t"))
    log = rows.as_changelog(["k"], operation="op").select("k", "v", "at")
    outputs = {
        "named": tm.delta(log, str(tmp_path / "named"), mode="scd2", sequence="at"),
        "clocked": tm.delta(log, str(tmp_path / "clocked"), mode="scd2"),
    }
    job = tm.Job("versions", outputs, store=str(tmp_path / "store"))
    clock, lines = ManualClock(START), {name: dict[str | None, Line]() for name in outputs}
    content: dict[str | None, int] = {}
    checked: list[int] = []

    def after(epoch: EpochProgress) -> None:
        number, now = epoch.epoch, (clock.now_ms() - START) // 1_000
        for op, key, (value, at) in epochs[number]:
            if op == "delete":
                del content[key]
            elif op != "update_before":
                content[key] = value
            for name, since in (("named", at), ("clocked", now)):
                line = lines[name].setdefault(key, Line())
                if op == "delete":
                    line.delete(now)
                elif op != "update_before":
                    line.state(value, since)
        for name in outputs:
            check(tmp_path / name, lines[name], content)
        checked.append(number)
        # Some epochs have the processing time of the one before.
        clock.set(START + 2_000 * ((number + 1) // 2))

    tm.run(job, spark=spark, clock=clock, on_epoch=after, handle_signals=False)
    assert checked == list(range(EPOCHS))


def check(path: Path, lines: dict[str | None, Line], content: dict[str | None, int]) -> None:
    """Compare a table with what is known of each key."""
    found: dict[str | None, list[tuple[datetime, datetime | None, int]]] = {}
    for row in DeltaTable(str(path)).to_pyarrow_table().to_pylist():
        found.setdefault(row["k"], []).append((row["valid_from"], row["valid_to"], row["v"]))
    assert {key: value for key, rows in found.items() for _, end, value in rows if end is None} == content
    assert sum(end is None for rows in found.values() for _, end, _ in rows) == len(content)
    for key, line in lines.items():
        versions = sorted(found.get(key, []), key=lambda each: each[0])
        assert all(before[1] is not None and before[1] <= after[0] for before, after in pairwise(versions)), (key, versions)
        wanted = [(instant(since), None if end is None else instant(end), value) for value, since, end in line.versions()]
        assert versions == wanted, key
