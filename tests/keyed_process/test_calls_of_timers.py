"""The call of a timer: what it is named in errors, and what is known of it while its rows are taken in parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from unittest import mock

import pytest

from tidemark.graph.operators.keyed_process.function import BoundFunction
from tidemark.semantics.keyed_process import plain_walk
from tidemark.semantics.keyed_process.context import ProcessContext
from tidemark.semantics.keyed_process.key_record import KeyRecord
from tidemark.semantics.keyed_process.plain_walk import PlainWalk
from tidemark.semantics.keyed_process.times import EpochTimes
from tidemark.semantics.keyed_process.walk import ElementWalk, Failed, Walked

TIMES = EpochTimes(before=0, watermark=100, bound=0, processing_time=0)
KEY = {"k": "x"}


class Emitting:
    """Has a named timer that emits three rows and fails."""

    def process(self, _element: Mapping[str, object], ctx: ProcessContext) -> None:
        ctx.timer_service().register_event_time_timer(50, "end")

    def on_timer(self, _timestamp: int, ctx: ProcessContext) -> Iterator[dict[str, object]]:
        for number in range(3):
            yield {"n": number, "name": ctx.timer_name, "domain": ctx.time_domain}
        raise ValueError("no more")


def flush(_timestamp: int, _ctx: ProcessContext) -> int:
    return 5


class Assigned:
    """Has a function of another name as its method."""

    def __init__(self) -> None:
        self.on_timer = flush

    def process(self, _element: Mapping[str, object], ctx: ProcessContext) -> None:
        ctx.timer_service().register_event_time_timer(50)


class WithoutTimers(Assigned):
    def __init__(self) -> None:
        self.on_timer = None  # type: ignore[assignment]


@pytest.mark.parametrize("held", [1, 2, 5_000])
def test_a_timer_whose_rows_are_taken_in_parts_stays_the_one_that_fires(held: int) -> None:
    walk = PlainWalk(BoundFunction(Emitting()), {}, frozenset(), TIMES)
    rows: list[Mapping[str, object]] = []
    with mock.patch.object(plain_walk, "ROWS_HELD", held):
        walk.begin(KEY, KeyRecord())
        assert walk.process([{"n": 1}], [10], Walked()) is None
        with pytest.raises(ValueError, match="no more"):
            _run_out(walk, rows)
    assert [*rows, *(row for _, row, _ in walk.emitted)] == [{"n": n, "name": "end", "domain": "event"} for n in range(3)]
    assert walk.timer == 50


def _run_out(walk: PlainWalk, rows: list[Mapping[str, object]]) -> None:
    more = walk.finish(Walked())
    while more is not None:
        rows += [row for _, row, _ in walk.emitted]
        walk.emitted.clear()
        assert walk.timer == 50
        more = more()


@pytest.mark.parametrize(("function", "said"), [(Assigned(), "on_timer returned 5"), (WithoutTimers(), "sets timers and has no on_timer")])
def test_a_failed_timer_is_named_by_its_method(function: Assigned, said: str) -> None:
    walk = ElementWalk(BoundFunction(function), {}, frozenset(), TIMES, forgives=True)
    failed = list(walk.run(KEY, KeyRecord(), [({"n": 1}, 10, 0)], Walked()))
    assert [type(each) for each in failed] == [Failed]
    assert said in failed[0].error  # type: ignore[union-attr]
