"""Packed rows: each comes out once, in the task of its key, in the order of the contract, also where they are sorted on disk."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidemark.spark.operators.keyed.columns import HASH, NEW, OUTPUT, TAG
from tidemark.spark.operators.keyed.output_buffer import Block, OutputBuffer, Shape
from tidemark.spark.operators.keyed.packed_rows import DATA, HASHES, PART, PackTask, unpacked
from tidemark.spark.operators.keyed.rows import Place
from tidemark.spark.operators.keyed.sorted_rows import SortedRows, SortKeys

LONGS = st.integers(-(2**63), 2**63 - 1)
SCHEMA = pa.schema([("key", pa.int64()), ("at", pa.int64()), ("origin", pa.string()), ("row", pa.int64())])
KEYS: SortKeys = (("key", "ascending"), ("at", "descending"), ("none", "ascending"), ("origin", "ascending"), ("row", "ascending"))
ROWS = st.lists(st.tuples(st.none() | st.integers(0, 4), st.integers(0, 9), st.sampled_from(["z", "é", "aa"])), max_size=150)

Row = tuple[int | None, int, str, int]


def in_order(row: Row) -> tuple[bool, int, int, bytes, int]:
    key, at, origin, number = row
    return key is not None, key or 0, -at, origin.encode(), number


@settings(max_examples=60, deadline=None)
@given(ROWS, st.integers(1, 40), st.sampled_from([1, 400, 3_000, 10**9]), st.integers(1, 7))
def test_rows_are_sorted_whatever_fits_into_memory(unsorted: list[tuple[int | None, int, str]], size: int, memory: int, block: int) -> None:
    rows: list[Row] = [(*row, number) for number, row in enumerate(unsorted)]
    found = SortedRows(KEYS, max_bytes=memory, block_rows=block)
    for start in range(0, len(rows), size):
        columns = zip(*rows[start : start + size], strict=True)
        table = pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
        found.add(table.set_column(2, "origin", table.column("origin").dictionary_encode()))
    tables = list(found.read())
    assert [tuple(row.values()) for table in tables for row in table.to_pylist()] == sorted(rows, key=in_order)
    assert all(table.num_rows for table in tables)


def test_large_rows_are_merged_in_bounded_memory() -> None:
    size, rows, memory = 20_000, 1_000, 4_000_000
    found = SortedRows(KEYS, max_bytes=memory)
    for start in range(0, rows, 10):
        keys = [number * 7_919 % rows for number in range(start, start + 10)]
        found.add(pa.table({"key": pa.array(keys, pa.int64()), "value": [b"x" * size] * 10}))
    tables = list(found.read())
    assert [key for table in tables for key in table.column("key").to_pylist()] == list(range(rows))
    # Besides the rows that may be in memory, one block of each of the five runs.
    assert max(table.nbytes for table in tables) < 2 * memory


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.tuples(LONGS, st.sampled_from("ab")), max_size=20), max_size=8), st.integers(1, 5), st.booleans())
@example([[]], 3, True)
def test_rows_are_packed_once_by_the_task_of_their_key(batches: list[list[tuple[int, str]]], parts: int, list_hashes: bool) -> None:  # noqa: FBT001
    schema = pa.schema([(HASH, pa.int64()), ("text", pa.string())])
    given_batches = [pa.RecordBatch.from_pylist([{HASH: number, "text": text} for number, text in rows], schema) for rows in batches]
    packed = [row for batch in PackTask(NEW, parts, list_hashes, ("text",), max_bytes=200)(given_batches) for row in batch.to_pylist()]
    tasks: dict[int, set[int]] = {}
    found: list[tuple[int, str]] = []
    for row in packed:
        rows = [(each[HASH], each["text"]) for each in unpacked(pa.scalar(row[DATA])).to_pylist()]
        hashes = {number for number, _ in rows}
        assert row[TAG] == NEW
        assert (set(row[HASHES]) if list_hashes else row[HASHES]) == (hashes if list_hashes else None)
        tasks.setdefault(row[PART], set()).update(hashes)
        found += rows
    assert sorted(found) == sorted(row for batch in batches for row in batch)
    assert set(tasks) <= set(range(parts))
    assert sum(map(len, tasks.values())) == len({number for number, _ in found})


def test_blocks_without_rows_come_out_as_no_batch() -> None:
    schema = pa.schema([(TAG, pa.int32()), ("result_v", pa.int64())])
    empty = pa.RecordBatch.from_pylist([], pa.schema([("v", pa.int64())]))
    out = OutputBuffer(schema, {OUTPUT: Shape(results={"result_v": "v"})}, "uid")
    out.add_block(OUTPUT, Block(Place(empty, 0), 0, (), empty))
    assert list(out.remaining_batches()) == []
