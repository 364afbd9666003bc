"""The state of changelogs of rows: lifetimes, the State Processor API, and what a change of the job means for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.changelog.changes import Histories, contents_of, sorted_rows
from tidemark.errors import StateMismatchError
from tidemark.graph.operators.registry import definition_changes, encode, kind_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Build = Callable[[tm.Stream], tm.Stream]

SCHEMA = "at TIMESTAMP, k STRING, v INT"


def elements(*epochs: Sequence[tuple[float, str | None, int]], schema: str = SCHEMA) -> tm.Stream:
    """Return a stream of elements at some seconds."""
    given = [[(datetime.fromtimestamp(second, UTC), key, value) for second, key, value in epoch] for epoch in epochs]
    return tm.source("e", tm.from_elements(epochs=given, schema=schema), watermarks=tm.ascending(timestamp="at"))


@pytest.mark.spark
def test_keys_expire_without_a_delete_and_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    epochs = [
        [(1.0, "a", 1), (1.0, "b", 1)],
        [(5.0, "a", 2), (5.0, "c", 1)],
        [(12.0, "b", 2), (12.0, "a", 2)],
        [(60.0, "d", 1)],
        [(61.0, "b", 3)],
    ]
    given = elements(*epochs)
    event = given.latest(by="k", ttl=tm.state_ttl("10 seconds", domain="event")).uid("event")
    clock = given.latest(by="k", ttl=tm.state_ttl("10 seconds")).uid("clock")
    ever = given.latest(by="k").uid("ever")
    runs = Histories(spark, tmp_path)
    histories = runs.run({"event": event, "clock": clock, "ever": ever})
    told = [[(row["k"], row["operation"], row["v"]) for row in sorted_rows(rows)] for rows in histories["event"]]
    assert [sorted(rows) for rows in told] == [
        [("a", "insert", 1), ("b", "insert", 1)],
        [("a", "update", 2), ("c", "insert", 1)],
        # The watermark before the epoch is that of 5 seconds: nothing has expired when it is read.
        [("a", "update", 2), ("b", "update", 2)],
        [("d", "insert", 1)],
        [("b", "insert", 3)],
    ]
    counts = [(epoch.operators["event"].keys, epoch.operators["event"].keys_expired) for epoch in runs.result.epochs]
    assert counts == [(2, 0), (3, 0), (3, 0), (1, 3), (2, 0)]
    assert [epoch.operators["clock"].keys_expired for epoch in runs.result.epochs] == [0] * 5
    assert contents_of(histories["clock"], ["k"]) == contents_of(histories["ever"], ["k"])


@pytest.mark.spark
def test_state_is_shown_and_survives_changes_of_the_job(spark: SparkSession, tmp_path: Path) -> None:
    first, second = [(1.0, "a", 1), (2.0, "b", 5), (3.0, None, 2)], [(4.0, "a", 7), (5.0, "b", 0)]

    def streams(stream: tm.Stream) -> dict[str, tm.Stream]:
        return {
            "latest": stream.latest(by="k", sequence="v", deleted="v = 0").uid("latest"),
            "top": stream.top_n(1, by=["k"], order="v", rank="place").uid("top"),
        }

    runs = Histories(spark, tmp_path)
    runs.run(streams(elements(first)))
    stored = tm.savepoint("job", store=str(tmp_path / "store-job"))
    rows = {uid: stored.tables(uid, spark)["rows"].collect() for uid in ("latest", "top")}
    assert sorted((str(row["k"]), row["v"]) for row in rows["latest"]) == [("None", 2), ("a", 1), ("b", 5)]
    assert sorted((str(row["k"]), row["v"], row["place"]) for row in rows["top"]) == [("None", 2, 1), ("a", 1, 1), ("b", 5, 1)]
    # A new column is null in stored rows, and a wider type holds them.
    wider = elements(first, second).with_columns(v="CAST(v AS BIGINT)", more="upper(k)")
    histories = runs.run(streams(wider))
    assert [(row["k"], row["operation"], row["v"], row["more"]) for row in histories["latest"][0]] == [("a", "update", 7, "A")]
    assert [(row["k"], row["operation"], row["v"], row["more"]) for row in histories["top"][0]] == [("b", "update", 0, "B")]
    with pytest.raises(StateMismatchError, match="the key 'k' was removed"):
        runs.run({name: stream for name, stream in streams(wider).items() if name == "top"} | {"latest": other(wider)})


@pytest.mark.spark
def test_changes_of_rows_that_never_were_leave_the_others_in_the_state(spark: SparkSession, tmp_path: Path) -> None:
    update = [(7, "a", 10, "-U"), (7, "a", 20, "+U")]
    delete = [(1, "b", 10, "+I"), (2, "b", 20, "-D"), (1, "c", 5, "+I"), (2, "c", 6, "-D")]
    later = [(3, "a", 5, "+I"), (3, "b", 5, "+I"), (4, "c", 9, "+I")]
    given = [[(number, *row) for row in rows] for number, rows in enumerate([update + delete, later])]
    schema = "t BIGINT, id INT, zone STRING, v INT, op STRING"
    rows = tm.source("rows", tm.from_elements(epochs=given, schema=schema), watermarks=tm.ascending(timestamp="t"))
    best = rows.as_changelog(["zone", "id"], operation="op").select("zone", "id", "v")
    streams = {
        "places": best.top_n(1, by=["zone"], order="v DESC", rank="place").uid("places"),
        "rows": best.top_n(1, by=["zone"], order="v DESC").uid("rows"),
    }
    histories = Histories(spark, tmp_path).run(streams)
    places = contents_of(histories["places"], ["zone", "place"], leave_out=["place"])
    assert places == contents_of(histories["rows"], ["zone", "id"])
    assert [sorted((row["zone"], row["id"], row["v"]) for row in rows) for rows in places] == [
        [("a", 7, 20), ("b", 1, 10), ("c", 1, 5)],
        [("a", 7, 20), ("b", 1, 10), ("c", 4, 9)],
    ]


def other(stream: tm.Stream) -> tm.Stream:
    """Return the newest rows by another key."""
    return stream.latest(by="v").uid("latest")


CHANGES: dict[str, tuple[Build, Build, list[str]]] = {
    "same": (lambda s: s.latest(by="k", sequence="v"), lambda s: s.latest(by="k", sequence="`v`"), []),
    "another key": (lambda s: s.latest(by="k"), lambda s: s.latest(by="v"), ["other", "other"]),
    "a sequence": (lambda s: s.latest(by="k"), lambda s: s.latest(by="k", sequence="v"), ["other"]),
    "another sequence": (lambda s: s.latest(by="k", sequence="at"), lambda s: s.latest(by="k", sequence="v"), ["other"]),
    "no sequence": (lambda s: s.latest(by="k", sequence="at"), lambda s: s.latest(by="k"), ["none"]),
    "deletes": (lambda s: s.latest(by="k"), lambda s: s.latest(by="k", deleted="v = 0"), ["none"]),
    "a lifetime": (lambda s: s.latest(by="k"), lambda s: s.latest(by="k", ttl=tm.state_ttl("1 day")), ["none"]),
    "the last by its keys": (lambda s: s.latest(by="k"), lambda s: s.key_by("k").deduplicate(keep="last"), []),
    "more rows": (lambda s: s.top_n(2, order="v", rank="r"), lambda s: s.top_n(3, order="v", rank="r"), ["other"]),
    "the same order": (lambda s: s.top_n(2, order="v", rank="r"), lambda s: s.top_n(2, order=" V ASC", rank="r"), []),
    "another order": (lambda s: s.top_n(2, order="v", rank="r"), lambda s: s.top_n(2, order="v DESC", rank="r"), ["other"]),
    "no rank": (lambda s: s.top_n(2, order="v", rank="r"), lambda s: s.top_n(2, order="v", key=["k"]), ["other"]),
    "another rank": (lambda s: s.top_n(2, order="v", rank="r"), lambda s: s.top_n(2, order="v", rank="q"), ["other"]),
    "a changelog": (
        lambda s: s.top_n(2, order="v", key=["k"]),
        lambda s: s.latest(by="k").uid("l").top_n(2, order="v"),
        ["other"],
    ),
    "another group": (lambda s: s.top_n(2, order="v", rank="r"), lambda s: s.top_n(2, by=["k"], order="v", rank="r"), ["other"]),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_a_change_means(what: str) -> None:
    before, after, effects = CHANGES[what]
    nodes: list[Any] = [build(elements()).node for build in (before, after)]
    found = definition_changes(encode(nodes[0]), encode(nodes[1]))
    assert [change.effect for change in found] == effects
    assert all(change.what for change in found)
    for node in nodes:
        kind = kind_of(node)
        decoded = kind.decode(kind.encode(node), "u")
        assert kind.encode(decoded) == kind.encode(node)
        assert kind.describe(decoded) == kind.describe(node)


def test_renamed_columns_are_the_same() -> None:
    one, two = elements().latest(by="k", sequence="v").node, elements().select(at="at", key="k", v="v").latest(by="key", sequence="v").node
    assert isinstance(one, type(two))
    found = definition_changes(encode(one), encode(two), {"k": "key"})  # type: ignore[arg-type]
    assert [change.effect for change in found] == ["renamed"]
