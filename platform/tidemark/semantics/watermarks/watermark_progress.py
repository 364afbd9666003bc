"""How watermarks advance from epoch to epoch: per split, per source, per operator; idleness; and when the clock alone advances them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidemark.errors import TidemarkError, UserCodeError
from tidemark.semantics.user_lines import raised_at
from tidemark.semantics.watermarks.source_state import SourceState, SplitObservation, SplitState
from tidemark.semantics.watermarks.watermark_generators import IngestionTime, SplitStats
from tidemark.semantics.watermarks.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK, WatermarkStrategy

_WHOLE_SOURCE = ""
_NOTHING = SplitObservation(rows=0, max_event_time=None)


def advance(
    strategy: WatermarkStrategy,
    state: SourceState,
    observed: Mapping[str, SplitObservation],
    *,
    processing_time: int,
    caught_up: bool,
    polled_at: int | None = None,
) -> SourceState:
    """Return a source's state after an epoch. Called once per source and epoch, also when the epoch read nothing.

    - No watermark goes back: not a split's, not the source's, not when a new split starts behind the others (it starts at
      ``MIN_WATERMARK`` and, until it has caught up, its elements may be late).
    - A split was active in the epoch if it had a well-formed row or was not read to its end. It is idle when ``idle_after`` of processing
      time has passed since it was last active, and active again as soon as it was active in an epoch: a split that may have
      rows waiting holds the watermark for them. Time counts from the epoch in which the split was first seen.
    - The source's watermark is the least of its active splits. When all are idle it stays, unless ``advance_when_idle``.
    - A source of which no split was ever seen has the split ``""`` in their place, so that it too becomes idle after ``idle_after``;
      the first split that appears replaces it.
    - ``advance_when_idle``: when all splits are idle, event time is assumed to advance with the clock. From the moment that a split was
      last active its watermark is extended by the processing time that has passed; the source's becomes the greatest of these
      (Flink too goes to the greatest when its last input becomes idle), but not later than processing time - bound - 1, where an
      element of this very moment would put it. So the last windows close after about their own length of silence, and
      an element that comes after it with the delay its source always had is not late. The splits' own watermarks stay.

    Args:
        strategy: the source's.
        state: after the epoch before.
        observed: the epoch's observations, by split; splits without any may be left out.
        processing_time: of the epoch.
        caught_up: whether the source was read to its end; a split's own ``caught_up`` takes precedence. Time in which the job was
            down counts as silence, so this must be false while input that came in that time is unread.
        polled_at: the processing time at which ``caught_up`` was true, None for the epoch's own. Later input may be unread, so silence
            is counted up to this time only.

    Raises:
        UserCodeError: the watermark generator failed or returned neither an integer nor None.
    """
    silent_until = processing_time if polled_at is None else min(polled_at, processing_time)
    splits = {}
    for name in _split_names(state, observed):
        before, seen = state.splits.get(name), observed.get(name, _NOTHING)
        split = _advance_split(strategy, before, seen, processing_time=processing_time, caught_up=caught_up)
        idle = strategy.idle_after_ms is not None and silent_until - split.last_active >= strategy.idle_after_ms
        splits[name] = replace(split, idle=idle)
    active = [split.watermark for split in splits.values() if not split.idle]
    if active:
        return SourceState(splits, max(state.watermark, min(active)), split_by=strategy.split_by)
    if not strategy.advance_when_idle:
        return SourceState(splits, state.watermark, split_by=strategy.split_by)
    watermark = max(state.watermark, _silent_watermark(strategy, splits, silent_until))
    return SourceState(splits, watermark, advancing=True, split_by=strategy.split_by)


def held(before: SourceState, after: SourceState) -> SourceState:
    """Return a source's state after an epoch that moves no watermark: what it saw counts once its watermark is no longer held.

    Args:
        before: after the epoch before.
        after: after the epoch, as ``advance`` returns it.
    """
    splits = {
        name: replace(split, watermark=before.splits[name].watermark if name in before.splits else MIN_WATERMARK)
        for name, split in after.splits.items()
    }
    return replace(after, splits=splits, watermark=before.watermark, advancing=False)


def with_splits_of(strategy: WatermarkStrategy, state: SourceState) -> SourceState:
    """Return a source's state for a job that splits it by another column: the previous splits will not appear again.

    One split replaces them, with their watermark, until the first of the new ones appears.
    """
    if state.split_by == strategy.split_by:
        return state
    active = max((split.last_active for split in state.splits.values()), default=0)
    whole = SplitState(watermark=state.watermark, last_active=active)
    return SourceState({_WHOLE_SOURCE: whole} if state.splits else {}, state.watermark, split_by=strategy.split_by)


def operator_watermark(previous: int, inputs: Sequence[SourceState]) -> int:
    """Return an operator's watermark after an epoch: the least of its active inputs, and never less than before.

    An input whose splits are all idle does not count. When all are idle the watermark stays; only those that advance with the clock
    (``advancing``) then move it, to the least among them. An input before its first epoch is active, at ``MIN_WATERMARK``.

    Args:
        previous: the operator's watermark after the epoch before.
        inputs: the sources its elements come from, after this epoch.
    """
    moving = [source.watermark for source in inputs if not source.idle]
    if not moving:
        moving = [source.watermark for source in inputs if source.advancing]
    return max(previous, min(moving, default=previous))


def delayed(state: SourceState, delay_ms: int) -> SourceState:
    """Return a source's state as operators see it that follow one whose results are up to so much behind the watermark."""
    return replace(state, watermark=delayed_watermark(state.watermark, delay_ms)) if delay_ms else state


def delayed_watermark(watermark: int, delay_ms: int) -> int:
    """Return the watermark of results that are up to so much behind it. After the end of input nothing is held back.

    >>> delayed_watermark(100, 40), delayed_watermark(MAX_WATERMARK, 40) == MAX_WATERMARK
    (60, True)
    """
    return watermark if watermark in {MIN_WATERMARK, MAX_WATERMARK} else max(watermark - delay_ms, MIN_WATERMARK)


def end_of_input(state: SourceState) -> SourceState:
    """Return the state of a source whose input has ended: the watermark is the greatest time, and no split holds it or is idle."""
    splits = state.splits or {_WHOLE_SOURCE: SplitState()}
    ended = {name: replace(split, watermark=MAX_WATERMARK, idle=False) for name, split in splits.items()}
    return SourceState(ended, MAX_WATERMARK, split_by=state.split_by)


def next_idle_deadline(strategy: WatermarkStrategy, state: SourceState) -> int | None:
    """Return the processing time at which the next active split becomes idle if it has no rows until then, None for never.

    An epoch is due then even if there is nothing to read: the watermark may move.
    """
    if strategy.idle_after_ms is None or state.watermark == MAX_WATERMARK:
        return None
    return min((split.last_active + strategy.idle_after_ms for split in state.splits.values() if not split.idle), default=None)


def read_to_end(before: SourceState, after: SourceState) -> SourceState:
    """Return a source's state after an epoch that turned out to have read the source to its end.

    A split without rows counted as active in it, since it might have had more to read; its silence now counts from before.

    Args:
        before: after the epoch before.
        after: after the epoch.
    """
    splits = {}
    for name, split in after.splits.items():
        earlier = before.splits.get(name)
        silent = earlier is not None and earlier.rows == split.rows
        splits[name] = replace(split, last_active=earlier.last_active) if silent and earlier is not None else split
    return replace(after, splits=splits)


def processing_time_reaching(strategy: WatermarkStrategy, state: SourceState, watermark: int) -> int | None:
    """Return the processing time at which a source without further rows reaches a watermark, None for never.

    An epoch is due then even if there is nothing to read: a window waits for that watermark. Without rows a watermark moves by
    ingestion time, when a split that holds it back becomes idle, and by ``advance_when_idle``. (A user's generator that goes by the
    clock is not predicted.)

    Args:
        strategy: the source's.
        state: after the last epoch.
        watermark: greater than the source's.
    """
    if isinstance(strategy.generator, IngestionTime):
        return watermark + 1
    if strategy.idle_after_ms is None:
        return None
    for deadline in sorted({split.last_active + strategy.idle_after_ms for split in state.splits.values() if not split.idle}):
        if advance(strategy, state, {}, processing_time=deadline, caught_up=True).watermark >= watermark:
            return deadline
    timed = [split for split in state.splits.values() if split.watermark != MIN_WATERMARK]
    if not strategy.advance_when_idle or not timed:
        return None
    carried_on = min(split.last_active + watermark - split.watermark for split in timed)
    return max(carried_on, watermark + strategy.generator.bound_ms + 1)


def _split_names(state: SourceState, observed: Mapping[str, SplitObservation]) -> list[str]:
    names = sorted({*state.splits, *observed})
    stands_in = state.splits.get(_WHOLE_SOURCE, SplitState()).rows == 0 and observed.get(_WHOLE_SOURCE, _NOTHING).rows == 0
    if stands_in and len(names) > 1:
        return [name for name in names if name != _WHOLE_SOURCE]
    return names or [_WHOLE_SOURCE]


def _advance_split(
    strategy: WatermarkStrategy, before: SplitState | None, seen: SplitObservation, *, processing_time: int, caught_up: bool
) -> SplitState:
    split = before or SplitState(last_active=processing_time)
    read_to_end = caught_up if seen.caught_up is None else seen.caught_up
    last_active = processing_time if seen.rows or not read_to_end else split.last_active
    times = [time for time in (split.max_event_time, seen.max_event_time) if time is not None]
    latest = max(times, default=None)
    metrics = {name: seen.metrics.get(name) for name in strategy.generator.metrics}
    return SplitState(
        watermark=_split_watermark(strategy, SplitStats(latest, metrics, processing_time, split.watermark)),
        max_event_time=latest,
        last_active=last_active,
        rows=split.rows + seen.rows,
    )


def _split_watermark(strategy: WatermarkStrategy, stats: SplitStats) -> int:
    name = type(strategy.generator).__name__
    try:
        watermark = strategy.generator.watermark(stats)
    except TidemarkError:
        raise
    except Exception as error:
        raise UserCodeError(
            f"watermark generator {name} failed on {stats}: {error}", fix="make it take every such value", place=raised_at(error)
        ) from error
    if watermark is None:
        return stats.previous
    if isinstance(watermark, bool) or not isinstance(watermark, int):
        raise UserCodeError(f"watermark generator {name} returned {watermark!r}", fix="return integer milliseconds, or None for no news")
    return max(stats.previous, min(watermark, MAX_WATERMARK))


def _silent_watermark(strategy: WatermarkStrategy, splits: Mapping[str, SplitState], until: int) -> int:
    carried_on = [split.watermark + until - split.last_active for split in splits.values() if split.watermark != MIN_WATERMARK]
    return min(max(carried_on, default=MIN_WATERMARK), until - strategy.generator.bound_ms - 1)
