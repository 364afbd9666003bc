"""What must not depend on how the work is spread over tasks, nor on how the input is cut into epochs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.engine.drive import Seen, aggregated, run_engine
from tests.engine.expected import run_expected
from tests.engine.streams import Operator, Row, Scenario, Shape, Source, fill
from tests.seeds import PROFILE, only_long
from tidemark.semantics.triggers.builtin_triggers import CountTrigger, EachEpochTrigger, EventTimeTrigger, PurgingTrigger
from tidemark.semantics.watermarks.watermarks import BoundedOutOfOrderness, WatermarkStrategy
from tidemark.semantics.windows.assigners import Cumulative, Sliding, Tumbling

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NOW = 1_700_000_000_000
BOUND = 20
KEYS = [None, *(f"k{number}" for number in range(15))]

Content = dict[tuple[object, ...], tuple[object, ...]]
"""Aggregates by key and window."""


def strategy(*, split_by: str | None = None) -> WatermarkStrategy:
    return WatermarkStrategy("t", BoundedOutOfOrderness(BOUND), split_by=split_by)


def disorderly() -> Scenario:
    """A scenario with everything in it: two sources, splits, late and malformed elements, three epochs."""
    operators = (
        Operator("w0", Tumbling(30, 7), 25, ("a", "b")),
        Operator("w1", Tumbling(11), 0, ("b",)),
        Operator("w2", Sliding(30, 8), 25, ("a", "b")),
        Operator("w3", Cumulative(40, 10), 0, ("b",)),
        Operator("w4", Tumbling(30), 10, ("b",), EventTimeTrigger(early=CountTrigger(3))),
        Operator("w5", Sliding(40, 20), 30, ("b",), PurgingTrigger(EventTimeTrigger(early=CountTrigger(2)))),
    )
    clock = tuple(NOW + 1000 * epoch for epoch in range(4))
    shape = Shape(origin=0, unit=1, drift=35, operators=operators, keys=KEYS, rows=200, strays=False, clock=clock)
    sources = (Source("a", strategy(split_by="s"), timestamps=False), Source("b", strategy(), timestamps=True))
    filled = tuple(fill(Random(44 + number), source, shape, epochs=3, first_id=10_000 * number) for number, source in enumerate(sources))
    return Scenario(filled, operators, clock)


def test_the_number_of_partitions_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    scenario = disorderly()
    expected = run_expected(scenario)
    assert sum(len(panes) for epoch in expected for panes in epoch.panes.values()) > 100
    assert all(any(pane[3] == "LATE" for epoch in expected for pane in epoch.panes[uid]) for uid in ("w0", "w2", "w5"))
    assert all(any(epoch.late[uid] for epoch in expected) for uid in ("w1", "w2", "w3"))
    assert all(any(pane[3] == "EARLY" for epoch in expected for pane in epoch.panes[uid]) for uid in ("w4", "w5"))
    assert any(epoch.malformed["a"] for epoch in expected)
    # Two of them are what all other tests have.
    for partitions in (1, 7) if PROFILE == "long" else (7,):
        found = run_engine(scenario, spark, tmp_path, name=f"with{partitions}", parallelism=partitions)
        assert found == expected, f"{partitions} partitions"


def punctual(random: Random, *, behind: int, first_id: int) -> list[Row]:
    """Return elements in order of arrival, none of them more than ``behind`` behind the greatest before it."""
    greatest, rows = 0, []
    for number in range(200):
        moment = greatest + random.choice([random.randint(-behind, 8), -behind, 0, 1])
        greatest = max(greatest, moment)
        rows.append(Row(first_id + number, random.choice(KEYS), None, moment, random.choice([None, random.randint(-9, 9)])))
    return rows


def cut(rows: list[Row], epochs: int) -> tuple[tuple[Row, ...], ...]:
    size = len(rows) // epochs
    assert size * epochs == len(rows)
    return tuple(tuple(rows[start : start + size]) for start in range(0, len(rows), size))


def final(seen: list[Seen], uid: str) -> Content:
    """Return each window's content as its last pane has it."""
    panes = sorted((pane for epoch in seen for pane in epoch.panes[uid]), key=lambda pane: int(str(pane[4])))
    return {pane[:3]: pane[5:] for pane in panes}


def plain(rows: list[Row], operator: Operator) -> Content:
    """Return what the windows hold when nothing is late, computed from all elements at once."""
    content: defaultdict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row.time, row.id)):
        for window in operator.assigner.assign(row.time or 0):
            content[row.key, window.start, window.end].append(row)
    return {place: aggregated(members, operator) for place, members in content.items()}


@only_long
def test_other_boundaries_leave_the_final_content_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    lateness = 60
    prompt = punctual(Random(1), behind=BOUND, first_id=0)
    tardy = punctual(Random(2), behind=BOUND + lateness, first_id=10_000)
    operators = (
        Operator("prompt", Tumbling(30, 7), 0, ("a",)),
        Operator("sliding", Sliding(40, 15), 0, ("a",)),
        Operator("tardy", Tumbling(17), lateness, ("b",)),
        Operator("growing", Cumulative(60, 20), lateness, ("b",)),
        Operator("early", Tumbling(25), lateness, ("b",), EventTimeTrigger(early=EachEpochTrigger())),
    )
    whole = Scenario(
        (
            Source("a", strategy(), timestamps=False, batches=(tuple(prompt),)),
            Source("b", strategy(), timestamps=False, batches=(tuple(tardy),)),
        ),
        operators,
        clock=(NOW,) * 6,
    )
    panes = {}
    for epochs in (1, 5):
        scenario = replace(whole, sources=tuple(replace(s, batches=cut(list(s.batches[0]), epochs)) for s in whole.sources))
        seen = run_engine(scenario, spark, tmp_path, name=f"in{epochs}")
        assert len(seen) == epochs + 1
        for operator in operators:
            rows = prompt if operator.sources == ("a",) else tardy
            assert final(seen, operator.uid) == plain(rows, operator), f"{operator.uid}, {epochs} epochs"
        assert not any(late for epoch in seen for late in epoch.late.values())
        panes[epochs] = sum(len(epoch.panes["tardy"]) for epoch in seen)
    # Otherwise nothing came late enough to fire a window again, and the test would have shown little.
    assert panes[5] > panes[1]
