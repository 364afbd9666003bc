"""Rows that leave columns of their key's row unchanged: the rule, element by element, and how it is declared; without Spark."""

from __future__ import annotations

from typing import Any, cast

import pytest

import tidemark as tm
from tidemark.errors import ColumnError, DefinitionError, ExpressionError
from tidemark.graph import kind_of
from tidemark.graph.operators.latest.node import LatestNode
from tidemark.testing import OperatorHarness

SCHEMA = "at TIMESTAMP, id BIGINT, v BIGINT, note STRING, tag STRING, gone BOOLEAN"
UNCHANGED = {"note": "note = '?'", "tag": "tag = '?'"}
INCOMPLETE, OUTDATED = tm.OutputTag("incomplete"), tm.OutputTag("outdated")


def newest(**options: Any) -> tm.Stream:
    rows = tm.source("rows", tm.from_elements([], schema=SCHEMA), watermarks=tm.ascending(timestamp="at"))
    return rows.latest(**{"by": ["id"], "deleted": "gone", "unchanged": UNCHANGED, **options}).uid("newest")


def process(harness: OperatorHarness, note: str, tag: str, *, v: int = 0, gone: bool = False) -> None:
    harness.process({"id": 1, "v": v, "note": note, "tag": tag, "gone": gone}, at=1)


def test_columns_without_a_value_keep_that_of_the_row_before() -> None:
    harness = OperatorHarness(newest(incomplete_to=INCOMPLETE))
    process(harness, "?", "a")
    process(harness, "n", "t")
    process(harness, "?", "u")
    process(harness, "m", "?")
    harness.advance_watermark(2)
    assert [(row["note"], row["tag"]) for row in harness.state()] == [("m", "u")]
    process(harness, "x", "y", gone=True)
    process(harness, "?", "z")
    assert [row["operation"] for row in harness.advance_watermark(3)] == ["delete"]
    assert harness.state() == []
    assert [row["tag"] for row in harness.side_output(INCOMPLETE)] == ["a", "z"]
    assert harness.counts == {"in": 6, "accepted": 4, "incomplete": 2}


def test_outdated_rows_give_no_values() -> None:
    harness = OperatorHarness(newest(sequence="v", outdated_to=OUTDATED))
    for v, note in ((5, "n"), (3, "late"), (6, "?"), (4, "?")):
        process(harness, note, "t", v=v)
    harness.advance_watermark(2)
    assert [(row["v"], row["note"]) for row in harness.state()] == [(6, "n")]
    assert [row["v"] for row in harness.side_output(OUTDATED)] == [3, 4]


def test_it_is_part_of_the_definition() -> None:
    node = cast("LatestNode", newest().node)
    kind = kind_of(node)
    stored = kind.encode(node)
    again = cast("LatestNode", kind.decode(stored, "newest"))
    assert again.unchanged == tuple(UNCHANGED.items())
    assert kind.counters(node) == ("incomplete",)
    assert "unchanged" not in kind.encode(cast("LatestNode", newest(unchanged=None).node))
    other = kind.encode(cast("LatestNode", newest(unchanged={"note": "note = '?'"}).node))
    (change,) = kind.changes(stored, other, {}, None)
    assert "note, tag" in str(change)
    assert "without a value keeps note, tag" in kind.describe(node)


@pytest.mark.parametrize(
    ("options", "error", "what"),
    [
        ({"unchanged": {"no": "true"}}, ColumnError, "names unknown column 'no'"),
        ({"unchanged": {"ID": "true"}}, ColumnError, "which is a column of the key"),
        ({"unchanged": {"note": "v + 1"}}, ExpressionError, "is of type BIGINT, not BOOLEAN"),
        ({"unchanged": None, "incomplete_to": INCOMPLETE}, DefinitionError, "no column is named"),
    ],
)
def test_mistakes(options: dict[str, Any], error: type[Exception], what: str) -> None:
    with pytest.raises(error, match=what):
        tm.Job("newest", outputs={"newest": tm.memory(newest(**options), "newest")}).explain()
