"""Positions of topics that are resumed, and of topics that were deleted and made again."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace

from tidemark.errors import SourceError
from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.source_specs import FormatSpec


def resumed(spec: FormatSpec) -> FormatSpec:
    """Return the spec of a source that has a position: it begins with the earliest offsets, whatever was declared.

    Spark looks for the declared start each time, and fails where it names offsets of some partitions only, as after more were added.

    >>> dict(resumed(FormatSpec("kafka", {"subscribe": "fares", "startingTimestamp": "5"})).options)
    {'subscribe': 'fares', 'startingOffsets': 'earliest'}
    """
    kept = {name: value for name, value in spec.options.items() if not name.lower().startswith("starting")}
    return replace(spec, options={**kept, "startingOffsets": "earliest"})


def is_remade(start: object, end: object) -> bool:
    """Return whether a partition's offsets go back, or it is gone: its topic was made again.

    >>> is_remade({"a": {"0": 3}}, {"a": {"0": 4}}), is_remade({"a": {"0": 3}}, {"a": {"0": 1}}), is_remade({"a": {"0": 3}}, {})
    (False, True, True)
    """
    before, after = offsets_of(start), offsets_of(end)
    return any(place not in after or after[place] < offset for place, offset in before.items())


def remade_topics(known: Mapping[str, str], now: Mapping[str, str], read: object) -> frozenset[str]:
    """Return the topics that were made again after some of their records: those with another id in the same cluster.

    Args:
        known: the ids of the topics that were read, as ``CLUSTER/ID``; none of those that an earlier build read.
        now: those of the topics now.
        read: the offsets that were read.

    >>> offsets = {topic: {"0": 3} for topic in ("a", "b", "d")}
    >>> remade_topics({"a": "c/1", "b": "c/2", "d": "c/3"}, {"a": "c/1", "b": "c/4", "d": "other/5", "e": "c/6"}, offsets)
    frozenset({'b'})
    >>> remade_topics({"a": "c/1"}, {"a": "c/2"}, {"a": {"0": 0}})
    frozenset()
    """
    begun = {topic for (topic, _), offset in offsets_of(read).items() if offset}
    return frozenset(
        topic
        for topic, id_ in known.items()
        if topic in begun and now.get(topic, id_) != id_ and now[topic].partition("/")[0] == id_.partition("/")[0]
    )


def restarted(start: str, end: str, first: str, remade: Collection[str] = ()) -> str:
    """Return offsets to begin with: of partitions that were made again the first ones, of others those that were read.

    Args:
        start: the offsets read.
        end: of the epoch; it has no partitions that are gone.
        first: the earliest offsets.
        remade: the topics that were made again, as far as their ids say it; others are known by offsets that go back.

    >>> restarted('{"a": {"0": 3, "1": 5, "2": 7}}', '{"a": {"0": 1, "1": 6}}', '{"a": {"0": 0, "1": 2}}')
    '{"a": {"0": 0, "1": 5}}'
    >>> restarted('{"a": {"0": 3, "1": 5}}', '{"a": {"0": 9, "1": 9}}', '{"a": {"0": 0, "1": 2}}', {"a"})
    '{"a": {"0": 0, "1": 2}}'
    """
    earliest_offsets, after = offsets_of(json.loads(first)), offsets_of(json.loads(end))
    found: dict[str, dict[str, int]] = {}
    for (topic, number), offset in offsets_of(json.loads(start)).items():
        place = (topic, number)
        if place in after:
            is_same = topic not in remade and offset <= after[place]
            found.setdefault(topic, {})[number] = offset if is_same else earliest_offsets.get(place, 0)
    return json.dumps(found)


def require_same_topics(source: SourceNode, before: object, now: object) -> None:
    """Check that no partition's offsets go back, where the source declares that as an error.

    Spark continues at the newest offset with ``failOnDataLoss=false``, and leaves out the records in front of it.

    Raises:
        SourceError: a topic was made again, or its broker lost records.
    """
    back = _went_back(before, now) if _fails(source) else None
    if back is not None:
        raise SourceError(
            f"the offsets of {back} in source {source.name!r}: the topic was deleted and made again, or the broker lost records",
            fix="write kafka_source(on_remade='restart') to read the partition from its beginning, or restore a savepoint from before",
            uid=source.name,
            place=source.place,
        )


def require_not_remade(source: SourceNode, remade: Collection[str]) -> None:
    """Check that no topic was made again, as far as ids say it, where the source declares that as an error.

    Raises:
        SourceError: one was.
    """
    if remade and _fails(source):
        raise SourceError(
            f"topic {min(remade)!r} of source {source.name!r} was deleted and made again: its id is another one",
            fix="write kafka_source(on_remade='restart') to read the topic from its beginning",
            uid=source.name,
            place=source.place,
        )


def _fails(source: SourceNode) -> bool:
    return isinstance(source.spec, FormatSpec) and source.spec.on_remade == "fail"


def require_start_in_topic(source: SourceNode, first: str, end: str) -> None:
    """Check that a source that has read nothing does not begin behind a partition's end, which is an offset of another topic.

    Raises:
        SourceError: it does.
    """
    if not isinstance(source.spec, FormatSpec) or source.spec.on_remade is None:
        return
    back = _went_back(json.loads(first), json.loads(end))
    if back is not None:
        raise SourceError(
            f"source {source.name!r} is to begin behind the end of a partition: the offsets of {back}",
            fix="correct from_offsets=; -1 is the next record of a partition",
            uid=source.name,
            place=source.place,
        )


def _went_back(before: object, now: object) -> str | None:
    after = offsets_of(now)
    found = (
        f"{topic}-{number} go from {offset} to {after[topic, number]}"
        for (topic, number), offset in sorted(offsets_of(before).items())
        if after.get((topic, number), offset) < offset
    )
    return next(found, None)


def offsets_of(position: object) -> dict[tuple[str, str], int]:
    """Return the offset of each partition, by topic and number; none before the first epoch.

    Raises:
        AttributeError: it is a position of another format than Kafka's.
    """
    items = position.items() if isinstance(position, Mapping) else ()
    return {(topic, number): int(offset) for topic, numbers in items for number, offset in numbers.items()}
