"""How watermarks move: per split, idleness, per operator, by the clock alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from tidemark.errors import UserCodeError
from tidemark.semantics.watermarks.watermarks import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    Ascending,
    BoundedOutOfOrderness,
    IngestionTime,
    Punctuated,
    SourceEnd,
    SourceState,
    SplitObservation,
    SplitState,
    SplitStats,
    WatermarkStrategy,
    advance,
    end_of_input,
    next_idle_deadline,
    operator_watermark,
    processing_time_reaching,
    read_to_end,
    with_splits_of,
)

BOUNDED = WatermarkStrategy("t", BoundedOutOfOrderness(5))
IDLING = WatermarkStrategy("t", BoundedOutOfOrderness(5), idle_after_ms=100)
ADVANCING = WatermarkStrategy("t", BoundedOutOfOrderness(5), idle_after_ms=100, advance_when_idle=True)
DAY = 86_400_000


def after(
    strategy: WatermarkStrategy,
    state: SourceState,
    seen: Mapping[str, int | None] | None = None,
    *,
    now: int = 0,
    caught_up: bool = True,
) -> SourceState:
    """Advance by an epoch that showed one row per split named, at that event time."""
    observed = {split: SplitObservation(1, time) for split, time in (seen or {}).items()}
    return advance(strategy, state, observed, processing_time=now, caught_up=caught_up)


class TestSplits:
    def test_source_without_splits_has_one(self) -> None:
        state = after(BOUNDED, SourceState(), {"": 100})
        assert state.watermark == 94
        assert state.splits == {"": SplitState(watermark=94, max_event_time=100, rows=1)}

    def test_greatest_event_time_of_all_epochs_counts(self) -> None:
        state = after(BOUNDED, after(BOUNDED, SourceState(), {"": 100}), {"": 60})
        assert state.watermark == 94
        assert state.splits[""].max_event_time == 100
        assert state.splits[""].rows == 2

    def test_source_is_the_least_of_its_splits(self) -> None:
        assert after(BOUNDED, SourceState(), {"a": 100, "b": 50}).watermark == 44

    def test_each_split_keeps_its_own_greatest(self) -> None:
        state = after(BOUNDED, SourceState(), {"a": 100, "b": 50})
        assert after(BOUNDED, state, {"b": 80}).watermark == 74
        assert after(BOUNDED, state, {"a": 300}).watermark == 44

    def test_new_split_starts_at_the_beginning_but_moves_nothing_back(self) -> None:
        state = after(BOUNDED, after(BOUNDED, SourceState(), {"a": 100}), {"a": 200, "b": 20})
        assert state.splits["b"].watermark == 14
        assert state.watermark == 94
        assert after(BOUNDED, state, {"b": 150}).watermark == 144

    def test_split_known_before_its_first_row_holds_the_watermark(self) -> None:
        state = advance(
            BOUNDED, SourceState(), {"a": SplitObservation(1, 100), "b": SplitObservation(0, None)}, processing_time=0, caught_up=True
        )
        assert state.splits["b"].watermark == MIN_WATERMARK
        assert state.watermark == MIN_WATERMARK

    def test_first_real_split_takes_over_from_the_stand_in(self) -> None:
        silent = after(BOUNDED, SourceState())
        assert list(silent.splits) == [""]
        state = after(BOUNDED, silent, {"a": 100})
        assert list(state.splits) == ["a"]
        assert state.watermark == 94

    def test_stand_in_goes_also_when_it_is_observed_as_empty(self) -> None:
        observed = {"": SplitObservation(0, None), "a": SplitObservation(1, 100)}
        state = advance(BOUNDED, after(BOUNDED, SourceState()), observed, processing_time=0, caught_up=True)
        assert list(state.splits) == ["a"]

    def test_split_of_that_name_with_rows_stays(self) -> None:
        state = after(BOUNDED, after(BOUNDED, SourceState(), {"": 50}), {"a": 100})
        assert state.splits.keys() == {"", "a"}
        assert state.watermark == 44


class TestGenerators:
    def test_punctuated_reads_its_metric_of_this_epoch(self) -> None:
        strategy = WatermarkStrategy("t", Punctuated("mark"))
        observed = {"": SplitObservation(2, 500, {"marker": 70, "other": 1})}
        state = advance(strategy, SourceState(), observed, processing_time=0, caught_up=True)
        assert state.watermark == 70
        assert after(strategy, state, {"": 900}).watermark == 70
        lower = {"": SplitObservation(1, 900, {"marker": 60})}
        state = advance(strategy, state, lower, processing_time=0, caught_up=True)
        assert (state.watermark, state.splits[""].watermark) == (70, 70)

    def test_ingestion_time_moves_with_every_epoch(self) -> None:
        strategy = WatermarkStrategy(None, IngestionTime())
        state = after(strategy, SourceState(), {"": 50}, now=50)
        assert state.watermark == 49
        assert after(strategy, state, now=80).watermark == 79

    def test_user_generator_sees_what_is_promised(self) -> None:
        calls: list[SplitStats] = []

        @dataclass(frozen=True)
        class Mine:
            bound_ms: int = 0

            @property
            def metrics(self) -> Mapping[str, str]:
                return {"rank": "max(rank)"}

            def watermark(self, stats: SplitStats) -> int | None:
                calls.append(stats)
                return stats.metrics["rank"]

        strategy = WatermarkStrategy("t", Mine())
        state = advance(strategy, SourceState(), {"": SplitObservation(1, 9, {"rank": 4})}, processing_time=7, caught_up=True)
        state = advance(strategy, state, {}, processing_time=8, caught_up=True)
        assert state.watermark == 4
        assert calls == [SplitStats(9, {"rank": 4}, 7, MIN_WATERMARK), SplitStats(9, {"rank": None}, 8, 4)]

    @pytest.mark.parametrize(("returned", "expected"), [(-(10**30), MIN_WATERMARK), (10**30, MAX_WATERMARK), (None, MIN_WATERMARK), (3, 3)])
    def test_watermarks_stay_in_their_range(self, returned: int | None, expected: int) -> None:
        assert after(WatermarkStrategy("t", Returns(returned)), SourceState(), {"": 1}).watermark == expected

    @pytest.mark.parametrize("returned", [1.5, "7", True])
    def test_generator_that_returns_no_integer(self, returned: object) -> None:
        with pytest.raises(UserCodeError, match=r"watermark generator Returns returned .*Fix:"):
            after(WatermarkStrategy("t", Returns(returned)), SourceState(), {"": 1})

    def test_generator_that_fails(self) -> None:
        with pytest.raises(UserCodeError, match=r"watermark generator Returns failed .*out of luck.*Fix:") as caught:
            after(WatermarkStrategy("t", Returns(ValueError("out of luck"))), SourceState(), {"": 1})
        assert isinstance(caught.value.__cause__, ValueError)


@dataclass(frozen=True)
class Returns:
    """A generator that returns, or raises, what it was given."""

    value: object
    bound_ms: int = 0

    @property
    def metrics(self) -> Mapping[str, str]:
        return {}

    def watermark(self, stats: SplitStats) -> int | None:
        assert stats is not None
        if isinstance(self.value, Exception):
            raise self.value
        return self.value  # type: ignore[return-value]


class TestIdleness:
    def test_idle_split_holds_nothing_back(self) -> None:
        state = after(IDLING, SourceState(), {"a": 100, "b": 50}, now=1_000)
        state = after(IDLING, state, {"a": 200}, now=1_099)
        assert (state.watermark, state.splits["b"].idle) == (44, False)
        state = after(IDLING, state, {"a": 201}, now=1_100)
        assert (state.watermark, state.splits["b"].idle) == (195, True)

    def test_without_idle_after_nothing_is_ever_idle(self) -> None:
        state = after(BOUNDED, SourceState(), {"a": 100, "b": 50})
        assert after(BOUNDED, state, {"a": 200}, now=10**15).watermark == 44

    def test_not_idle_while_there_is_something_to_read(self) -> None:
        state = after(IDLING, SourceState(), {"a": 100, "b": 50}, now=0)
        state = after(IDLING, state, {"a": 200}, now=500, caught_up=False)
        assert (state.watermark, state.splits["b"].last_active) == (44, 500)
        assert after(IDLING, state, {"a": 200}, now=599).watermark == 44
        assert after(IDLING, state, {"a": 200}, now=600).watermark == 194

    def test_split_knows_better_than_its_source_whether_it_was_read_to_its_end(self) -> None:
        state = after(IDLING, SourceState(), {"a": 100, "b": 50}, now=0)
        ended = {"a": SplitObservation(1, 200), "b": SplitObservation(0, None, caught_up=True)}
        assert advance(IDLING, state, ended, processing_time=500, caught_up=False).watermark == 194
        waiting = {"a": SplitObservation(1, 200), "b": SplitObservation(0, None, caught_up=False)}
        assert advance(IDLING, state, waiting, processing_time=500, caught_up=True).watermark == 44

    def test_idle_split_wakes_with_its_rows_and_moves_nothing_back(self) -> None:
        state = after(IDLING, SourceState(), {"a": 100, "b": 50}, now=0)
        state = after(IDLING, state, {"a": 200}, now=100)
        state = after(IDLING, state, {"a": 300, "b": 150}, now=110)
        assert not state.splits["b"].idle
        assert state.watermark == 194
        assert after(IDLING, state, {"b": 250}, now=120).watermark == 244

    def test_idle_split_wakes_when_rows_may_wait_for_it(self) -> None:
        state = after(IDLING, SourceState(), {"a": 100, "b": 50}, now=0)
        state = after(IDLING, state, {"a": 200}, now=100)
        state = after(IDLING, state, {"a": 300}, now=110, caught_up=False)
        assert (state.splits["b"].idle, state.watermark) == (False, 194)

    def test_when_all_are_idle_the_watermark_stays(self) -> None:
        state = after(IDLING, SourceState(), {"a": 100, "b": 50}, now=0)
        state = after(IDLING, state, now=100)
        assert state.idle
        assert (state.watermark, state.advancing) == (44, False)
        assert after(IDLING, state, now=10**9).watermark == 44

    def test_source_that_never_had_a_row_becomes_idle(self) -> None:
        state = after(IDLING, SourceState(), now=1_000)
        assert not state.idle
        assert not after(IDLING, state, now=1_099).idle
        state = after(IDLING, state, now=1_100)
        assert state.idle
        assert state.watermark == MIN_WATERMARK


class TestAdvanceWhenIdle:
    def test_goes_on_with_the_clock_from_the_greatest_split(self) -> None:
        state = after(ADVANCING, SourceState(), {"a": 100, "b": 50}, now=1_000)
        state = after(ADVANCING, state, now=1_099)
        assert (state.watermark, state.advancing) == (44, False)
        state = after(ADVANCING, state, now=1_100)
        assert (state.watermark, state.advancing) == (194, True)
        assert after(ADVANCING, state, now=1_250).watermark == 344
        assert state.splits["a"].watermark == 94

    def test_is_not_ahead_of_an_element_of_this_moment(self) -> None:
        state = after(ADVANCING, SourceState(), {"": 1_050}, now=1_000)
        assert state.watermark == 1_044
        assert after(ADVANCING, state, now=1_100).watermark == 1_094
        assert after(ADVANCING, state, now=1_101).watermark == 1_095

    def test_element_after_a_silence_with_its_usual_delay_is_not_late(self) -> None:
        state = after(ADVANCING, SourceState(), {"": 600}, now=1_000)
        state = after(ADVANCING, state, now=5_000)
        assert 4_600 - 5 > state.watermark == 4_594
        state = after(ADVANCING, state, {"": 4_601}, now=5_001)
        assert (state.watermark, state.advancing) == (4_595, False)

    def test_wakes_without_going_back(self) -> None:
        state = after(ADVANCING, after(ADVANCING, SourceState(), {"": 600}, now=1_000), now=5_000)
        state = after(ADVANCING, state, {"": 700}, now=5_001)
        assert (state.watermark, state.advancing, state.idle) == (4_594, False, False)

    def test_source_without_any_time_has_nothing_to_go_on_from(self) -> None:
        state = after(ADVANCING, after(ADVANCING, SourceState(), now=0), now=10**6)
        assert (state.watermark, state.idle) == (MIN_WATERMARK, True)


class TestOperator:
    def at(self, watermark: int, *, idle: bool = False, advancing: bool = False) -> SourceState:
        return SourceState({"": SplitState(watermark=watermark, idle=idle)}, watermark, advancing=advancing)

    def test_least_of_the_active_inputs(self) -> None:
        assert operator_watermark(0, [self.at(30), self.at(20)]) == 20
        assert operator_watermark(0, [self.at(30), self.at(20, idle=True)]) == 30

    def test_never_back(self) -> None:
        assert operator_watermark(25, [self.at(30), self.at(20)]) == 25

    def test_stays_when_all_are_idle(self) -> None:
        assert operator_watermark(10, [self.at(30, idle=True), self.at(20, idle=True)]) == 10
        assert operator_watermark(10, []) == 10

    def test_input_that_was_never_seen_holds(self) -> None:
        assert operator_watermark(MIN_WATERMARK, [self.at(30), SourceState()]) == MIN_WATERMARK

    def test_input_that_never_had_a_row_counts_no_more_once_idle(self) -> None:
        silent = after(IDLING, after(IDLING, SourceState(), now=0), now=100)
        assert operator_watermark(MIN_WATERMARK, [self.at(30), silent]) == 30

    def test_inputs_that_go_on_by_the_clock_move_it_when_all_are_idle(self) -> None:
        going = self.at(40, idle=True, advancing=True)
        slower = self.at(35, idle=True, advancing=True)
        assert operator_watermark(10, [going, self.at(20, idle=True)]) == 40
        assert operator_watermark(10, [going, slower]) == 35
        assert operator_watermark(10, [going, slower, self.at(15)]) == 15

    def test_input_that_ended_holds_nothing_back(self) -> None:
        assert operator_watermark(10, [end_of_input(self.at(20)), self.at(15)]) == 15
        assert operator_watermark(10, [end_of_input(self.at(20, idle=True))]) == MAX_WATERMARK
        assert operator_watermark(10, [end_of_input(SourceState())]) == MAX_WATERMARK


class TestEndOfInput:
    def test_everything_is_over(self) -> None:
        state = end_of_input(after(IDLING, SourceState(), {"a": 100, "b": 50}, now=0))
        assert state.watermark == MAX_WATERMARK
        assert {split.watermark for split in state.splits.values()} == {MAX_WATERMARK}
        assert state.splits["a"].max_event_time == 100
        assert not state.idle

    def test_stays_over(self) -> None:
        state = after(IDLING, end_of_input(after(IDLING, SourceState(), {"a": 100}, now=0)), {"a": 5, "c": 6}, now=10)
        assert state.watermark == MAX_WATERMARK
        assert next_idle_deadline(IDLING, state) is None


class TestDeadlines:
    def test_next_split_to_become_idle(self) -> None:
        state = after(IDLING, SourceState(), {"a": 100, "b": 50}, now=1_000)
        assert next_idle_deadline(IDLING, state) == 1_100
        state = after(IDLING, state, {"a": 101}, now=1_050)
        assert next_idle_deadline(IDLING, state) == 1_100
        state = after(IDLING, state, now=1_100)
        assert next_idle_deadline(IDLING, state) == 1_150
        assert next_idle_deadline(IDLING, after(IDLING, state, now=1_150)) is None

    def test_never_without_idle_after_or_before_the_first_epoch(self) -> None:
        assert next_idle_deadline(BOUNDED, after(BOUNDED, SourceState(), {"": 1})) is None
        assert next_idle_deadline(IDLING, SourceState()) is None

    def test_ingestion_time_reaches_any_watermark(self) -> None:
        strategy = WatermarkStrategy(None, IngestionTime())
        state = after(strategy, SourceState(), {"": 50}, now=50)
        due = processing_time_reaching(strategy, state, 99)
        assert due == 100
        assert after(strategy, state, now=due).watermark == 99

    def test_rows_are_needed_where_nothing_moves_by_itself(self) -> None:
        assert processing_time_reaching(BOUNDED, after(BOUNDED, SourceState(), {"": 50}), 60) is None
        assert processing_time_reaching(IDLING, after(IDLING, SourceState(), {"": 50}), 60) is None
        assert processing_time_reaching(ADVANCING, after(ADVANCING, SourceState()), 60) is None
        assert processing_time_reaching(WatermarkStrategy("t", Ascending(), idle_after_ms=DAY), SourceState(), 60) is None

    def test_idleness_of_the_split_behind_releases_the_watermark(self) -> None:
        state = after(IDLING, SourceState(), {"b": 50}, now=0)
        state = after(IDLING, state, {"a": 100}, now=60)
        assert processing_time_reaching(IDLING, state, 94) == 100
        assert processing_time_reaching(IDLING, state, 95) is None

    def test_clock_takes_a_silent_source_on_from_its_greatest_split(self) -> None:
        state = after(ADVANCING, SourceState(), {"a": 100, "b": 50}, now=1_000)
        assert processing_time_reaching(ADVANCING, state, 194) == 1_100
        assert processing_time_reaching(ADVANCING, state, 300) == 1_206

    def test_clock_takes_it_no_further_than_an_element_of_that_moment_would(self) -> None:
        state = after(ADVANCING, SourceState(), {"": 1_050}, now=1_000)
        assert processing_time_reaching(ADVANCING, state, 1_095) == 1_101


class TestTheEndOfASource:
    def test_silence_counts_up_to_the_time_at_which_one_looked(self) -> None:
        state = after(IDLING, SourceState(), {"a": 50, "b": 10}, now=0)
        epoch = {"a": SplitObservation(1, 60)}
        looked = [advance(IDLING, state, epoch, processing_time=1_000, caught_up=True, polled_at=at) for at in (99, 100, 5_000, None)]
        assert [found.splits["b"].idle for found in looked] == [False, True, True, True]
        assert [found.watermark for found in looked] == [state.watermark, *[55 - 1] * 3]

    def test_an_idle_source_goes_on_by_the_clock_up_to_that_time_only(self) -> None:
        state = after(ADVANCING, SourceState(), {"": 50}, now=0)
        found = advance(ADVANCING, state, {}, processing_time=1_000, caught_up=True, polled_at=400)
        assert found == advance(ADVANCING, state, {}, processing_time=400, caught_up=True)

    def test_what_was_read_to_its_end_after_all_was_silent_before(self) -> None:
        state = after(IDLING, SourceState(), {"a": 50, "b": 10}, now=0)
        behind = advance(IDLING, state, {"a": SplitObservation(1, 60), "c": SplitObservation(1, 7)}, processing_time=70, caught_up=False)
        assert {name: split.last_active for name, split in behind.splits.items()} == {"a": 70, "b": 70, "c": 70}
        known = read_to_end(state, behind)
        assert {name: split.last_active for name, split in known.splits.items()} == {"a": 70, "b": 0, "c": 70}
        assert next_idle_deadline(IDLING, known) == 100

    def test_a_splits_own_end_goes_before_the_sources(self) -> None:
        state = after(IDLING, SourceState(), {"a": 50, "b": 10}, now=0)
        end = SourceEnd(caught_up=False, splits={"a": False, "b": True, "never seen": True})
        told = end.annotate({"a": SplitObservation(1, 60)}, state)
        assert told == {"a": SplitObservation(1, 60, caught_up=False), "b": SplitObservation(0, None, caught_up=True)}
        found = advance(IDLING, state, told, processing_time=100, caught_up=end.caught_up)
        assert {name: split.idle for name, split in found.splits.items()} == {"a": False, "b": True}


def test_splits_that_are_told_by_another_column_give_way() -> None:
    zones = replace(BOUNDED, split_by="zone")
    before = after(zones, SourceState(), {"north": 100, "south": 40}, now=7)
    assert before.watermark == 34
    for strategy, name in ((BOUNDED, ""), (replace(BOUNDED, split_by="line"), "red")):
        begun = with_splits_of(strategy, before)
        assert begun == SourceState({"": SplitState(watermark=34, last_active=7)}, 34, split_by=strategy.split_by)
        went_on = after(strategy, begun, {name: 200}, now=8)
        assert (set(went_on.splits), went_on.watermark) == ({name}, 194)
    assert with_splits_of(zones, before) == before
    # The partitions of Kafka, which no column tells, until one does.
    partitions = replace(before, split_by=None)
    assert with_splits_of(BOUNDED, partitions) == partitions
    assert with_splits_of(zones, partitions) == SourceState({"": SplitState(watermark=34, last_active=7)}, 34, split_by="zone")
