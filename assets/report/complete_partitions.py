"""Determines which time partitions of an output are complete through its watermark, and which late rows changed afterwards. Pure.

A partition has the windows that start in it; for an output without windows, the rows whose event time is in it. It is complete through
the watermark when no more on-time rows can arrive for it, and all its windows have emitted their on-time panes. Rows within the allowed
lateness may correct it later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Literal

import dagster as dg

from tidemark.assets.streams.job_streams import StreamData, late_operators_of, result_window
from tidemark.assets.values.instants import newest_event_of_all
from tidemark.graph import Node, SourceNode, StatefulNode, WindowJoinNode, WindowNode, watermark_delays
from tidemark.semantics import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    CountWindows,
    Cumulative,
    GlobalWindows,
    LocalWindows,
    Sliding,
    Tumbling,
    delayed_watermark,
)
from tidemark.state import EpochProgress, OperatorProgress, SourceProgress

Cause = Literal["complete", "corrected", "late rows"]
"""``complete``: the watermark passed its end. ``corrected``: late rows changed emitted results. ``late rows``: rows arrived beyond the
allowed lateness, and are in the late side output or dropped."""

_ENDS_KEPT: Final = 4096

FindEpoch = Callable[[EpochProgress, int], EpochProgress | None]
"""Returns the newest epoch with a number that is older than a given epoch."""


@dataclass(frozen=True)
class PartitionMark:
    """How far an output's partitions were processed.

    ``lineage`` and ``epoch`` name the last processed epoch, ``through`` is the end (milliseconds) of the last partition that was reported
    as complete; None before the first.
    """

    lineage: str
    epoch: int
    through: int | None = None


@dataclass(frozen=True)
class PartitionChange:
    """A partition that is complete, or was touched after it was reported as complete, and the epoch of that."""

    partition: str
    cause: Cause
    lineage: str
    epoch: int


def has_times(stream: StreamData) -> bool:
    """Return whether the rows of an output have times; results of count and global windows have no bounds."""
    window = result_window(stream.output.node) if stream.output is not None else None
    return window is None or not isinstance(window.assigner, CountWindows | GlobalWindows)


def settled_before(stream: StreamData, epoch: EpochProgress) -> int | None:
    """Return the time before which an output is complete through its watermark after an epoch, milliseconds.

    All windows that start before it have emitted their on-time panes. None if there is no such time yet.
    """
    watermark = output_watermark(stream, epoch)
    if watermark is None or watermark <= MIN_WATERMARK:
        return None
    if watermark >= MAX_WATERMARK:
        # The input has ended: all is complete, up to the newest event.
        return None if newest_event_of_all(epoch) is None else MAX_WATERMARK
    return min((_first_open(window, epoch, watermark + 1) for window in _windows(stream)), default=watermark + 1)


def output_watermark(stream: StreamData, epoch: EpochProgress) -> int | None:
    """Return the watermark that goes with an output's rows after an epoch; None if there is none yet.

    As in the engine it is the least of the operators upstream and of the sources that are not behind one, each less the delays of the
    operators on the way, whose results come so much behind the watermark. Idle sources do not count, unless nothing else does.
    """
    if stream.output is None:
        raise TypeError(f"{stream.name} is a source, whose watermark is its own")
    operators, active, idle = _watermarks(stream.output.node, epoch)
    marks = operators + active or idle
    known = [mark for mark in marks if mark is not None]
    return min(known) if known and len(known) == len(marks) else None


def complete_partitions(
    stream: StreamData,
    partitions_def: dg.TimeWindowPartitionsDefinition,
    mark: PartitionMark,
    epoch: EpochProgress,
    *,
    limit: int,
    until: int | None = None,
) -> tuple[tuple[PartitionChange, ...], PartitionMark]:
    """Return the partitions after the mark that are complete through the watermark, oldest first, and the mark after them.

    Args:
        stream: the output.
        partitions_def: its partitions; those before its start are never reported.
        mark: how far they were reported.
        epoch: the epoch whose watermark counts.
        limit: maximum number of partitions; the next call continues after them.
        until: no partition that ends after this time, in milliseconds.
    """
    settled = settled_before(stream, epoch)
    if settled is None or (mark.through is not None and _next_end(partitions_def, mark.through) > settled):
        return (), mark
    newest = newest_event_of_all(epoch) if settled >= MAX_WATERMARK else None
    found: list[PartitionChange] = []
    through = mark.through
    for key, start, end in _windows_after(partitions_def, through):
        if len(found) >= limit or end > settled or (until is not None and end > until) or (newest is not None and start > newest):
            break
        found.append(PartitionChange(key, "complete", epoch.lineage, epoch.epoch))
        through = end
    return tuple(found), replace(mark, through=through)


def touched_partitions(
    stream: StreamData,
    partitions_def: dg.TimeWindowPartitionsDefinition,
    mark: PartitionMark,
    epochs: Sequence[EpochProgress],
    *,
    find: FindEpoch,
    limit: int,
) -> tuple[tuple[PartitionChange, ...], PartitionMark]:
    """Return the partitions up to the mark that epochs touched, each once with its last cause, and the mark after the epochs.

    If another lineage began, the mark is reset to what was complete there, so that the rest is reported again.

    Args:
        stream: the output.
        partitions_def: its partitions.
        mark: how far they were reported.
        epochs: those after the mark, oldest first.
        find: finds the epoch at which a new lineage began.
        limit: no more epochs are processed once this many partitions were touched; the next call continues after them.
    """
    touched: dict[int, tuple[int, Cause, EpochProgress]] = {}
    for place, epoch in enumerate(epochs):
        if epoch.lineage != mark.lineage:
            # The found epoch may be of another branch; the lineage's own first one is not.
            for begun in (find(epoch, epoch.epoch - 1), epoch):
                mark = replace(mark, through=_through_at(stream, partitions_def, mark, begun))
        reported = mark.through if mark.through is not None else MIN_WATERMARK
        touched |= {start: (place, cause, epoch) for start, cause in _touches(stream, epoch)}
        touched = {start: found for start, found in touched.items() if start < reported}
        mark = replace(mark, lineage=epoch.lineage, epoch=epoch.epoch)
        if len(touched) >= limit:
            break
    changes: dict[str, PartitionChange] = {}
    # By position, since a rewound job reuses epoch numbers; a correction after late rows of the same epoch.
    for start, (_, cause, epoch) in sorted(touched.items(), key=lambda found: (found[1][0], found[1][1] == "corrected")):
        key = partition_at(partitions_def, start)
        if key is not None:
            changes[key] = PartitionChange(key, cause, epoch.lineage, epoch.epoch)
    return tuple(changes.values()), mark


def partition_at(partitions_def: dg.TimeWindowPartitionsDefinition, time: int) -> str | None:
    """Return the partition that a time in milliseconds is in, None outside all of them."""
    # Dagster looks for the partition before it, whose year may be out of Python's range.
    if time < partitions_def.start.timestamp() * 1000:
        return None
    key = partitions_def.get_partition_key_for_timestamp(time / 1000)
    if not partitions_def.has_partition_key(key):
        return None
    # For an excluded time Dagster returns the partition before.
    return key if time < partitions_def.time_window_for_partition_key(key).end.timestamp() * 1000 else None


def _through_at(
    stream: StreamData, partitions_def: dg.TimeWindowPartitionsDefinition, mark: PartitionMark, at: EpochProgress | None
) -> int | None:
    """Return the end of the last partition that was complete at an epoch, None if unknown."""
    settled = settled_before(stream, at) if at is not None else None
    if settled is None or mark.through is None or settled >= mark.through:
        return None if settled is None else mark.through
    key = partition_at(partitions_def, settled)
    return int(partitions_def.time_window_for_partition_key(key).start.timestamp() * 1000) if key is not None else None


def _touches(stream: StreamData, epoch: EpochProgress) -> Iterator[tuple[int, Cause]]:
    """Yield the starts of the windows that an epoch's late rows belong to; corrections last, since they take precedence."""
    operators = _operators(stream, epoch)
    yield from ((start, "late rows") for operator in operators for start in operator.late_windows)
    yield from ((start, "corrected") for operator in operators for start in operator.refired_windows)


@lru_cache(maxsize=_ENDS_KEPT)
def _next_end(partitions_def: dg.TimeWindowPartitionsDefinition, through: int) -> int:
    """Return the end of the first partition after an instant, whether that partition exists yet or not.

    On most ticks nothing has become complete, which this shows without listing the partitions.
    """
    window = partitions_def.get_next_partition_window(datetime.fromtimestamp(through / 1000, UTC), respect_bounds=False)
    return MAX_WATERMARK if window is None else int(window.end.timestamp() * 1000)


def _windows_after(partitions_def: dg.TimeWindowPartitionsDefinition, through: int | None) -> Iterator[tuple[str, int, int]]:
    """Yield key, start and end of the existing partitions after an instant."""
    window = partitions_def.get_first_partition_window()
    if through is not None and window is not None and window.start.timestamp() * 1000 < through:
        window = partitions_def.get_next_partition_window(datetime.fromtimestamp(through / 1000, UTC))
    while window is not None:
        start, end = window.start.timestamp(), window.end.timestamp()
        yield partitions_def.get_partition_key_for_timestamp(start), int(start * 1000), int(end * 1000)
        window = partitions_def.get_next_partition_window(window.end)


def _first_open(window: WindowNode | WindowJoinNode, epoch: EpochProgress, time: int) -> int:
    """Return the start of the first window that does not end by a time, or that time if there is none before it."""
    match window.assigner:
        case Tumbling() | Sliding() | Cumulative():
            # The windows that contain a moment have not ended by then; all windows that start before the first of them have.
            return min((found.start for found in window.assigner.assign(time)), default=time)
        case LocalWindows():
            return window.assigner.open_from(time)
        case CountWindows() | GlobalWindows():
            return time
    operator = epoch.operators.get(window.uid or "")
    oldest = operator.oldest_open_window if operator is not None else None
    return time if oldest is None else min(oldest, time)


def _watermarks(node: Node, epoch: EpochProgress) -> tuple[list[int | None], list[int | None], list[int | None]]:
    """Return the delayed watermarks upstream of a node: of operators, and of the active and the idle sources that are not behind one."""
    operators: list[int | None] = []
    sources: dict[bool, list[int | None]] = {False: [], True: []}
    reached, exposed = {id(node)}, {id(node)}
    for each, delay in watermark_delays(node, results=True):
        if id(each) not in reached:
            continue
        inputs = set(map(id, each.inputs))
        operator = epoch.operators.get(each.uid or "") if isinstance(each, StatefulNode) else None
        if isinstance(each, StatefulNode) and operator is not None:
            operators.append(_delayed(operator.watermark, delay + each.result_delay_ms))
            # The times of its results are processing times, whatever those of its input are.
            reached |= set() if each.time_domain == "processing" else inputs
            continue
        reached |= inputs
        exposed |= inputs if id(each) in exposed else set()
        source = epoch.sources.get(each.name) if isinstance(each, SourceNode) and id(each) in exposed else None
        if source is not None:
            sources[_is_idle(source)].append(_delayed(source.watermark, delay))
    return operators, sources[False], sources[True]


def _delayed(watermark: int | None, delay: int) -> int | None:
    return None if watermark is None else delayed_watermark(watermark, delay)


def _is_idle(source: SourceProgress) -> bool:
    return bool(source.splits) and all(split.idle for split in source.splits.values())


def _windows(stream: StreamData) -> tuple[WindowNode | WindowJoinNode, ...]:
    """Return the operators with windows upstream of an output whose rows still have their times."""
    nodes = _of_same_times(stream.output.node) if stream.output is not None else ()
    return tuple(node for node in nodes if isinstance(node, WindowNode | WindowJoinNode))


def _operators(stream: StreamData, epoch: EpochProgress) -> list[OperatorProgress]:
    """Return an epoch's progress of the operators upstream of an output to which rows can be late, and whose times its rows still have."""
    if stream.output is None:
        return []
    timed = set(map(id, _of_same_times(stream.output.node)))
    judges = [judge for judge in late_operators_of(stream.output.node) if id(judge) in timed]
    return [epoch.operators[judge.uid] for judge in judges if judge.uid is not None and judge.uid in epoch.operators]


def _of_same_times(node: Node) -> list[Node]:
    """Return a node and those upstream of it, but none behind windows of processing time, whose results have times of their own."""
    found, seen, open_ends = [], {id(node)}, [node]
    while open_ends:
        each = open_ends.pop()
        found.append(each)
        inputs = () if isinstance(each, StatefulNode) and each.time_domain == "processing" else each.inputs
        new = [child for child in inputs if id(child) not in seen]
        seen |= set(map(id, new))
        open_ends += new
    return found
