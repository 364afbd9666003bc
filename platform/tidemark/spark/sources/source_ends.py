"""Whether an epoch read its sources to their ends, inferred from what it took: Spark does not report what is left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.source_specs import ElementsSpec, FilesSpec, FormatSpec
from tidemark.semantics.watermarks.source_state import SourceEnd, SourceState
from tidemark.spark.sources.intake_limits import DEFAULT_BYTES_PER_EPOCH, KAFKA, KAFKA_MAX_OFFSETS, bounds_of
from tidemark.state.log.records import EpochRecord

_KAFKA_MAX_OFFSETS: Final = KAFKA_MAX_OFFSETS.lower()
_KAFKA_MIN_OFFSETS: Final = "minoffsetspertrigger"

_ALWAYS_BOUNDED: Final = frozenset({"delta"})
"""Delta takes 1000 files per trigger by default."""

Offsets = Mapping[str, Mapping[str, int]]
"""Kafka's: by topic and partition."""


def elements_end(epochs: int, taken: int) -> SourceEnd:
    """Return how far elements given in the program were read: ``taken`` of ``epochs`` batches in all."""
    return SourceEnd(caught_up=taken >= epochs)


def files_end(spec: FilesSpec, files: int, size: int | None) -> SourceEnd:
    """Return how far an epoch read a folder, where no listing says it: in a query of Spark's.

    Where it took as many files as it may, there may be more. It may also leave a file that is larger than the remaining bytes; so an
    epoch of more than half of them counts as not read to the end. (A file of more than half an epoch's bytes may still wait unseen
    behind a few small ones.)

    Args:
        spec: the source.
        files: the number that the epoch took.
        size: their bytes; None where not known.
    """
    if files == 0:
        return SourceEnd()
    if spec.max_files_per_epoch is not None:
        return SourceEnd(caught_up=files < spec.max_files_per_epoch)
    if size is None:
        return SourceEnd(caught_up=False, known=False)
    return SourceEnd(caught_up=2 * size <= (spec.max_bytes_per_epoch or DEFAULT_BYTES_PER_EPOCH))


def format_end(spec: FormatSpec, before: object, now: object) -> SourceEnd:
    """Return how far an epoch read a source of any format, from its offsets before and after.

    A source that did not move had nothing to read. One that moved was read to its end unless an option bounds what a trigger
    reads: then that is not known. Unknown formats are assumed to have no bounds.
    """
    options = {name.lower(): value for name, value in spec.options.items()}
    name = spec.format.lower()
    if name == KAFKA:
        return kafka_end(_kafka_offsets(before), _kafka_offsets(now) or {}, options)
    bounded = name in _ALWAYS_BOUNDED or not bounds_of(name).isdisjoint(options)
    if now is None or now == before or not bounded:
        return SourceEnd()
    return SourceEnd(caught_up=False, known=False)


def kafka_end(before: Offsets | None, now: Offsets, options: Mapping[str, str]) -> SourceEnd:
    """Return how far an epoch read Kafka, by partition.

    A bounded trigger gives each partition that has records a part of the bound, at least one record. So a partition that did not
    move had none, and all were read to their ends when fewer records were taken than the bound allows, less one for each partition,
    since parts are rounded down. With
    ``minOffsetsPerTrigger`` a whole trigger may be left out although records wait; then nothing is known of a source that did
    not move at all.

    Args:
        before: offsets after the epoch before; None for the first.
        now: offsets after this epoch.
        options: of the source, names in lower case.
    """
    moved = {
        f"{topic}-{partition}": _records_between((before or {}).get(topic, {}).get(partition, 0), offset)
        for topic, partitions in now.items()
        for partition, offset in partitions.items()
    }
    most = options.get(_KAFKA_MAX_OFFSETS)
    if _KAFKA_MIN_OFFSETS in options and not any(moved.values()):
        return SourceEnd(caught_up=False, known=False)
    if most is None or (before is not None and sum(moved.values()) + len(moved) <= int(most)):
        return SourceEnd()
    known = before is not None
    return SourceEnd(caught_up=False, known=known, splits={split: known and records == 0 for split, records in moved.items()})


def moved_splits(before: object, now: object) -> tuple[str, ...]:
    """Return the partitions of Kafka whose position has moved, as the source's splits are named.

    >>> moved_splits({"a": {"0": 3, "1": 5}}, {"a": {"0": 4, "1": 5, "10": 2}})
    ('a-0', 'a-10')
    """
    earlier = _kafka_offsets(before) or {}
    return tuple(
        f"{topic}-{partition}"
        for topic, partitions in sorted((_kafka_offsets(now) or {}).items())
        for partition, offset in sorted(partitions.items())
        if offset != earlier.get(topic, {}).get(partition, 0)
    )


def _records_between(before: int, now: int) -> int:
    """Return how many records a partition was read by; where offsets go back, its topic was made again and read from its beginning."""
    return now - before if now >= before else now


def filled(ends: Iterable[SourceEnd]) -> bool | None:
    """Return whether an epoch read as much of any source as it may, so that more may wait; None where unknown for some.

    >>> filled([SourceEnd(), SourceEnd(caught_up=False)]), filled([SourceEnd(), SourceEnd(caught_up=False, known=False)])
    (True, None)
    """
    every = tuple(ends)
    if any(end.known and not end.caught_up for end in every):
        return True
    return False if all(end.known for end in every) else None


def may_have_unseen_rows(spec: object) -> bool:
    """Whether a source may have rows although a trigger found none: Kafka with ``minOffsetsPerTrigger``."""
    return (
        isinstance(spec, FormatSpec) and spec.format.lower() == KAFKA and any(name.lower() == _KAFKA_MIN_OFFSETS for name in spec.options)
    )


def maybe_backlogged(
    sources: Iterable[SourceNode], ends: Mapping[str, SourceEnd], before: Mapping[str, SourceState]
) -> dict[str, SourceState]:
    """Return the states before an epoch of sources that can become idle and may have had more input than it took.

    Args:
        sources: the job's.
        ends: how far the epoch read each.
        before: their states after the epoch before.
    """
    return {
        source.name: before[source.name]
        for source in sources
        if source.watermarks.idle_after_ms is not None
        and not isinstance(source.spec, ElementsSpec)
        and not ends[source.name].caught_up
        and not may_have_unseen_rows(source.spec)
        and source.name in before
    }


def _kafka_offsets(position: object) -> Offsets | None:
    if not isinstance(position, Mapping):
        return None
    return {
        str(topic): {str(partition): int(offset) for partition, offset in partitions.items()}
        for topic, partitions in position.items()
        if isinstance(partitions, Mapping)
    }


def with_malformed_rows(head: EpochRecord | None) -> frozenset[str]:
    """Return the sources that had malformed rows in the newest epoch, and so may again have rows too far ahead."""
    progress = head.progress.sources if head else {}
    return frozenset(name for name, source in progress.items() if source.rows_malformed)
