"""The operator harness: an operator's contract without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import pytest

import tidemark as tm
from tidemark.errors import DefinitionError
from tidemark.testing import OperatorHarness, folds

LATE = tm.OutputTag("too-late")


def trips() -> tm.Stream:
    """Return the elements that come into the operators here."""
    given = tm.from_elements([], schema="at TIMESTAMP, zone STRING, fare DOUBLE, gap BIGINT")
    return tm.source("trips", given, watermarks=tm.ascending(timestamp="at"))


def test_windows_fire_and_turn_late_elements_away() -> None:
    stream = trips().key_by("zone").window(tm.tumbling("10 seconds")).late_to(LATE).aggregate(n=tm.count(), most=tm.max("fare"))
    harness = OperatorHarness(stream.uid("w"))
    harness.process({"zone": "N", "fare": 5.0}, at=datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC))
    harness.process({"zone": "N", "fare": 7.0}, at=9_000)
    harness.process({"zone": None, "fare": 1.0}, at=10_000)
    assert harness.advance_watermark(9_998) == []
    rows = harness.advance_watermark(9_999)
    assert rows == [
        {
            "zone": "N",
            "window_start": datetime(1970, 1, 1, tzinfo=UTC),
            "window_end": datetime(1970, 1, 1, 0, 0, 10, tzinfo=UTC),
            "n": 2,
            "most": 7.0,
            "pane_timing": "ON_TIME",
            "pane_index": 0,
        }
    ]
    harness.process({"zone": "N", "fare": 2.0}, at=9_999)
    assert [(row["zone"], row["n"]) for row in harness.end_input()] == [(None, 1)]
    assert harness.side_output(LATE) == harness.side_output("late") == [{"zone": "N", "fare": 2.0}]
    assert harness.counts == {"in": 4, "accepted": 3, "late": 1}
    assert harness.state() == []


def test_sessions_with_gaps_of_their_own_merge() -> None:
    harness = OperatorHarness(trips().key_by("zone").window(tm.session(gap_by="gap")).aggregate(n=tm.count()).uid("s"))
    harness.process({"zone": "N", "gap": 10}, at=0)
    harness.process({"zone": "N", "gap": 1}, at=10)
    assert [(row["n"], row["replaces"]) for row in harness.advance_watermark(20)] == [(2, [])]


def test_functions_see_rows_and_keep_state() -> None:
    def numbered(elements: Iterable[Mapping[str, object]], context: tm.WindowContext) -> Iterable[Mapping[str, object]]:
        context.key_state["seen"] = int(str(context.key_state.get("seen", 0))) + len(list(elements))
        yield {"seen": context.key_state["seen"]}

    stream = trips().key_by("zone").window(tm.tumbling("10 seconds")).process(numbered, returns="seen BIGINT")
    harness = OperatorHarness(stream.uid("p"))
    for at in (1_000, 2_000, 11_000):
        harness.process({"zone": "N"}, at=at)
    assert [row["seen"] for row in harness.end_input()] == [2, 3]


def test_windows_of_processing_time_go_by_the_epochs() -> None:
    stream = trips().key_by("zone").window(tm.tumbling("10 seconds", time="processing")).aggregate(n=tm.count())
    harness = OperatorHarness(stream.uid("w"))
    for at, processing_time in ((500_000, 1_000), (0, 9_000), (1, 12_000)):
        harness.process({"zone": "N"}, at=at)
        harness.set_processing_time(processing_time)
        # The watermark of the input says nothing to them.
        rows = harness.advance_watermark(1_000_000)
        assert [row["n"] for row in rows] == ([2] if processing_time == 12_000 else [])
    assert harness.counts == {"in": 3, "accepted": 3}


def test_aggregates_of_python_are_the_users_own() -> None:
    longest = tm.python_aggregate(
        str,
        lambda state, zone: max(state, zone, key=len),
        lambda one, other: max(one, other, key=len),
        str.upper,
        arguments=["zone"],
        state="STRING",
        returns="STRING",
    )
    harness = OperatorHarness(trips().window_all(tm.tumbling("10 seconds")).aggregate(longest=longest).uid("a"))
    harness.process({"zone": "ab"}, at=1)
    harness.process({"zone": "abc"}, at=2)
    assert [row["longest"] for row in harness.end_input()] == ["ABC"]


def test_aggregates_of_sql_need_a_fold() -> None:
    stream = trips().key_by("zone").window(tm.tumbling("10 seconds")).aggregate(half=tm.approx_percentile("fare", 0.5)).uid("q")
    with pytest.raises(DefinitionError, match="does not know the aggregate 'half' \\(approx_percentile\\)"):
        OperatorHarness(stream)
    harness = OperatorHarness(stream, folds={"half": folds.percentile(0.5)})
    for fare in (1.0, 2.0, 9.0):
        harness.process({"zone": "N", "fare": fare}, at=5)
    assert [row["half"] for row in harness.end_input()] == [2.0]


def test_what_cannot_be_run_here_is_refused() -> None:
    with pytest.raises(DefinitionError, match="needs the stream of a stateful operator"):
        OperatorHarness(trips())
    harness = OperatorHarness(trips().key_by(area="upper(zone)").window(tm.tumbling("10 seconds")).aggregate(n=tm.count()).uid("k"))
    harness.process({"zone": "N"}, at=1)
    with pytest.raises(DefinitionError, match="evaluates no SQL: key 'area' is 'upper\\(zone\\)'"):
        harness.advance_watermark(1)
    with pytest.raises(DefinitionError, match="no input 'right'"):
        harness.process({"zone": "N"}, at=1, port="right")
    with pytest.raises(DefinitionError, match="has no time zone"):
        harness.process({"zone": "N"}, at=datetime(1970, 1, 1))  # noqa: DTZ001 - that is the mistake
