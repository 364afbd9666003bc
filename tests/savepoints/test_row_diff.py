from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.seeds import new_seeds
from tidemark.errors import DefinitionError, SinkError
from tidemark.savepoints.row_diff import diff_tables

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


def test_tables_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    one = table(tmp_path / "one", [("a", 0, 1, 0.5)])
    write_deltalake(str(tmp_path / "other"), pa.table({"zone": ["a"], "m": [1]}))
    with pytest.raises(DefinitionError, match="do not have the same columns: m, n, window_start, x"):
        diff_tables(one, str(tmp_path / "other"))
    with pytest.raises(DefinitionError, match="have no column y"):
        diff_tables(one, one, keys=["y"])
    with pytest.raises(SinkError, match="there is no Delta table"):
        diff_tables(one, str(tmp_path / "none"))
