"""The reference, sentence by sentence of the contract."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest

from tidemark.errors import DefinitionError
from tidemark.semantics.reference.reference import Epoch, EpochResult, Malformed, OperatorCounts, ReferenceJob, SourceCounts, run_reference
from tidemark.semantics.reference.reference_operator import Element, Fold, OpenWindow
from tidemark.semantics.triggers.panes import Pane
from tidemark.semantics.watermarks.event_time import NULL_EVENT_TIME, OUT_OF_RANGE, TOO_FAR_AHEAD
from tidemark.semantics.watermarks.watermarks import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    Ascending,
    BoundedOutOfOrderness,
    IngestionTime,
    Punctuated,
    WatermarkStrategy,
)
from tidemark.semantics.windows.assigners import Tumbling
from tidemark.semantics.windows.windows import MergedWindow, TimeDomain, Window, WindowAssigner, merge_touching

TAKEN = Fold[tuple[object, ...]](
    create=tuple, add=lambda taken, value, _timestamp, _position: (*taken, value), result=lambda taken: "".join(map(str, taken))
)
"""The values in the order they were taken, as one text."""

ASCENDING = WatermarkStrategy("t", Ascending(), max_future_skew_ms=None)
TEN = Tumbling(10)


def job(strategy: WatermarkStrategy = ASCENDING, *, assigner: WindowAssigner = TEN, lateness: int = 0) -> ReferenceJob[tuple[object, ...]]:
    return ReferenceJob({"source": strategy}, assigner, TAKEN, lateness)


def epoch(*elements: tuple[int | None, str], now: int = 0, behind: Iterable[str] = (), ended: bool = False) -> Epoch:
    """Return an epoch of elements of the key ``a``, given as (event time, value); the place in the list is the position."""
    return Epoch(
        tuple(Element(("a",), time, value, position=(place,)) for place, (time, value) in enumerate(elements)),
        now,
        frozenset(behind),
        ended,
    )


def shown(results: Iterable[EpochResult]) -> list[list[tuple[int, str, int, object]]]:
    """Return start, timing, index and result of each epoch's panes."""
    return [[(pane.window.start, pane.timing, pane.index, pane.result) for pane in result.panes] for result in results]


class TestFiring:
    def test_window_fires_once_when_the_watermark_reaches_its_last_instant(self) -> None:
        results = run_reference(job(), [epoch((3, "x"), (7, "y")), epoch((9, "z")), epoch((10, "w")), epoch((15, "v"))])
        assert [result.watermark for result in results] == [6, 8, 9, 14]
        assert shown(results) == [[], [], [(0, "ON_TIME", 0, "xyz")], []]

    def test_fires_after_all_elements_of_its_epoch(self) -> None:
        (result,) = run_reference(job(), [epoch((10, "w"), (3, "x"), (25, "v"), (4, "y"))])
        assert shown([result]) == [[(0, "ON_TIME", 0, "xy"), (10, "ON_TIME", 0, "w")]]
        assert result.counts == OperatorCounts(rows_in=4, accepted=4, late=0)

    def test_elements_of_an_epoch_are_taken_in_event_time_order_ties_by_position(self) -> None:
        elements = (
            Element(("a",), 5, "3", position=(1, 7)),
            Element(("a",), 5, "2", position=(0, 9)),
            Element(("a",), 1, "1", position=(1, 8)),
            Element(("a",), 10, "", position=(0, 1)),
        )
        assert shown(run_reference(job(), [Epoch(elements)])) == [[(0, "ON_TIME", 0, "123")]]

    def test_later_epochs_come_after_earlier_ones_whatever_their_event_time(self) -> None:
        results = run_reference(job(WatermarkStrategy("t", BoundedOutOfOrderness(9))), [epoch((5, "1")), epoch((2, "2")), epoch((19, ""))])
        assert shown(results)[2] == [(0, "ON_TIME", 0, "12")]

    def test_windows_exist_only_where_elements_are(self) -> None:
        results = run_reference(job(), [epoch((3, "x"), (95, "y")), epoch(ended=True)])
        assert shown(results) == [[(0, "ON_TIME", 0, "x")], [(90, "ON_TIME", 0, "y")]]

    def test_keys_are_apart_and_null_is_a_key_like_any_other(self) -> None:
        elements = (Element((None,), 1, "n"), Element(("a",), 2, "a"), Element((None,), 3, "m"), Element(("b",), 10, "b"))
        (result,) = run_reference(job(), [Epoch(elements)])
        assert {pane.key: pane.result for pane in result.panes} == {(None,): "nm", ("a",): "a"}

    def test_windows_before_1970(self) -> None:
        results = run_reference(job(), [epoch((-1, "x"), (-10, "w"), (-11, "v")), epoch((0, "y"))])
        assert shown(results) == [[(-20, "ON_TIME", 0, "v")], [(-10, "ON_TIME", 0, "wx")]]

    def test_windows_with_offset(self) -> None:
        results = run_reference(job(assigner=Tumbling(10, 3)), [epoch((2, "x"), (3, "y")), epoch((13, "z"))])
        assert shown(results) == [[(-7, "ON_TIME", 0, "x")], [(3, "ON_TIME", 0, "y")]]

    def test_result_carries_the_windows_last_instant_as_its_time(self) -> None:
        (result,) = run_reference(job(), [epoch((3, "x"), (10, "y"))])
        assert [pane.result_time for pane in result.panes] == [9]


class TestLateness:
    def test_judged_against_the_watermark_of_the_epoch_before(self) -> None:
        results = run_reference(job(), [epoch((20, "x"), (3, "in the same epoch")), epoch((19, "y"), (21, "z"))])
        assert [result.counts.late for result in results] == [0, 1]
        assert [element.value for element in results[1].late] == ["y"]

    @pytest.mark.parametrize(("latest", "late"), [(14, False), (15, True)])
    def test_late_exactly_when_end_less_one_plus_lateness_is_reached(self, latest: int, late: bool) -> None:  # noqa: FBT001
        results = run_reference(job(lateness=5), [epoch((latest, "x")), epoch((3, "y"))])
        assert results[0].watermark == latest - 1
        assert bool(results[1].late) == late
        assert shown(results)[1] == ([] if late else [(0, "LATE", 0, "y")])

    @pytest.mark.parametrize(("latest", "late"), [(9, False), (10, True)])
    def test_late_without_allowed_lateness_as_soon_as_the_window_is_due(self, latest: int, late: bool) -> None:  # noqa: FBT001
        assert bool(run_reference(job(), [epoch((latest, "x")), epoch((3, "y"))])[1].late) == late

    def test_element_behind_the_watermark_is_not_late_while_its_window_is_open(self) -> None:
        results = run_reference(job(), [epoch((8, "x")), epoch((1, "y")), epoch((10, ""))])
        assert shown(results)[2] == [(0, "ON_TIME", 0, "xy")]

    def test_late_elements_come_out_as_they_went_in(self) -> None:
        gone = Element(("a",), 3, "gone", split="", position=(4, 2))
        assert run_reference(job(), [epoch((10, "x")), Epoch((gone,))])[1].late == (gone,)

    def test_state_is_gone_once_end_less_one_plus_lateness_is_reached(self) -> None:
        results = run_reference(job(lateness=5), [epoch((3, "x"), (10, "y")), epoch((14, "")), epoch((15, ""))])
        assert [[(open_.window.start, open_.panes) for open_ in result.open_windows] for result in results] == [
            [(0, 1), (10, 0)],
            [(0, 1), (10, 0)],
            [(10, 0)],
        ]
        assert results[0].open_windows[0] == OpenWindow(("a",), Window(0, 10), elements=1, panes=1, result="x")


class TestPanes:
    def test_late_pane_once_per_epoch_with_the_whole_result_anew(self) -> None:
        results = run_reference(
            job(lateness=10), [epoch((3, "a"), (10, "")), epoch((5, "c"), (4, "b")), epoch((11, "")), epoch((1, "d")), epoch((19, ""))]
        )
        assert shown(results) == [
            [(0, "ON_TIME", 0, "a")],
            [(0, "LATE", 1, "abc")],
            [],
            [(0, "LATE", 2, "abcd")],
            [],
        ]

    def test_window_that_begins_late_has_a_late_pane_of_index_0(self) -> None:
        results = run_reference(job(lateness=10), [epoch((12, "x")), epoch((4, "y")), epoch((5, "z")), epoch(ended=True)])
        assert shown(results) == [[], [(0, "LATE", 0, "y")], [(0, "LATE", 1, "yz")], [(10, "ON_TIME", 0, "x")]]

    def test_late_pane_also_in_the_epoch_in_which_the_window_expires(self) -> None:
        results = run_reference(job(lateness=5), [epoch((3, "x"), (10, "")), epoch((4, "y"), (40, ""))])
        assert shown(results)[1] == [(0, "LATE", 1, "xy"), (10, "ON_TIME", 0, "")]
        assert [open_.window.start for open_ in results[1].open_windows] == [40]

    def test_on_time_and_expired_at_once(self) -> None:
        results = run_reference(job(lateness=5), [epoch((3, "x")), epoch((40, "y")), epoch((4, "z"))])
        assert shown(results) == [[], [(0, "ON_TIME", 0, "x")], []]
        assert results[2].counts == OperatorCounts(1, 0, 1)

    def test_only_touched_keys_fire_again(self) -> None:
        first = Epoch((Element(("a",), 1, "a"), Element(("b",), 2, "b"), Element(("c",), 10, "c")))
        results = run_reference(job(lateness=10), [first, Epoch((Element(("b",), 3, "d"),))])
        assert results[1].panes == (Pane(("b",), Window(0, 10), "LATE", 1, "bd"),)


class TestSources:
    def test_malformed_elements_are_set_aside_with_the_reason_and_move_no_watermark(self) -> None:
        strategy = WatermarkStrategy("t", Ascending(), max_future_skew_ms=100)
        (result,) = run_reference(job(strategy), [epoch((None, "n"), (2**62, "r"), (151, "f"), (150, "x"), now=50)])
        assert [(entry.element.value, entry.reason) for entry in result.malformed] == [
            ("n", NULL_EVENT_TIME),
            ("r", OUT_OF_RANGE),
            ("f", TOO_FAR_AHEAD),
        ]
        assert result.watermark == 149
        assert result.source_counts == {"source": SourceCounts(read=4, passed=1, malformed=3)}
        assert result.counts == OperatorCounts(1, 1, 0)

    def test_malformed_elements_keep_no_split_awake(self) -> None:
        strategy = WatermarkStrategy("t", Ascending(), idle_after_ms=100)
        results = run_reference(job(strategy), [epoch((5, "x"), now=0), epoch((None, "n"), now=100)])
        assert isinstance(results[1].malformed[0], Malformed)
        assert results[1].sources["source"].idle

    def test_ingestion_time_is_the_epochs_and_nothing_is_late(self) -> None:
        strategy = WatermarkStrategy(None, IngestionTime())
        results = run_reference(job(strategy), [epoch((None, "x"), (10**18, "y"), now=5), epoch((0, "z"), now=9), epoch(now=10)])
        assert [result.watermark for result in results] == [4, 8, 9]
        assert shown(results) == [[], [], [(0, "ON_TIME", 0, "xyz")]]

    def test_processing_time_never_goes_back(self) -> None:
        strategy = WatermarkStrategy(None, IngestionTime())
        results = run_reference(job(strategy), [epoch((None, "x"), now=5), epoch((None, "y"), now=3)])
        assert [result.processing_time for result in results] == [5, 5]
        assert [result.watermark for result in results] == [4, 4]

    def test_punctuated_watermarks_come_from_marks(self) -> None:
        marked = Element(("a",), 12, "y", marks={"marker": 9})
        results = run_reference(job(WatermarkStrategy("t", Punctuated("m"))), [epoch((3, "x"), (50, "")), Epoch((marked,))])
        assert [result.watermark for result in results] == [MIN_WATERMARK, 9]
        assert shown(results) == [[], [(0, "ON_TIME", 0, "x")]]

    def test_operator_goes_by_the_least_of_its_sources(self) -> None:
        both = replace(job(), sources={"left": ASCENDING, "right": ASCENDING})
        left, right = Element(("a",), 30, "l", source="left", position=("left", 0)), Element(("a",), 3, "r", "right", position=("right", 0))
        results = run_reference(both, [Epoch((left,)), Epoch((right,)), Epoch((replace(right, timestamp=12),))])
        assert results[1].source_watermarks == {"left": 29, "right": 2}
        assert [result.watermark for result in results] == [MIN_WATERMARK, 2, 11]
        assert shown(results) == [[], [], [(0, "ON_TIME", 0, "r")]]

    def test_watermark_per_split(self) -> None:
        fast, slow = Element(("a",), 30, "f", split="0"), Element(("a",), 3, "s", split="1")
        results = run_reference(job(), [Epoch((fast, slow)), Epoch((replace(slow, timestamp=10),))])
        assert [result.watermark for result in results] == [2, 9]

    def test_idle_split_lets_windows_close_without_input(self) -> None:
        strategy = WatermarkStrategy("t", Ascending(), idle_after_ms=100)
        start = Epoch((Element(("a",), 30, "f", split="0"), Element(("a",), 3, "s", split="1")), 0)
        results = run_reference(
            job(strategy),
            [
                start,
                Epoch((Element(("a",), 31, "g", split="0"),), 90),
                Epoch((), 100, frozenset({"source"})),
                Epoch((), 190),
                Epoch((), 200),
            ],
        )
        assert [result.watermark for result in results] == [2, 2, 2, 2, 2]
        moved = run_reference(job(strategy), [start, Epoch((Element(("a",), 31, "g", split="0"),), 90), Epoch((), 100)])
        assert [result.watermark for result in moved] == [2, 2, 30]
        assert shown(moved)[2] == [(0, "ON_TIME", 0, "s")]

    def test_unknown_source(self) -> None:
        with pytest.raises(DefinitionError, match=r"no source named 'elsewhere'.*Fix: use one of source"):
            run_reference(job(), [Epoch((Element(("a",), 1, source="elsewhere"),))])


class TestEndOfInput:
    def test_drain_leaves_windows_open(self) -> None:
        (result,) = run_reference(job(), [epoch((3, "x"))])
        assert (result.panes, [open_.window for open_ in result.open_windows]) == ((), [Window(0, 10)])

    def test_everything_fires_and_no_state_is_left(self) -> None:
        (result,) = run_reference(job(lateness=10**9), [epoch((3, "x"), (57, "y"), ended=True)])
        assert shown([result]) == [[(0, "ON_TIME", 0, "x"), (50, "ON_TIME", 0, "y")]]
        assert (result.watermark, result.open_windows) == (MAX_WATERMARK, ())

    def test_fired_windows_do_not_fire_again(self) -> None:
        results = run_reference(job(lateness=10**9), [epoch((3, "x"), (10, "y")), epoch(ended=True)])
        assert shown(results) == [[(0, "ON_TIME", 0, "x")], [(10, "ON_TIME", 0, "y")]]

    def test_what_comes_after_it_is_late(self) -> None:
        results = run_reference(job(lateness=10**9), [epoch((3, "x"), ended=True), epoch((10**12, "y"))])
        assert [element.value for element in results[1].late] == ["y"]


@dataclass(frozen=True)
class Gaps:
    """The least assigner that merges, to show that the protocol carries sessions."""

    gap: int
    merging: bool = True
    domain: TimeDomain = "event"

    def assign(self, timestamp: int, gap_ms: int | None = None) -> tuple[Window, ...]:  # noqa: ARG002
        return (Window(timestamp, timestamp + self.gap),)

    def merge(self, windows: Iterable[Window]) -> tuple[MergedWindow, ...]:
        return merge_touching(windows)

    def describe(self) -> str:
        return f"gaps({self.gap} ms)"


@dataclass(frozen=True)
class Overlapping:
    """Windows of 10 every 5, to show that the protocol carries several windows per element."""

    merging: bool = False
    domain: TimeDomain = "event"

    def assign(self, timestamp: int, gap_ms: int | None = None) -> tuple[Window, ...]:  # noqa: ARG002
        start = timestamp - timestamp % 5
        return (Window(start - 5, start + 5), Window(start, start + 10))

    def describe(self) -> str:
        return "overlapping"


class TestOtherAssigners:
    def test_element_is_late_only_if_no_window_takes_it(self) -> None:
        results = run_reference(job(assigner=Overlapping()), [epoch((10, "x")), epoch((7, "y")), epoch((3, "z")), epoch(ended=True)])
        assert [result.counts.late for result in results] == [0, 0, 1, 0]
        assert shown(results)[3] == [(5, "ON_TIME", 0, "xy"), (10, "ON_TIME", 0, "x")]

    def test_windows_grow_together_within_and_across_epochs(self) -> None:
        results = run_reference(
            job(WatermarkStrategy("t", BoundedOutOfOrderness(100)), assigner=Gaps(5)),
            [epoch((0, "a"), (5, "b"), (20, "d")), epoch((12, "c")), epoch((8, "e")), epoch(ended=True)],
        )
        assert [[open_.window for open_ in result.open_windows] for result in results] == [
            [Window(0, 10), Window(20, 25)],
            [Window(0, 10), Window(12, 17), Window(20, 25)],
            [Window(0, 17), Window(20, 25)],
            [],
        ]
        assert shown(results)[3] == [(0, "ON_TIME", 0, "abce"), (20, "ON_TIME", 0, "d")]

    def test_late_element_that_joins_two_sessions_refires_the_merged_one(self) -> None:
        results = run_reference(
            job(assigner=Gaps(5), lateness=50),
            [epoch((0, "a"), (8, "b"), (30, "")), epoch((1, "c")), epoch((4, "d")), epoch((5, "e"))],
        )
        assert shown(results) == [
            [(0, "ON_TIME", 0, "a"), (8, "ON_TIME", 0, "b")],
            [(0, "LATE", 1, "ac")],
            [(0, "LATE", 2, "abcd")],
            [(0, "LATE", 3, "abcde")],
        ]
        assert [pane.replaces for result in results for pane in result.panes] == [(), (), ((0, 5),), ((0, 6), (8, 13)), ()]

    def test_lateness_of_a_session_is_judged_after_merging(self) -> None:
        results = run_reference(job(assigner=Gaps(10)), [epoch((8, "a")), epoch((17, "x")), epoch((5, "b"), (2, "c")), epoch((28, "y"))])
        assert [result.watermark for result in results] == [7, 16, 16, 27]
        assert [element.value for element in results[2].late] == []
        alone = run_reference(job(assigner=Gaps(10)), [epoch((30, "a")), epoch((5, "b"))])
        assert [element.value for element in alone[1].late] == ["b"]
