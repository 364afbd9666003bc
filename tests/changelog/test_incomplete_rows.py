"""An incomplete row changes nothing, and makes no row outdated: the result does not depend on how rows are cut into epochs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.changelog.changes import Histories, contents_of, stream_of
from tidemark.testing import OperatorHarness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id INT, s INT, note STRING, v INT, gone BOOLEAN"
INCOMPLETE, OUTDATED = tm.OutputTag("incomplete"), tm.OutputTag("outdated")
Rows = list[dict[str, Any]]


def row(key: int, sequence: int | None, note: str, *, gone: bool = False, v: int = 0) -> dict[str, Any]:
    return {"id": key, "s": sequence, "note": note, "v": v, "gone": gone}


SCRIPTS: list[Rows] = [
    # A row that cannot be completed comes before one with a lesser sequence.
    [row(1, 5, "?"), row(1, 3, "a"), row(1, 2, "b")],
    # After a deletion there is nothing to complete from, and the deletion counts.
    [row(2, 4, "a"), row(2, 6, "", gone=True), row(2, 9, "?"), row(2, 5, "b"), row(2, 7, "c"), row(2, 8, "?")],
    # A deletion that is outdated by a completed row, and one that is not by an incomplete one.
    [
        row(3, 1, "a"),
        row(3, 6, "?"),
        row(3, 5, "", gone=True),
        row(3, 7, "", gone=True),
        row(3, 9, "?"),
        row(3, 8, "", gone=True),
        row(3, 8, "d"),
    ],
]


def scripts(count: int) -> list[Rows]:
    """Return scripted keys, and random ones."""
    random = Random(4711)
    found = list(SCRIPTS)
    for key in range(100, 100 + count):
        kinds = [random.choice(["?", "?", "x", "gone"]) for _ in range(random.randint(2, 9))]
        rows = [
            row(
                key,
                random.choice([None, *range(6)]),
                random.choice("abc") if kind == "x" else "?" if kind == "?" else "",
                gone=kind == "gone",
                v=number,
            )
            for number, kind in enumerate(kinds)
        ]
        found.append(rows)
    return found


def newest(rows: tm.Stream) -> tm.Stream:
    made = rows.latest(
        by=["id"], sequence="s", deleted="gone", unchanged={"note": "note = '?'"}, outdated_to=OUTDATED, incomplete_to=INCOMPLETE
    )
    return made.uid("newest")


def cut(keys: Sequence[Rows], parts: int) -> list[Rows]:
    """Return the rows of all keys in that many epochs."""
    return [[each for rows in keys for each in rows[part * 9 // parts : (part + 1) * 9 // parts]] for part in range(parts)]


def in_python(epochs: Sequence[Rows]) -> tuple[Rows, list[Rows]]:
    """Return the content, and the outdated and the incomplete rows, by the harness."""
    harness = OperatorHarness(newest(stream_of([], SCHEMA)))
    number = 0
    for epoch in epochs:
        for each in epoch:
            number += 1
            harness.process({"n": number, **each}, at=number)
        harness.advance_watermark(number)
    sides = [harness.side_output(tag) for tag in (OUTDATED, INCOMPLETE)]
    return plain(harness.state()), [plain(side) for side in sides]


def plain(rows: Sequence[Any]) -> Rows:
    kept = [{name: each[name] for name in ("id", "s", "note", "v")} for each in rows]
    return sorted(kept, key=lambda each: [str(value) for value in each.values()])


def test_the_rule_in_python() -> None:
    content, (outdated, incomplete) = in_python(cut(SCRIPTS, 1))
    assert [(each["id"], each["s"], each["note"]) for each in content] == [(1, 3, "a"), (2, 8, "c"), (3, 8, "d")]
    assert [(each["id"], each["s"]) for each in outdated] == [(1, 2), (2, 5), (3, 5)]
    assert [(each["id"], each["s"]) for each in incomplete] == [(1, 5), (2, 9), (3, 9)]
    keys = scripts(60)
    assert in_python(cut(keys, 1)) == in_python(cut(keys, 3)) == in_python(cut(keys, 9))


@pytest.mark.spark
def test_the_engine_has_the_same_however_rows_are_cut(spark: SparkSession, tmp_path: Path) -> None:
    keys = scripts(60)
    content, sides = in_python(cut(keys, 1))
    for parts in (1, 2):
        made = newest(stream_of(cut(keys, parts), SCHEMA))
        streams = {"rows": made, "outdated": made.side_output(OUTDATED), "incomplete": made.side_output(INCOMPLETE)}
        found = Histories(spark, tmp_path / str(parts)).run(streams, parallelism=1)
        assert plain(contents_of(found["rows"], ["id"])[-1]) == content
        assert [plain([each for epoch in found[name] for each in epoch]) for name in ("outdated", "incomplete")] == sides
