"""The walk in batches ends each call where the walk element by element has a timer fire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidemark.semantics.keyed_process.batch_walk import BatchWalk
from tidemark.semantics.keyed_process.context import ProcessContext, Row
from tidemark.semantics.keyed_process.element_batches import ElementBatch
from tidemark.semantics.keyed_process.key_record import KeyRecord
from tidemark.semantics.keyed_process.states import State
from tidemark.semantics.keyed_process.times import EpochTimes
from tidemark.semantics.keyed_process.walk import ElementWalk, Failed, Process, Walked

TIMES = st.lists(st.integers(0, 60), max_size=12).map(sorted)
TIMERS = st.sets(st.integers(-5, 80), max_size=6)
EPOCHS = st.builds(
    lambda before, more, bound: EpochTimes(before, before + more, bound, processing_time=0),
    st.integers(-10, 40),
    st.integers(0, 50),
    st.integers(0, 8),
)


@dataclass
class Seen:
    """A function that notes its elements and timers, in batches or not, and sets a timer for each timer that is due at an even time."""

    facts: list[tuple[str, int]] = field(default_factory=list)
    calls: int = 0

    def bind(self, states: Mapping[str, State], ctx: ProcessContext) -> None:
        """Nothing is kept."""

    @property
    def inputs(self) -> Sequence[Process]:
        return (self.process,)

    def process(self, rows: Row | pa.RecordBatch, ctx: ProcessContext) -> None:
        times = ctx.timestamps.to_pylist() if isinstance(rows, pa.RecordBatch) else [ctx.timestamp]
        if isinstance(rows, pa.RecordBatch):
            assert rows.column("at").to_pylist() == times
            assert ctx.timestamp == times[-1]
        self.facts += [("element", time) for time in times]
        self.calls += 1

    def on_timer(self, timestamp: int, ctx: ProcessContext) -> None:
        self.facts.append(("timer", timestamp))
        if timestamp % 2 == 0:
            ctx.timer_service().register_event_time_timer(timestamp + 7)


def record(timers: set[int]) -> KeyRecord:
    return KeyRecord({}, {"event": {(time, "") for time in timers}, "processing": set()})


@settings(max_examples=400, deadline=None)
@given(TIMES, TIMERS, EPOCHS)
@example([5, 5, 6], {5}, EpochTimes(0, 6, 0, 0))
@example([1, 2, 3], {10}, EpochTimes(5, 20, 0, 0))
def test_elements_and_timers_come_in_the_same_order(times: list[int], timers: set[int], epoch: EpochTimes) -> None:
    one_by_one, in_batches = Seen(), Seen()
    rows: list[tuple[dict[str, Any], int, int]] = [({"at": time}, time, 0) for time in times]
    walked, walked_in_batches = Walked(), Walked()
    assert not list(ElementWalk(one_by_one, {}, frozenset(), epoch).run({}, record(timers), rows, walked))
    instants = pa.array(times, pa.int64())
    batch = ElementBatch(pa.RecordBatch.from_arrays([instants], ["at"]), instants, 0)
    assert not list(BatchWalk(in_batches, {}, frozenset(), epoch).run({}, record(timers), [batch], walked_in_batches))
    assert in_batches.facts == one_by_one.facts
    assert walked_in_batches == walked
    # No call ends but where a timer fires.
    assert in_batches.calls <= 1 + walked.fired


class Decoding(Seen):
    """A function that reads the texts of its elements."""

    def process(self, rows: Row | pa.RecordBatch, ctx: ProcessContext) -> None:
        assert isinstance(rows, pa.RecordBatch)
        self.facts += zip(rows.column("line").to_pylist(), ctx.timestamps.to_pylist(), strict=True)


def test_an_element_that_python_cannot_read_is_put_aside_alone() -> None:
    """Spark takes the bytes of a text file for text, whatever they are."""
    seen, instants, walked = Decoding(), pa.array([1, 2, 3], pa.int64()), Walked()
    ends = pa.array([0, 1, 3, 6], pa.int32()).buffers()[1]
    lines = pa.Array.from_buffers(pa.string(), 3, [None, ends, pa.py_buffer(b"ab\xe9ccc")])
    batch = ElementBatch(pa.RecordBatch.from_arrays([instants, lines], ["at", "line"]), instants, 0)
    walk = BatchWalk(seen, {}, frozenset(), EpochTimes(0, 10, 0, 0), forgives=True)
    (failed,) = walk.run({}, record(set()), [batch], walked)
    assert isinstance(failed, Failed)
    assert (failed.row, failed.time) == ({"at": 2}, 2)
    assert "UnicodeDecodeError" in failed.error
    assert seen.facts == [("a", 1), ("ccc", 3)]
