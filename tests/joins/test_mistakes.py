"""Mistakes in regular joins, and what is known of one before it runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import tidemark as tm
from tidemark.errors import ColumnError, DefinitionError
from tidemark.graph import lineage, schema_of
from tidemark.graph.checks.changelogs import changelog_keys
from tidemark.graph.operators.registry import definition_changes, kind_of
from tidemark.graph.operators.regular_join.node import RegularJoinNode
from tidemark.testing import OperatorHarness

RIDES = "id BIGINT, zone INT, fare DOUBLE"
ZONES = "zone INT, name STRING, tags MAP<STRING, INT>"


def stream(name: str, schema: str) -> tm.Stream:
    return tm.source(name, tm.from_elements([], schema=schema), watermarks=tm.ingestion_time())


def rides() -> tm.Stream:
    return stream("rides", RIDES).as_changelog(key=["id"])


def zones() -> tm.Stream:
    return stream("zones", ZONES).as_changelog(key=["zone"])


MISTAKES: dict[str, tuple[Callable[[], object], str, str]] = {
    "no changelog": (
        lambda: stream("rides", RIDES).join(zones(), on="zone"),
        "the left stream of a join is only added to",
        "write within=('-10 minutes', '1 hour'); else",
    ),
    "elements": (lambda: rides().join(zones().as_elements(), on="zone"), "the right stream of a join is only added to", ".latest("),
    "no stream": (lambda: rides().join("zones", on="zone"), "join is given 'zones', not a stream", ".join(other, on="),  # type: ignore[arg-type]
    "nothing compared": (lambda: rides().join(zones(), on=[]), "join(on=...) is given [], not a list of columns", "write ['zone', 'day']"),
    "unknown column": (lambda: rides().join(zones(), on="zon"), "reads unknown column 'zon'; did you mean 'zone'?", "write 'zone'"),
    "a condition": (
        lambda: rides().join(zones(), on="rides.zone = zones.zone AND id = tags"),
        "join(on=...) is given a condition, 'rides.zone = zones.zone AND id = tags', not columns",
        'write on={"zone": "zone", "id": "tags"}',
    ),
    "other types": (
        lambda: rides().join(zones(), on={"id": "zone"}),
        "join compares 'id' of the left stream, of type BIGINT, with 'zone' of the right one, of type INT",
        'on={"id": "CAST(zone AS BIGINT)"}',
    ),
    "a map": (lambda: zones().join(zones(), on="tags"), "is of type MAP<STRING, INT>, and such values cannot be compared", "to_json"),
    "a clash": (
        lambda: rides().join(stream("more", "ride BIGINT, fare DOUBLE").as_changelog(key=["ride"]), on={"id": "ride"}),
        "both streams of a join have columns 'fare'",
        ".select(..., fare_2='fare')",
    ),
    "a clash of keys": (
        lambda: rides().join(stream("more", RIDES).as_changelog(key=["id"]).select("id", place="zone"), on={"zone": "place"}),
        "have columns 'id', which are not compared with each other, and id is in the key of the right one",
        "id_2='id'",
    ),
    "no kind": (lambda: rides().join(zones(), on="zone", how="outer"), "join(how='outer') is no kind of join", "'inner', 'left'"),  # type: ignore[arg-type]
    "a key that both fill": (
        lambda: rides().join(stream("more", "id BIGINT, zone INT, name STRING").as_changelog(key=["id"]), on=["id", "zone"], how="full"),
        "a full join compares zone beside the key of the result (id)",
        ".select(..., id_2='id'), and on={'id': 'id_2', 'zone': 'zone'}",
    ),
    "no key at all": (
        lambda: rides().aggregate_all(n=tm.count()).join(zones().aggregate_all(n=tm.count()), on="n", how="full"),
        "a full join compares n beside the key of the result (no column)",
        "give one input a key",
    ),
    "unknown columns": (
        lambda: rides().join(stream("zones", ZONES).transform(lambda rows: rows).as_changelog(key=["zone"]), on="zone"),
        "the columns of the right stream of a join are known only when it runs",
        ".select(",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_says_what_to_write(name: str) -> None:
    make, what, fix = MISTAKES[name]
    with pytest.raises(DefinitionError) as raised:
        make()
    text = str(raised.value)
    assert what in text
    assert fix in text.partition("Fix: ")[2]
    assert "test_mistakes.py" in text


def test_what_is_known_before_it_runs() -> None:
    pairs = rides().join(zones(), on="zone", how="full").uid("pairs")
    assert isinstance(pairs.node, RegularJoinNode)
    assert str(schema_of(pairs.node)) == "id BIGINT, zone INT, fare DOUBLE, name STRING, tags MAP<STRING, INT>"
    assert changelog_keys(pairs.node) == ("id", "zone")
    assert lineage(pairs.node, "zone") == {("rides", "zone"), ("zones", "zone")}
    assert lineage(pairs.node, "name") == {("zones", "name")}
    found = kind_of(pairs.node)
    assert found.describe(pairs.node) == "full join of changelogs on zone, key id, zone"
    assert found.describe_rows(pairs.node) == "A pair of rows of both inputs with equal `zone`, or a row of either input without a partner"
    assert (found.describe_column(pairs.node, "name"), found.describe_column(pairs.node, "zone")) == (
        "Null in a row without a partner.",
        None,
    )
    kept = found.state_columns(pairs.node, [schema_of(child) for child in pairs.node.inputs])
    assert kept == {
        "left__id": "BIGINT",
        "left__zone": "INT",
        "left__fare": "DOUBLE",
        "right__zone": "INT",
        "right__name": "STRING",
        "right__tags": "MAP<STRING, INT>",
    }
    anti = rides().join(zones(), on={"zone + 1": "zone + 1"}, how="anti").uid("anti")
    assert changelog_keys(anti.node) == ("id",)
    assert set(kind_of(anti.node).state_columns(anti.node, [None, None])) == {  # type: ignore[arg-type]
        *(f"left__{name}" for name in ("id", "zone", "fare")),
        "left_on__0",
        "right__zone",
        "right_on__0",
    }


def test_what_a_changed_definition_means() -> None:
    def encoded(left: tm.Stream, **settings: Any) -> dict[str, object]:
        node = left.join(zones(), **{"on": "zone", **settings}).uid("pairs").node
        assert isinstance(node, RegularJoinNode)
        return kind_of(node).encode(node)

    was = encoded(rides())
    more, fewer = rides().with_columns(tip="fare / 10"), rides().select("id", "zone")
    effects = {
        name: [change.effect for change in definition_changes(was, now)]
        for name, now in {
            "same": encoded(rides(), on={"`zone`": "ZONE"}),
            "how": encoded(rides(), how="left"),
            "on": encoded(rides(), on={"zone": "zone", "zone + 1": "zone + 1"}),
            "more": encoded(more),
            "fewer": encoded(fewer),
        }.items()
    }
    assert effects == {"same": [], "how": ["other"], "on": ["other", "other"], "more": ["other"], "fewer": ["none"]}


def test_the_harness_applies_operations() -> None:
    harness = OperatorHarness(rides().join(zones(), on="zone", how="left").uid("pairs"))
    harness.process({"id": 1, "zone": 5, "fare": 2.5}, at=1, port="left")
    assert [(row["id"], row["name"], row["operation"]) for row in harness.advance_watermark(1)] == [(1, None, "insert")]
    harness.process({"zone": 5, "name": "N", "tags": None}, at=2, port="right")
    # The key of the result, ride and zone, stays the same.
    assert [(row["name"], row["operation"]) for row in harness.advance_watermark(2)] == [("N", "update")]
    harness.process({"zone": 5, "name": "N", "tags": None}, at=3, port="right", operation="delete")
    harness.process({"id": 1, "zone": 5, "fare": 2.5}, at=3, port="left", operation="delete")
    assert [row["operation"] for row in harness.advance_watermark(3)] == ["delete"]
    assert harness.state() == []
    with pytest.raises(ColumnError, match=re.escape("zone")):
        rides().join(zones(), on={"zone": "zne"})
