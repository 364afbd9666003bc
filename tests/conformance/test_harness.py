"""The operator harness: an operator's contract without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, cast

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


def twice(element: Mapping[str, Any], ctx: tm.ProcessContext) -> Iterable[Mapping[str, object]]:
    del ctx
    return [{"twice": 2 * element["fare"]}]


def forgetful(element: Mapping[str, Any], ctx: tm.ProcessContext) -> Iterable[Mapping[str, object]]:
    del element, ctx
    empty: dict[str, int] = {}
    return [{"n": empty["absent"]}]


def doubled() -> tm.Stream:
    return trips().key_by("zone").process(twice, returns="twice DOUBLE").uid("doubled")


@pytest.mark.parametrize(
    ("row", "message", "fix"),
    [
        ({"zone": "N", "fair": 5.0}, "has a column 'fair', which the operator's input has not; the columns are: ", "write 'fare'"),
        ({"fare": 1.0}, "lacks the column 'zone'; the columns are: ", "{'zone': None}"),
        (("N", 5.0), r"\('N', 5.0\) is no element", "by name: process"),
    ],
)
def test_an_element_that_is_not_as_the_input_is_refused_when_it_is_given(row: Any, message: str, fix: str) -> None:
    with pytest.raises(DefinitionError, match=message) as refused:
        OperatorHarness(doubled()).process(row, at=0)
    assert refused.value.uid == "doubled"
    assert __file__ in str(refused.value)
    assert fix in (refused.value.fix or "")


def test_what_the_operator_does_not_read_may_be_left_out_and_what_it_reads_may_not() -> None:
    harness = OperatorHarness(trips().key_by("zone").window(tm.tumbling("10 seconds")).aggregate(fares=tm.sum("fare")).uid("w"))
    harness.process({"zone": "N", "fare": 1.0}, at=0)
    for row, missing in (({"zone": "N"}, "fare"), ({"fare": 1.0}, "zone")):
        with pytest.raises(DefinitionError, match=f"lacks the column '{missing}'"):
            harness.process(row, at=0)
    assert [row["fares"] for row in harness.end_input()] == [1.0]


def test_a_column_that_only_a_function_reads_is_named_with_the_line_of_its_element() -> None:
    harness = OperatorHarness(doubled())
    harness.process({"zone": "N"}, at=0)
    with pytest.raises(DefinitionError, match="lacks the column 'fare', which its function reads") as refused:
        harness.end_input()
    assert __file__ in str(refused.value)
    other = OperatorHarness(trips().key_by("zone").process(forgetful, returns="n INT").uid("other"))
    other.process({"zone": "N"}, at=0)
    with pytest.raises(KeyError, match="absent"):
        other.end_input()


def test_columns_that_are_given_are_checked_with_their_types() -> None:
    harness = OperatorHarness(doubled(), schema="zone STRING, fare DOUBLE")
    harness.process({"zone": "N", "fare": 2.0}, at=0)
    for row, message in (({"zone": "N", "fare": "2.0"}, "does not fit schema=: .*fare"), ({"fare": 2.0}, "lacks the column 'zone'")):
        with pytest.raises(DefinitionError, match=message):
            harness.process(row, at=0)
    assert harness.end_input() == [{"twice": 4.0}]
    with pytest.raises(DefinitionError, match="names the input 'left', which the operator does not have"):
        OperatorHarness(doubled(), schema={"left": "zone STRING"})


def test_times_and_operations_are_checked_when_they_are_given() -> None:
    harness = OperatorHarness(doubled())
    for at in ("2020-01-01", 1.5, True, None):
        with pytest.raises(DefinitionError, match="is no time"):
            harness.process({"zone": "N", "fare": 2.0}, at=at)  # type: ignore[arg-type]  # that is the mistake
        with pytest.raises(DefinitionError, match="is no time"):
            harness.advance_watermark(at)  # type: ignore[arg-type]  # that is the mistake
    with pytest.raises(DefinitionError, match="operation='upsert' is no change of a row"):
        harness.process({"zone": "N", "fare": 2.0}, at=0, operation="upsert")


HIGH, UNUSED = tm.OutputTag("high"), tm.OutputTag("unused")


class Total:
    """Adds up the fares of a zone."""

    total = tm.value_state("DOUBLE", default=0.0)

    def process(self, element: Mapping[str, Any], ctx: tm.ProcessContext) -> Iterable[Mapping[str, Any]]:
        self.total.update(self.total.value() + element["fare"])
        ctx.output("high", {"fare": element["fare"]})
        yield {"total": self.total.value(), "mark": ctx.current_watermark()}


class Same(Total):
    """The same, with what it inherits."""


def total_harness() -> OperatorHarness:
    returns = "total DOUBLE, mark BIGINT"
    return OperatorHarness(trips().key_by("zone").process(Total, returns=returns, side_outputs={HIGH: "fare DOUBLE"}).uid("totals"))


def test_a_side_output_is_found_by_its_tag_and_by_its_name() -> None:
    harness = total_harness()
    harness.process({"zone": "N", "fare": 5.0}, at=0)
    harness.advance_watermark(0)
    assert harness.side_output(HIGH) == harness.side_output("high") == [{"fare": 5.0}]
    unknown: Any = 5
    for wrong in ("unknown", UNUSED, "late", unknown):
        with pytest.raises(DefinitionError, match="the operator has no side output") as caught:
            harness.side_output(wrong)
        assert caught.value.fix == "give a tag that it has, or its name: 'high'"
        assert caught.value.uid == "totals"
    windowed = OperatorHarness(trips().key_by("zone").window(tm.tumbling("10 s")).late_to(LATE).aggregate(n=tm.count()).uid("w"))
    assert windowed.side_output(LATE) == windowed.side_output("too-late") == windowed.side_output("late") == []
    with pytest.raises(DefinitionError) as caught:
        windowed.side_output("lat")
    assert caught.value.fix == "give a tag that it has, or its name: 'too-late'"


def test_an_element_without_a_time_is_refused_with_what_a_time_is() -> None:
    process: Any = total_harness().process
    for arguments in (({"zone": "N"},), ({"zone": "N"}, 5)):
        with pytest.raises(DefinitionError, match="lacks at=, the event time of the element: milliseconds since 1970 UTC") as caught:
            process(*arguments)
        assert "process(row, at=1_000)" in caught.value.fix
    with pytest.raises(DefinitionError, match=r"\.process\(\.\.\.\) lacks row and at=, the event time of the element"):
        process()
    with pytest.raises(DefinitionError, match=r"\.advance_watermark\(\.\.\.\) lacks to") as caught:
        cast("Any", total_harness()).advance_watermark()
    assert caught.value.fix == "write .advance_watermark(to)"


def test_a_watermark_that_is_not_higher_ends_the_epoch_and_changes_nothing() -> None:
    harness = total_harness()
    for to in (50, 20, 50):
        harness.process({"zone": "N", "fare": 5.0}, at=60)
        assert len(harness.advance_watermark(to)) == 1
        assert harness.watermark == 50
    assert [each.row["mark"] for each in harness.emitted] == [50, 50, 50]


def test_a_function_with_inherited_states_needs_a_key() -> None:
    with pytest.raises(DefinitionError, match="which has the state 'total', and a stream without keys keeps none") as caught:
        trips().process(Same, returns="total DOUBLE, mark BIGINT")
    assert caught.value.fix == "key the stream: .key_by('id').process(Same, ...)"
