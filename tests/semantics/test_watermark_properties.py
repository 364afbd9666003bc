"""What holds of watermarks whatever the sources show."""

from __future__ import annotations

import json
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.semantics.watermarks.watermarks import (
    MIN_WATERMARK,
    Ascending,
    BoundedOutOfOrderness,
    Punctuated,
    SourceState,
    SplitObservation,
    WatermarkStrategy,
    advance,
    decode_source,
    encode_source,
    next_idle_deadline,
    operator_watermark,
    processing_time_reaching,
)


@dataclass(frozen=True)
class Step:
    """One epoch of one source: how far the clock went, what was seen, and whether that was all."""

    elapsed: int
    seen: dict[str, SplitObservation]
    caught_up: bool


TIMES = st.integers(-200, 400)
OBSERVATIONS = st.one_of(
    st.just(SplitObservation(0, None)),
    st.builds(
        lambda time, rows, marker, caught_up: SplitObservation(rows, time, {"marker": marker}, caught_up),
        TIMES,
        st.integers(1, 3),
        st.none() | TIMES,
        st.sampled_from([None, None, True, False]),
    ),
)
STEPS = st.lists(
    st.builds(Step, st.integers(0, 60), st.dictionaries(st.sampled_from(["", "a", "b", "c"]), OBSERVATIONS, max_size=3), st.booleans()),
    min_size=1,
    max_size=12,
)
GENERATORS = st.one_of(st.builds(BoundedOutOfOrderness, st.integers(0, 50)), st.just(Ascending()), st.just(Punctuated("m")))
STRATEGIES = st.builds(
    lambda generator, idle_after, go_on: WatermarkStrategy(
        "t", generator, idle_after_ms=idle_after, advance_when_idle=go_on and idle_after is not None
    ),
    GENERATORS,
    st.none() | st.integers(1, 100),
    st.booleans(),
)


def run(strategy: WatermarkStrategy, steps: list[Step]) -> list[tuple[int, SourceState]]:
    """Return processing time and state after each epoch."""
    now, state, trace = 1_000, SourceState(), []
    for step in steps:
        now += step.elapsed
        state = advance(strategy, state, step.seen, processing_time=now, caught_up=step.caught_up)
        trace.append((now, state))
    return trace


@settings(deadline=None)
@given(STRATEGIES, STEPS)
def test_no_watermark_goes_back(strategy: WatermarkStrategy, steps: list[Step]) -> None:
    before = SourceState()
    for _, state in run(strategy, steps):
        assert state.watermark >= before.watermark
        for name, split in before.splits.items():
            if name in state.splits:
                assert state.splits[name].watermark >= split.watermark
            else:
                assert (name, split.rows) == ("", 0)
        before = state


@settings(deadline=None)
@given(STRATEGIES, STEPS)
def test_source_moves_to_the_least_active_split_and_never_past_it(strategy: WatermarkStrategy, steps: list[Step]) -> None:
    before = MIN_WATERMARK
    for _, state in run(strategy, steps):
        active = [split.watermark for split in state.splits.values() if not split.idle]
        if active:
            assert state.watermark == max(before, min(active))
            assert not state.advancing
        elif not strategy.advance_when_idle:
            assert state.watermark == before
        before = state.watermark


@settings(deadline=None)
@given(STRATEGIES, STEPS)
def test_idle_is_silence_for_idle_after_while_nothing_waits(strategy: WatermarkStrategy, steps: list[Step]) -> None:
    trace = run(strategy, steps)
    for number, (now, state) in enumerate(trace):
        for name, split in state.splits.items():
            awake: list[int] = []
            for step, (then, past) in zip(steps[: number + 1], trace, strict=False):
                if name not in past.splits:
                    continue
                seen = step.seen.get(name)
                waits = not (step.caught_up if seen is None or seen.caught_up is None else seen.caught_up)
                if not awake or waits or (seen is not None and seen.rows):
                    awake.append(then)
            assert split.idle == (strategy.idle_after_ms is not None and now - max(awake) >= strategy.idle_after_ms)


@settings(deadline=None)
@given(st.integers(0, 50), STEPS)
def test_bounded_split_is_its_greatest_event_time_less_bound_less_one(bound: int, steps: list[Step]) -> None:
    greatest: dict[str, int] = {}
    for step, (_, state) in zip(steps, run(WatermarkStrategy("t", BoundedOutOfOrderness(bound)), steps), strict=True):
        for name, seen in step.seen.items():
            if seen.max_event_time is not None:
                greatest[name] = max(greatest.get(name, seen.max_event_time), seen.max_event_time)
        assert {name: split.watermark for name, split in state.splits.items() if split.rows} == {
            name: time - bound - 1 for name, time in greatest.items()
        }


@settings(deadline=None)
@given(STRATEGIES, STEPS, st.integers(1, 500))
def test_deadlines_are_exact(strategy: WatermarkStrategy, steps: list[Step], ahead: int) -> None:
    now, state = run(strategy, steps)[-1]

    def at(processing_time: int) -> SourceState:
        return advance(strategy, state, {}, processing_time=processing_time, caught_up=True)

    idle = {name for name, split in state.splits.items() if split.idle}
    deadline = next_idle_deadline(strategy, state)
    if deadline is None:
        assert {name for name, split in at(now + 10**6).splits.items() if split.idle} == idle
    else:
        assert deadline > now
        assert {name for name, split in at(deadline - 1).splits.items() if split.idle} == idle
        assert {name for name, split in at(deadline).splits.items() if split.idle} > idle

    target = state.watermark + ahead
    due = processing_time_reaching(strategy, state, target)
    if due is None:
        assert at(now + 10**6).watermark < target
    else:
        assert due > now
        assert at(due).watermark >= target
        assert at(due - 1).watermark < target


@settings(deadline=None)
@given(st.lists(st.tuples(STRATEGIES, STEPS), min_size=1, max_size=3))
def test_operator_is_never_past_an_active_input_it_has_not_passed_before(inputs: list[tuple[WatermarkStrategy, list[Step]]]) -> None:
    traces = [run(strategy, steps) for strategy, steps in inputs]
    watermark = MIN_WATERMARK
    for number in range(max(map(len, traces))):
        states = [trace[min(number, len(trace) - 1)][1] for trace in traces]
        moved = operator_watermark(watermark, states)
        assert moved >= watermark
        if moved > watermark:
            assert all(moved <= state.watermark for state in states if not state.idle)
            assert any(moved == state.watermark for state in states)
        if all(state.idle and not state.advancing for state in states):
            assert moved == watermark
        watermark = moved


@settings(deadline=None)
@given(STRATEGIES, STEPS, st.integers(0, 11))
def test_state_can_be_stored_and_restored_after_any_epoch(strategy: WatermarkStrategy, steps: list[Step], cut: int) -> None:
    trace = run(strategy, steps)
    now, state = trace[min(cut, len(trace) - 1)]
    state = decode_source(json.loads(json.dumps(encode_source(state))))
    for step in steps[min(cut, len(trace) - 1) + 1 :]:
        now += step.elapsed
        state = advance(strategy, state, step.seen, processing_time=now, caught_up=step.caught_up)
    assert state == trace[-1][1]
