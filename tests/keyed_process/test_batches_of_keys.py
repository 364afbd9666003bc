"""A key's elements come to a function in the same batches, whatever other keys its task has, and however these come to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidemark as tm
from tests.keyed_process.tasks import Tasks, by_tag
from tidemark.graph.operators.keyed_process.node import KeyedProcessNode
from tidemark.semantics.keyed_process.element_batches import MAX_BYTES, ElementBatch, batches_of_key, bytes_of_rows
from tidemark.semantics.keyed_process.times import EpochTimes
from tidemark.spark.operators.keyed.columns import OUTPUT
from tidemark.spark.operators.keyed_process.columns import FAILED_ROW
from tidemark.spark.operators.keyed_process.task import ProcessKeys

NESTED = pa.struct([("texts", pa.list_(pa.string())), ("map", pa.map_(pa.string(), pa.int64()))])
SCHEMA = pa.schema([("at", pa.int64()), ("text", pa.string()), ("nested", NESTED)])
SCHEMA_OF_ROWS = "k STRING, t BIGINT, ops STRING"
TEXTS = st.none() | st.text("a\u00e4", max_size=5)
VALUES = st.tuples(
    TEXTS,
    st.none()
    | st.fixed_dictionaries(
        {
            "texts": st.none() | st.lists(TEXTS, max_size=3),
            "map": st.none() | st.dictionaries(st.text("ab", max_size=2), st.none() | st.integers(0, 9), max_size=2),
        }
    ),
)


def parts_of(rows: pa.RecordBatch, cuts: Sequence[int], limit: int) -> list[ElementBatch]:
    """Return rows in parts; where ``limit`` is 0 each has its own number of bytes."""
    bounds = [0, *sorted(cuts), rows.num_rows]
    parts = [rows.slice(start, stop - start) for start, stop in pairwise(bounds) if stop > start]
    return [ElementBatch(part, part.column("at"), limit or part.nbytes) for part in parts]


@settings(max_examples=200, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=14), st.data(), st.integers(1, 6), st.integers(1, 90))
def test_where_parts_end_makes_no_difference(values: list[Any], data: st.DataObject, max_rows: int, max_bytes: int) -> None:
    # Before and after them are the rows of other keys.
    others = {"at": 0, "text": None, "nested": {"texts": ["other"], "map": [("k", 1)]}}
    own = [{"at": at, "text": text, "nested": _nested(nested)} for at, (text, nested) in enumerate(values)]
    whole = pa.RecordBatch.from_pylist(own, SCHEMA)
    among = pa.RecordBatch.from_pylist([others, *own, others], SCHEMA).slice(1, len(own))
    cuts = data.draw(st.lists(st.integers(0, len(own)), max_size=4))
    expected = list(batches_of_key(parts_of(whole, [], 1_000_000), max_rows=max_rows, max_bytes=max_bytes))
    found = list(batches_of_key(parts_of(among, cuts, 0), max_rows=max_rows, max_bytes=max_bytes))
    assert [batch.rows.to_pylist() for batch in found] == [batch.rows.to_pylist() for batch in expected]
    assert [row for batch in found for row in batch.rows.to_pylist()] == whole.to_pylist()
    assert [time for batch in found for time in batch.times.to_pylist()] == list(range(len(own)))
    sizes = bytes_of_rows(whole).tolist()
    for batch, following in zip(found, [*found[1:], None], strict=True):
        first, count = batch.times[0].as_py(), batch.rows.num_rows
        assert count == 1 or (count <= max_rows and sum(sizes[first : first + count]) <= max_bytes)
        # No batch ends before it is full.
        assert following is None or count == max_rows or sum(sizes[first : first + count + 1]) > max_bytes


def _nested(value: Any) -> Any:
    return value if value is None else {**value, "map": value["map"] and list(value["map"].items())}


def test_bytes_of_rows_are_those_of_their_values() -> None:
    rows = [
        {"at": 1, "text": "a\u00e4", "nested": {"texts": ["abc", None, "d"], "map": [("ab", 1), ("c", None)]}},
        {"at": None, "text": None, "nested": None},
        {"at": 1, "text": "", "nested": {"texts": None, "map": []}},
    ]
    assert bytes_of_rows(pa.RecordBatch.from_pylist(rows, SCHEMA)).tolist() == [8 + 3 + 4 + (2 + 8) + (1 + 8), 8, 8]
    assert bytes_of_rows(pa.RecordBatch.from_pylist(rows, SCHEMA).slice(1)).tolist() == [8, 8]


def test_a_batch_of_ten_thousand_small_rows_is_passed_on_as_it_is() -> None:
    times = pa.array(range(25_000), pa.int64())
    rows = pa.RecordBatch.from_arrays([times, pa.nulls(25_000, pa.string()), pa.nulls(25_000, NESTED)], schema=SCHEMA)
    sizes = [batch.rows.num_rows for batch in batches_of_key(parts_of(rows, [3, 9_999, 20_500], 1))]
    assert sizes == [10_000, 10_000, 5_000]
    assert rows.nbytes < MAX_BYTES


class Counted:
    """Emits how many elements a call has and what they sum up to, and sets a timer; refuses a part of them."""

    def process_batch(self, elements: pa.RecordBatch, ctx: tm.ProcessContext) -> Iterator[dict[str, object]]:
        if 0 in elements.column("t").to_pylist():
            raise ValueError("refused")
        ctx.timer_service().register_event_time_timer(ctx.timestamps[0].as_py() + 50)
        yield {"n": elements.num_rows, "total": pc.sum(elements.column("t")).as_py(), "watermark": ctx.current_watermark()}

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> Iterator[dict[str, object]]:
        yield {"n": -1, "total": timestamp, "watermark": ctx.current_watermark()}


def counted(rows: list[tuple[str, int, str]], at_once: int, most: int) -> dict[int, list[str]]:
    """Return the rows of one epoch by tag, where the task reads ``at_once`` rows at a time, and calls have at most ``most`` elements."""
    read = tm.source(
        "rows", tm.from_elements([{"k": "k0", "t": 5, "ops": ""}], schema=SCHEMA_OF_ROWS), watermarks=tm.ascending(timestamp="t")
    )
    stream = read.key_by("k").process(Counted, returns="n BIGINT, total BIGINT, watermark BIGINT", on_error=tm.OutputTag("failed"))
    node = stream.uid("p").node
    assert isinstance(node, KeyedProcessNode)
    cut = mock.Mock(side_effect=lambda parts: batches_of_key(parts, max_rows=most))
    with (
        mock.patch("tidemark.spark.operators.keyed.packed_task.ROWS_AT_ONCE", at_once),
        mock.patch("tidemark.semantics.keyed_process.batch_walk.batches_of_key", cut),
    ):
        return by_tag(Tasks(ProcessKeys, node).run(rows, EpochTimes(0, 100, 0, 0)))


@pytest.mark.usefixtures("spark")
def test_a_key_has_the_same_calls_in_any_company() -> None:
    ours = [("k3", time, "") for time in range(10)]
    expected: dict[int, list[Any]] = {}
    for others in (0, 3, 16):
        for at_once in (1, 4, 7, 10_000):
            rows = [("k1", time, "") for time in range(1, others)] + ours + [("k5", 1, "")]
            found = {tag: [row for row in map(json.loads, each) if "k3" in row.values()] for tag, each in counted(rows, at_once, 6).items()}
            del found[max(found)], found[max(found)]
            expected = expected or found
            assert found == expected
    (failed,) = expected[FAILED_ROW]
    assert failed["row_t"] == 0
    results = [tuple(row[f"result_{name}"] for name in ("n", "total", "watermark")) for row in expected[OUTPUT]]
    alone = [(1, time, time - 1) for time in range(1, 6)]
    assert results == [*alone, (4, 6 + 7 + 8 + 9, 5), *((-1, time + 50, 100) for time in range(1, 7))]
