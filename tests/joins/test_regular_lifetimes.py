"""Lifetimes of the rows of regular joins: rows leave the state, results stay, and later changes do not meet them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.changelog.changes import Histories
from tests.engine.early_compaction import compact_early
from tests.joins.changelog_programs import Program, Row, Table, joined, keyed, random_program
from tests.seeds import PROFILE
from tidemark.errors import DefinitionError
from tidemark.graph.operators.registry import definition_changes, encode, kind_of
from tidemark.spark.operators.changelog import contents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCHS = 6 if PROFILE == "long" else 4
TTL_MS = 10
LEFT, RIGHT = ("p", "id", "z", "x"), ("p", "rid", "z", "y")
KEYS = {"l": ("p", "id"), "r": ("p", "rid")}
SCHEMA = "t BIGINT, side STRING, operation STRING, p INT, id INT, rid INT, z STRING, x INT, y INT"
LIVES = {"full": "lr", "anti": "r"} if PROFILE != "long" else {"inner": "lr", "left": "r", "full": "lr", "anti": "r"}
"""The sides whose rows have a lifetime, by kind of join."""


def programs(drawn: random.Random) -> dict[str, Program]:
    def row(key: str, value: str) -> Row:
        return {"p": drawn.randrange(6), key: drawn.randrange(4), "z": drawn.choice(["a", "b", None]), value: drawn.randrange(5)}

    def made(key: str, value: str) -> Program:
        def other(was: Row) -> Row:
            return {**row(key, value), "p": was["p"], key: was[key]}

        return random_program(drawn, ["p", key], lambda: row(key, value), other, epochs=EPOCHS, steps=16)

    return {"l": made("id", "x"), "r": made("rid", "y")}


class Side:
    """The rows of an input, each of which lives for some time after it was written; rows by key, with the time."""

    def __init__(self, keys: tuple[str, ...], *, expires: bool) -> None:
        self._keys = keys
        self._expires = expires
        self._rows: dict[tuple[Any, ...], tuple[Row, int]] = {}
        self.expired = 0

    def change(self, changes: list[tuple[str, Row]], before: int, now: int) -> tuple[Table, Table]:
        """Return the content before and after; a row that expired is there before as far as a change brings it."""
        if self._expires:
            gone = [key for key, (_, time) in self._rows.items() if time + TTL_MS <= before]
            self.expired += len(gone)
            for key in gone:
                del self._rows[key]
        was, first = {key: row for key, (row, _) in self._rows.items()}, set[tuple[Any, ...]]()
        for operation, row in changes:
            key = tuple(row[name] for name in self._keys)
            if operation in {"insert", "update_after"}:
                self._rows[key] = row, now
            else:
                self._rows.pop(key, None)
                if key not in first:
                    was.setdefault(key, row)
            first.add(key)
        return was, {key: row for key, (row, _) in self._rows.items()}


@pytest.mark.spark
def test_rows_expire_and_results_stay(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compact_early(monkeypatch, contents)
    drawn = random.Random(3 if PROFILE == "long" else 175)
    changes, time, times = programs(drawn), 0, list[int]()
    epochs = []
    for number in range(EPOCHS):
        time += drawn.choice([1, 4, 9])
        times.append(time)
        rows = [{"side": side, "operation": operation, **row} for side, made in changes.items() for operation, row in made.epochs[number]]
        names = [part.split()[0] for part in SCHEMA.split(", ")][1:]
        # The first row of each epoch says only what time it is.
        epochs.append([(time, *(row.get(name) for name in names)) for row in [{"side": "none"}, *rows]])
    given = tm.source("changes", tm.from_elements(epochs=epochs, schema=SCHEMA), watermarks=tm.ascending(timestamp="t"))
    left = given.filter("side = 'l'").as_changelog(key=KEYS["l"], operation="operation").select(*LEFT)
    right = given.filter("side = 'r'").as_changelog(key=KEYS["r"], operation="operation").select(*RIGHT)
    ttl = tm.state_ttl("10 milliseconds", domain="event")
    streams = {
        how: left.join(right, on=["p", "z"], how=how, ttl=(ttl if "l" in lives else None, ttl if "r" in lives else None)).uid(how)  # type: ignore[arg-type]
        for how, lives in LIVES.items()
    }
    runs = Histories(spark, tmp_path)
    histories = runs.run(streams, parallelism=2)
    saved = tm.savepoint("job", store=str(tmp_path / "store-job"))
    for how, lives in LIVES.items():
        sides = {side: Side(KEYS[side], expires=side in lives) for side in KEYS}
        before = -(10**6)
        for number, now in enumerate(times):
            both = {side: sides[side].change(changes[side].epochs[number], before, now - 1) for side in sides}
            assert by_key(histories[how][number], how) == expected(both, how), (how, number)
            before = now - 1
        found = [epoch.operators[how].expired for epoch in runs.result.epochs]
        for side, port in (("l", "left"), ("r", "right")):
            _, living = sides[side].change([], before, before)
            stored = {tuple(row[name] for name in KEYS[side]) for row in saved.tables(how, spark)[port].collect()}
            assert stored == set(living), (how, side)
            total = sum(each.get(port, 0) for each in found)
            assert total <= sides[side].expired
            assert (total > 0) == (side in lives), (how, side)


def expected(both: Mapping[str, tuple[Table, Table]], how: str) -> dict[tuple[Any, ...], tuple[str, Row]]:
    """Return the net changes of the result by key."""
    alone = how in {"semi", "anti"}
    keys, columns = (["p", "id"], LEFT) if alone else (["p", "id", "rid"], ("p", "id", "z", "x", "rid", "y"))
    was, now = (keyed(joined(both["l"][n].values(), both["r"][n].values(), [("p", "p"), ("z", "z")], how), keys, columns) for n in (0, 1))
    found = {key: ("update" if key in was else "insert", row) for key, row in now.items() if was.get(key) != row}
    return found | {key: ("delete", row) for key, row in was.items() if key not in now}


def by_key(history: list[Row], how: str) -> dict[tuple[Any, ...], tuple[str, Row]]:
    keys = ["p", "id"] if how in {"semi", "anti"} else ["p", "id", "rid"]
    found = {}
    for change in history:
        row = {name: value for name, value in change.items() if name not in {"operation", "epoch"}}
        found[tuple(row[name] for name in keys)] = change["operation"], row
    assert len(found) == len(history)
    return found


def given(name: str, columns: str, *epochs: list[tuple[Any, ...]]) -> tm.Stream:
    return tm.source(name, tm.from_elements(epochs=epochs, schema=f"t BIGINT, {columns}"), watermarks=tm.ascending(timestamp="t"))


@pytest.mark.spark
def test_keys_whose_own_state_expired_come_again(spark: SparkSession, tmp_path: Path) -> None:
    ttl = tm.state_ttl("10 milliseconds", domain="event")
    rows = given(
        "rows", "id INT, k STRING, v INT", [(1, 1, "a", 10), (1, 2, "b", 10)], [(50, 3, "a", 10)], [(51, 1, "a", 20), (51, 2, "b", 5)]
    )
    newest = rows.latest(by=["id"], ttl=ttl).uid("newest").select("id", "k", "v")
    others = given("others", "n INT, k STRING", [(1, 1, "a")], [(50, 2, "c")], [(51, 3, "b")]).select("n", "k").as_changelog(key=["n"])
    streams = {"pairs": newest.join(others, on="k", how="left").uid("pairs"), "top": newest.top_n(2, order="v, id").uid("top")}
    runs = Histories(spark, tmp_path)
    histories = runs.run(streams)
    # To the join and to the best rows, which live for ever, it is an update.
    last = {(row["id"], row["n"]): (row["operation"], row["v"]) for row in histories["pairs"][2]}
    assert last == {(1, 1): ("update", 20), (2, None): ("delete", 10), (2, 3): ("insert", 5)}
    assert {row["id"]: (row["operation"], row["v"]) for row in histories["top"][2]} == {
        1: ("delete", 10),
        2: ("update", 5),
        3: ("insert", 10),
    }
    assert runs.result.epochs[-1].operators["top"].keys == 3


def test_what_a_lifetime_of_a_join_means() -> None:
    one = given("one", "id INT, k INT").select("id", "k").as_changelog(key=["id"])
    other = given("other", "rid INT, k INT").select("rid", "k").as_changelog(key=["rid"])
    week, day = tm.state_ttl("7 days"), tm.state_ttl("1 day", domain="event")
    nodes: list[Any] = [one.join(other, on="k", ttl=ttl).uid("j").node for ttl in (None, week, (day, None))]
    shown = [kind_of(node).describe(node) for node in nodes]
    assert shown[0].endswith("key id, rid")
    assert shown[1].endswith(", state lives for 7d of processing time")
    assert shown[2].endswith(", left rows live for 1d of event time, right rows for ever")
    found = definition_changes(encode(nodes[1]), encode(nodes[2]))
    assert [(change.about, change.effect) for change in found] == [("ttl", "none"), ("ttl", "none")]
    assert found[1].what.startswith("of the right input state lived for 7d of processing time and lives now for ever")
    for node in nodes:
        decoded = kind_of(node).decode(encode(node), "u")
        assert encode(decoded) == encode(node)
    with pytest.raises(DefinitionError, match=r"not one lifetime for each"):
        one.join(other, on="k", ttl=(week,))  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match=r"tm.state_ttl\('7 days'\)"):
        one.join(other, on="k", ttl=("7 days", None))  # type: ignore[arg-type]
    elements = [given(name, f"{name} INT, k INT").select(name, "k") for name in ("a", "b")]
    with pytest.raises(DefinitionError, match="leave ttl out"):
        elements[0].join(elements[1], on="k", within=("0 seconds", "1 hour"), ttl=week)
