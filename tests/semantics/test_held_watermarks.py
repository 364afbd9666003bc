"""Watermarks that are held while a table's snapshot is read."""

from __future__ import annotations

from tidemark.semantics.watermarks.watermarks import (
    MIN_WATERMARK,
    BoundedOutOfOrderness,
    SourceState,
    SplitObservation,
    WatermarkStrategy,
    advance,
    held,
)

ADVANCING = WatermarkStrategy("t", BoundedOutOfOrderness(5), idle_after_ms=100, advance_when_idle=True)


def after(state: SourceState, seen: dict[str, int], *, now: int) -> SourceState:
    """Return the state after an epoch that saw an element of each split."""
    observed = {split: SplitObservation(1, time) for split, time in seen.items()}
    return advance(ADVANCING, state, observed, processing_time=now, caught_up=True)


def test_a_held_watermark_stays_and_what_was_seen_counts_later() -> None:
    state = after(SourceState(), {"a": 50}, now=0)
    for now, seen in ((10, {"a": 900, "b": 20}), (20, {})):
        state = held(state, after(state, seen, now=now))
        assert (state.watermark, state.splits["a"].watermark, state.splits["b"].watermark) == (44, 44, MIN_WATERMARK)
    silent = held(state, after(state, {}, now=10_000))
    assert (silent.idle, silent.advancing, silent.watermark) == (True, False, 44)
    released = after(state, {"b": 30}, now=30)
    assert (released.watermark, released.splits["a"].watermark, released.splits["b"].watermark) == (44, 894, 24)
