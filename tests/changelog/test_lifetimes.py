"""Lifetimes of the best rows of groups: groups without rows leave the state, and what was emitted stays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

import tidemark as tm
from tests.changelog.changes import Histories, Row, sorted_rows
from tests.seeds import PROFILE, only_long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TTL_MS = 10
EPOCHS = 6 if PROFILE == "long" else 4
FOR_EVER = -(10**9)
SCHEMA = "t BIGINT, op STRING, g INT, id INT, v INT"


@dataclass
class Groups:
    """The rows of groups, each of which lives for some time after a row came into it; rows by their key."""

    n: int
    by_place: bool
    keeps_all: bool
    rows: dict[int, dict[Any, Row]] = field(default_factory=dict)
    renewed: dict[int, int] = field(default_factory=dict)
    expired: int = 0

    def process(self, changes: Sequence[Row], before: int) -> list[tuple[str, Row]]:
        """Return the net changes of the best rows; ``before`` is the watermark of the epoch before."""
        self.drop(before, only={row["g"] for row in changes})
        was = self.best()
        for row in [{name: value for name, value in each.items() if name != "t"} for each in changes]:
            members = self.rows.setdefault(row["g"], {})
            if row.pop("op") in ("insert", "update_after"):
                members[row["id"]] = row
                self.renewed[row["g"]] = FOR_EVER
            else:
                members.pop(row["id"], None)
        now = self.best()
        if not self.keeps_all:
            self.rows = {group: {row["id"]: row for (of, _), row in now.items() if of == group} for group in self.rows}
        found = [("insert" if key not in was else "update", row) for key, row in now.items() if was.get(key) != row]
        return found + [("delete", row) for key, row in was.items() if key not in now]

    def end(self, watermark: int) -> None:
        """Have the groups that rows came into live from the watermark on."""
        self.renewed = {group: watermark if at == FOR_EVER else at for group, at in self.renewed.items()}

    def drop(self, now: int, only: Iterable[int] | None = None) -> None:
        """Drop the groups whose time is over."""
        for group in self.rows if only is None else only:
            if group in self.renewed and self.renewed[group] + TTL_MS <= now:
                self.expired += len(self.rows.get(group, {}))
                self.rows[group] = {}
                del self.renewed[group]

    def best(self) -> dict[Any, Row]:
        """Return the best rows, by group and key, or group and place."""
        found: dict[Any, Row] = {}
        for group, members in self.rows.items():
            for place, row in enumerate(sorted(members.values(), key=lambda row: (row["v"], row["id"]))[: self.n], 1):
                found[group, place if self.by_place else row["id"]] = {**row, "place": place} if self.by_place else row
        return found


def program(seed: int, *, deletes: bool) -> list[list[Row]]:
    """Return changes by epoch: groups that are silent for long, and keys that come once or are deleted."""
    drawn, rows, number, time = Random(seed), dict[int, Row](), 0, 0
    epochs = []
    for _ in range(EPOCHS):
        time += drawn.choice([1, 3, 5, 9])
        changes: list[Row] = []
        for group in drawn.sample(range(8), drawn.choice([1, 2, 4])):
            for _ in range(drawn.choice([1, 2, 5])):
                mine = [row for row in rows.values() if row["g"] == group and not any(row["id"] == each["id"] for each in changes)]
                if deletes and mine and drawn.random() < 0.5:
                    gone = rows.pop(drawn.choice(mine)["id"])
                    if drawn.random() < 0.5:
                        changes.append({**gone, "op": "delete", "t": time})
                        continue
                    changed = {**gone, "v": drawn.randrange(30)}
                    changes += [{**gone, "op": "update_before", "t": time}, {**changed, "op": "update_after", "t": time}]
                    rows[gone["id"]] = changed
                    continue
                number += 1
                rows[number] = {"g": group, "id": number, "v": drawn.randrange(30)}
                changes.append({**rows[number], "op": "insert", "t": time})
        epochs.append(changes)
    return epochs


def stream(name: str, epochs: Sequence[Sequence[Row]]) -> tm.Stream:
    names = [part.split()[0] for part in SCHEMA.split(", ")]
    given = tm.from_elements(epochs=[[tuple(row[name] for name in names) for row in rows] for rows in epochs], schema=SCHEMA)
    return tm.source(name, given, watermarks=tm.ascending(timestamp="t"))


def shown(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> list[Row]:
    return sorted_rows({name: row[name] for name in (*names, "operation")} for row in rows)


@pytest.mark.parametrize(("parallelism", "limit"), [pytest.param(1, 200_000, marks=only_long), (7, -1)])
def test_groups_without_rows_expire(spark: SparkSession, tmp_path: Path, parallelism: int, limit: int) -> None:
    # Few epochs see groups expire with few seeds only.
    seeds = (parallelism, parallelism + 10) if PROFILE == "long" else (420, 420)
    inserted, changed = program(seeds[0], deletes=False), program(seeds[1], deletes=True)
    ttl = tm.state_ttl("10 milliseconds", domain="event")
    elements, rows = stream("elements", inserted), stream("rows", changed).as_changelog(key=["id"], operation="op")
    streams = {
        "places": elements.select("g", "id", "v").top_n(3, by=["g"], order="v, id", rank="place", ttl=ttl).uid("places"),
        "keys": elements.select("g", "id", "v").top_n(3, by=["g"], order="v, id", key=["id"], ttl=ttl).uid("keys"),
        "all": rows.select("g", "id", "v").top_n(3, by=["g"], order="v, id", ttl=ttl).uid("all"),
    }
    runs = Histories(spark, tmp_path)
    with (
        mock.patch("tidemark.spark.operators.changelog.pairs.MANY_ROWS", limit),
        mock.patch("tidemark.spark.operators.changelog.contents.MANY_ROWS", limit),
    ):
        histories = runs.run(streams, parallelism=parallelism)
    progresses = [epoch.operators for epoch in runs.result.epochs]
    saved = tm.savepoint("job", store=str(tmp_path / "store-job"))
    for name, history in histories.items():
        groups, before = Groups(3, by_place=name == "places", keeps_all=name == "all"), -(10**6)
        for number, given in enumerate(changed if name == "all" else inserted):
            expected = [{**row, "operation": operation} for operation, row in groups.process(given, before)]
            before = max([before, *(row["t"] - 1 for row in given)])
            groups.end(before)
            names = ["g", "id", "v", "place"] if name == "places" else ["g", "id", "v"]
            assert shown(history[number], names) == shown(expected, names), (name, number)
        groups.drop(before)
        left = sorted((row["g"], row["id"]) for members in groups.rows.values() for row in members.values())
        stored = saved.tables(name, spark)["rows"].collect()
        assert sorted((row["g"], row["id"]) for row in stored) == left
        # What has expired is counted when it is dropped.
        expired = sum(operators[name].keys_expired for operators in progresses)
        assert 0 < expired <= groups.expired
        assert progresses[-1][name].keys == len(left) + groups.expired - expired
