from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.seeds import new_seeds
from tidemark.errors import DefinitionError, SinkError
from tidemark.savepoints.delta.row_diff import Earlier, diff_tables

SCHEMA = pa.schema([("zone", pa.string()), ("window_start", pa.int64()), ("n", pa.int64()), ("x", pa.float64())])
Row = tuple[str | None, int | None, int | None, float | None]


def table(path: Path, rows: list[Row]) -> str:
    write_deltalake(str(path), pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA))
    return str(path)


def test_rows_are_added_removed_and_changed_by_their_keys(tmp_path: Path) -> None:
    one = table(tmp_path / "one", [("a", 0, 1, 0.5), ("a", 1, 2, None), ("b", 0, 3, 1.0), (None, None, 4, 1.0), ("d", 0, 1, 1.0)])
    two = table(tmp_path / "two", [("a", 0, 1, 0.5), ("a", 1, 2, 7.0), ("c", 0, 3, 1.0), (None, None, 5, 1.0), ("d", 0, 1, 1.0)])
    found = diff_tables(one, two, keys=["zone", "window_start"])
    assert (found.same, found.added, found.removed, found.changed, found.equal) == (2, 1, 1, 2, False)
    by_key = {tuple(sample.key.values()): ([r["n"] for r in sample.before], [r["x"] for r in sample.after]) for sample in found.samples}
    assert by_key == {("a", 1): ([2], [7.0]), ("b", 0): ([3], []), ("c", 0): ([], [1.0]), (None, None): ([4], [1.0])}
    assert diff_tables(one, one, keys=["zone"]).equal


def test_values_that_json_does_not_have_are_texts(tmp_path: Path) -> None:
    one = table(tmp_path / "one", [("a", 0, 1, float("nan")), ("b", 0, 1, float("inf"))])
    two = table(tmp_path / "two", [("a", 0, 1, float("-inf")), ("b", 0, 1, None)])
    found = diff_tables(one, two, keys=["zone"]).document()
    json.dumps(found, allow_nan=False)
    assert [(sample["before"][0]["x"], sample["after"][0]["x"]) for sample in cast("list[Any]", found["samples"])] == [
        ("NaN", "-Infinity"),
        ("Infinity", None),
    ]


@pytest.mark.parametrize("number", range(2))
def test_it_is_what_counting_rows_gives_whatever_the_parts(tmp_path: Path, number: int) -> None:
    (seed,) = new_seeds(f"row diff {number}")
    print(f"seed {seed}")
    random = Random(seed)
    zones = ["a", "b", "c", "1:a", None, "", "n"]

    def rows(count: int) -> list[Row]:
        return [(random.choice(zones), random.randrange(3), random.randrange(3), random.choice([None, 1.5])) for _ in range(count)]

    first, second = rows(80), rows(60)
    one, two = table(tmp_path / "one", first), table(tmp_path / "two", second)
    left, right = Counter(first), Counter(second)
    more, less = left - right, right - left
    keys = {row[:2] for row in (*more, *less)}
    expected = [(left & right).total(), 0, 0, 0]
    for key in keys:
        a, b = (sum(count for row, count in side.items() if row[:2] == key) for side in (more, less))
        expected[1] += max(b - a, 0)
        expected[2] += max(a - b, 0)
        expected[3] += min(a, b)
    for size in (1_000_000, 20):
        found = diff_tables(one, two, keys=["zone", "window_start"], rows_per_part=size)
        assert [found.same, found.added, found.removed, found.changed] == expected
    whole = diff_tables(one, two, keys=SCHEMA.names)
    assert (whole.added, whole.removed, whole.changed) == (less.total(), more.total(), 0)


@pytest.mark.parametrize("upserted", [False, True], ids=["added-to", "upserted"])
@pytest.mark.parametrize("swapped", [False, True], ids=["first", "second"])
def test_what_a_table_had_before_the_other_began_is_left_out_as_often_as_it_was_there(
    tmp_path: Path, *, upserted: bool, swapped: bool
) -> None:
    (seed,) = new_seeds(f"row diff without earlier rows {upserted} {swapped}")
    print(f"seed {seed}")
    random = Random(seed)

    def rows(count: int) -> list[Row]:
        return [(random.choice(["a", "b", None]), random.randrange(3), random.randrange(2), None) for _ in range(count)]

    old, since, other = rows(30), rows(30), rows(40)
    one, two = table(tmp_path / "one", old), table(tmp_path / "two", other)
    write_deltalake(one, pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in since], SCHEMA), mode="append")
    whole, had, has = Counter(old + since), Counter(old), Counter(other)
    out = (whole - has) & had if upserted else had
    rest = whole - out
    expected = [(rest & has).total(), (has - rest).total(), (rest - has).total(), out.total()]
    for size in (1_000_000, 20):
        sides = (two, one) if swapped else (one, two)
        found = diff_tables(*sides, rows_per_part=size, earlier=Earlier(0, upserted=upserted, of_second=swapped))
        fewer, more = (found.added, found.removed) if swapped else (found.removed, found.added)
        assert [found.same, more, fewer, found.left_out] == expected
        assert found.changed == 0


def test_samples_show_nothing_of_what_is_left_out_and_columns_may_have_come_since(tmp_path: Path) -> None:
    one = str(tmp_path / "one")
    write_deltalake(one, pa.table({"zone": ["a", "b"]}))
    two = table(tmp_path / "two", [("a", 0, 1, 0.5)])
    newer = pa.Table.from_pylist([dict(zip(SCHEMA.names, ("a", 0, 2, 0.5), strict=True))], SCHEMA)
    write_deltalake(one, newer, mode="append", schema_mode="merge")
    found = diff_tables(one, two, keys=["zone"], earlier=Earlier(0))
    assert (found.same, found.added, found.removed, found.changed, found.left_out) == (0, 0, 0, 1, 2)
    ((before, after),) = ((sample.before, sample.after) for sample in found.samples)
    assert ([row["n"] for row in before], [row["n"] for row in after]) == ([2], [1])
    with pytest.raises(SinkError, match="the rows of the table at version 7, before the other one began, are no longer known"):
        diff_tables(one, two, earlier=Earlier(7))


def test_tables_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    one = table(tmp_path / "one", [("a", 0, 1, 0.5)])
    write_deltalake(str(tmp_path / "other"), pa.table({"zone": ["a"], "m": [1]}))
    with pytest.raises(DefinitionError, match="do not have the same columns: m, n, window_start, x"):
        diff_tables(one, str(tmp_path / "other"))
    with pytest.raises(DefinitionError, match="have no column y"):
        diff_tables(one, one, keys=["y"])
    with pytest.raises(SinkError, match="there is no Delta table"):
        diff_tables(one, str(tmp_path / "none"))
