"""A keyed function that is no window, on the one task over keys: a value per key and an event-time timer; without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from tidemark.errors import UserCodeError
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.spark.columns.expressions import TIME
from tidemark.spark.operators.keyed.columns import (
    ACCEPTED,
    DUE,
    EPOCH,
    HASH,
    HASH_AGAIN,
    NEW,
    NOTE,
    OPENED,
    OUTPUT,
    SORT,
    STATE,
    TAG,
    VERSION,
    VERSION_FIELDS,
)
from tidemark.spark.operators.keyed.key_state import EMPTY_VERSION, ErrorContext, Version
from tidemark.spark.operators.keyed.layout import Layout
from tidemark.spark.operators.keyed.task import KeyCall, KeyFunction, KeyResult, KeyRun, KeyTask

Row = dict[str, Any]

FIELDS = {
    "key_k": T.StructField("key_k", T.StringType()),
    "row_v": T.StructField("row_v", T.LongType()),
    TIME: T.StructField(TIME, T.LongType()),
    "result_total": T.StructField("result_total", T.LongType()),
}
LAYOUT = Layout({"k": "key_k"}, {"v": "row_v"}, (TIME,), FIELDS, results={"total": "result_total"})


@dataclass(frozen=True)
class TotalAfterSilence(KeyFunction):
    """Adds up the values of a key; gives the total and clears its state ``silence`` after the last one."""

    silence: int
    refuses: ClassVar[int] = -1

    def run(self, call: KeyCall) -> KeyRun:
        kept: dict[str, Any] = {"total": 0, "timer": None} if call.before.state is None else json.loads(call.before.state)
        accepted = 0
        for run in call.rows.of(NEW):
            for time, value in zip(run.values(TIME), run.values("row_v"), strict=True):
                if value == self.refuses:
                    raise ValueError("no such value")
                assert isinstance(time, int)
                assert isinstance(value, int)
                kept = {"total": kept["total"] + value, "timer": time + self.silence}
                accepted += 1
        if kept["timer"] is not None and kept["timer"] <= call.clock.watermark:
            call.out.add(OUTPUT, call.rows.first, result={"total": kept["total"]})
            yield from call.out.full_batches()
            return KeyResult(EMPTY_VERSION, accepted)
        return KeyResult(Version(json.dumps(kept), due=kept["timer"]), accepted)


def run_epoch(epoch: int, watermark: int, new: Sequence[tuple[str, int, int]], versions: Sequence[Row]) -> dict[int, list[Row]]:
    """Run the task over new rows (key, time, value) and what is kept, in batches of two rows; return what comes back by tag."""
    clock = OperatorClock("event", epoch, -1, watermark, processing_time=0)
    task = KeyTask(
        TotalAfterSilence(10),
        clock,
        LAYOUT.keys,
        LAYOUT.arrow(LAYOUT.output),
        LAYOUT.shapes,
        ErrorContext("u", "keyed function total", "take every value"),
    )
    rows: list[Row] = [{**row, TAG: VERSION, SORT: -row[EPOCH]} for row in versions]
    rows += [{"key_k": key, TIME: time, "row_v": value, TAG: NEW, SORT: time} for key, time, value in new]
    hashed = [{**row, HASH: ord(row["key_k"]), HASH_AGAIN: 1} for row in rows]
    hashed.sort(key=lambda row: (row[HASH], row[TAG], row[SORT]))
    first = [T.StructField(TAG, T.IntegerType()), *(T.StructField(name, T.LongType()) for name in (HASH, HASH_AGAIN, SORT))]
    schema = LAYOUT.arrow(T.StructType([*first, *LAYOUT.new, *VERSION_FIELDS]))
    batches = [
        pa.RecordBatch.from_pylist([{name: row.get(name) for name in schema.names} for row in hashed[start : start + 2]], schema=schema)
        for start in range(0, len(hashed), 2)
    ]
    found: dict[int, list[Row]] = {tag: [] for tag in (VERSION, OUTPUT, NOTE)}
    for batch in task(batches):
        for row in batch.to_pylist():
            found[row[TAG]].append(row)
    return found


def test_state_is_kept_until_a_timer_fires_and_then_nothing_is() -> None:
    first = run_epoch(0, 5, [("a", 1, 3), ("b", 2, 7), ("a", 4, 4)], [])
    assert first[OUTPUT] == []
    assert {row["key_k"]: (json.loads(row[STATE])["total"], row[DUE]) for row in first[VERSION]} == {"a": (7, 14), "b": (7, 12)}
    assert [sum(row[name] or 0 for row in first[NOTE]) for name in (ACCEPTED, OPENED)] == [3, 2]
    assert [row[DUE] for row in first[NOTE] if row[DUE] is not None] == [12]

    second = run_epoch(1, 13, [("a", 6, 1)], first[VERSION])
    assert [(row["key_k"], row["result_total"]) for row in second[OUTPUT]] == [("b", 7)]
    assert {row["key_k"]: row[STATE] is None for row in second[VERSION]} == {"a": False, "b": True}
    assert sum(row[OPENED] or 0 for row in second[NOTE]) == -1

    third = run_epoch(2, 16, [], [*first[VERSION], *second[VERSION]])
    assert [(row["key_k"], row["result_total"]) for row in third[OUTPUT]] == [("a", 8)]
    assert [(row["key_k"], row[STATE], row[DUE]) for row in third[VERSION]] == [("a", None, None)]

    fourth = run_epoch(3, 100, [], [*first[VERSION], *second[VERSION], *third[VERSION]])
    assert (fourth[OUTPUT], fourth[VERSION]) == ([], [])
    assert all(row[DUE] is None for row in fourth[NOTE])


def test_a_key_without_rows_whose_timer_lies_ahead_is_left_as_it_is() -> None:
    first = run_epoch(0, 5, [("a", 1, 3)], [])
    second = run_epoch(1, 10, [], first[VERSION])
    assert (second[OUTPUT], second[VERSION]) == ([], [])
    assert [row[DUE] for row in second[NOTE]] == [11]


def test_an_error_of_the_function_names_its_key() -> None:
    with pytest.raises(UserCodeError, match=r"keyed function total failed for the key \{'k': 'a'\}: ValueError: no such value"):
        run_epoch(0, 5, [("a", 1, -1)], [])
