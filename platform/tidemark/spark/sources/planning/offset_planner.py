"""Plans a source whose position is offsets, such as Kafka."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from tidemark.clock import SYSTEM_CLOCK
from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.source_specs import FormatSpec
from tidemark.spark.sources.intake_limits import KAFKA, KAFKA_MAX_OFFSETS
from tidemark.spark.sources.kafka.remade_topics import (
    is_remade,
    offsets_of,
    require_not_remade,
    require_start_in_topic,
    restarted,
    resumed,
)
from tidemark.spark.sources.kafka.topic_ids import TopicIds
from tidemark.spark.sources.planning.offset_stream import OffsetStream
from tidemark.spark.sources.planning.source_planner import Taken

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLANNED_FORMATS: Final = {KAFKA}
"""Formats whose streams are planned without a query."""

NO_IDS: Final[Mapping[str, str]] = {}

_LOOKS: Final = count(1)
_SECONDS_TO_IDS: Final = 1.0
"""How long after a question for the ids of topics that have nothing new the next one follows."""
_NEEDS_QUERY: Final = frozenset({"minoffsetspertrigger", "maxtriggerdelay"})
"""Options by which a query leaves out triggers."""


def has_offsets(spec: object) -> bool:
    """Whether a source is planned by its offsets."""
    return isinstance(spec, FormatSpec) and spec.format.lower() in PLANNED_FORMATS and not _NEEDS_QUERY & {*map(str.lower, spec.options)}


def begins_later(spec: FormatSpec) -> bool:
    """Return whether a source without a position begins with offsets that another look may not find again.

    >>> begins_later(FormatSpec("kafka", {"StartingOffsets": "Earliest"})), begins_later(FormatSpec("kafka"))
    (False, True)
    """
    given = {name.lower(): value.lower() for name, value in spec.options.items()}
    return given.get("startingoffsets", "latest") != "earliest"


class OffsetPlanner:
    """Plans one source.

    Args:
        spark: the session.
        spec: of the source, with all options.
        position: the offsets that the job has read, None before the first epoch.
        folder: address of a local folder of this run's.
        topics: the ids of the topics that the job has read.
    """

    def __init__(self, spark: SparkSession, spec: FormatSpec, position: object, folder: str, *, topics: Mapping[str, str] = NO_IDS) -> None:
        self._spark, self._spec, self._folder = spark, spec, folder
        begun = spec if position is None else resumed(spec)
        self._stream = OffsetStream(spark, begun.format, begun.options, folder)
        self._ids = TopicIds(spark, spec)
        try:
            self._read = self._stream.initial() if position is None else json.dumps(position)
        except BaseException:
            self.close()
            raise
        self._latest = self._read
        self._topics = topics
        self._is_remade = False
        self._ask_ids_at = 0.0
        self._rows: int | None = None
        # Otherwise the records that come between a first run without any and the next one would be left out.
        self._begins_later = position is None and begins_later(spec)

    @property
    def has_unread(self) -> bool:
        """Whether the last look found newer offsets than those read, a topic that was made again, or the beginning is to be recorded."""
        return self._begins_later or self._is_remade or bool(json.loads(self._latest) != json.loads(self._read))

    def look(self) -> None:
        """Ask for the newest offsets, and from time to time for the ids of topics: one that was made again may have as many records."""
        if self._begins_later or not self.has_unread:
            self._latest = self._stream.latest(self._read)
            if SYSTEM_CLOCK.monotonic() >= self._ask_ids_at:
                _, remade = self._topics_of(self._topics)
                self._is_remade = bool(remade)

    def fix_end(self) -> None:
        """Let the source end at its newest offsets."""
        self._stream.fix_end()

    def take(self, source: SourceNode, before: object) -> Taken | None:
        """Return the rows of the next epoch.

        Raises:
            SourceError: a topic was made again, and the source declares that as an error; or it is to begin behind its end.
        """
        del before  # the offsets read are those of the epoch before, or the first ones
        if not self.has_unread:
            return None
        read, end = self._read, self._stream.latest(self._read, rows=_most(source))
        # Asked after the offsets: if a topic is made again in between, that is noticed now.
        ids, remade = self._topics_of(json.loads(end))
        require_not_remade(source, remade)
        start = first_offsets(self._spark, self._spec, read, end, folder=self._folder, remade=remade)
        if start != read:
            end = self._stream.latest(start, rows=_most(source))
        self._is_remade = False
        position = json.loads(end)
        if position == json.loads(read) == json.loads(start) and not self._begins_later:
            self._latest = read
            return None
        if self._begins_later:
            require_start_in_topic(source, read, end)
        self._begins_later = False
        self._read, self._latest, self._topics = end, self._stream.latest(end), ids
        self._rows = _rows_between(json.loads(start), position)
        return Taken(
            position,
            read=partial(self._stream.rows, start, end),
            rows=self._rows,
            start=None if start == read else json.loads(start),
            topics=ids,
        )

    def _topics_of(self, topics: Collection[str]) -> tuple[Mapping[str, str], frozenset[str]]:
        """Return the ids of topics, and which of them were made again; of sources for which that has no meaning none."""
        if self._spec.on_remade is None:
            return self._topics, frozenset()
        self._ask_ids_at = SYSTEM_CLOCK.monotonic() + _SECONDS_TO_IDS
        return self._ids.since(self._topics, topics, json.loads(self._read))

    def committed(self, position: object) -> None:
        """Do nothing."""

    def metrics(self) -> Mapping[str, object]:
        """Return the rows of the last epoch, and how far it is behind."""
        read, latest = json.loads(self._read), json.loads(self._latest)
        behind, partitions = _rows_between(read, latest), sum(map(len, read.values())) if isinstance(read, dict) else 0
        if behind is None or not partitions:
            return {}
        metrics = {"avgOffsetsBehindLatest": str(max(behind, 0) / partitions)}
        return {"numInputRows": self._rows or 0, "endOffset": self._read, "latestOffset": self._latest, "metrics": metrics}

    def close(self) -> None:
        """Close the connections to the source."""
        self._stream.close()
        self._ids.close()


def _most(source: SourceNode) -> int | None:
    options = source.spec.options if isinstance(source.spec, FormatSpec) else {}
    given = {name.lower(): value for name, value in options.items()}.get(KAFKA_MAX_OFFSETS.lower())
    return None if given is None else int(given)


def first_offsets(
    spark: SparkSession, spec: FormatSpec, start: str, end: str, *, folder: str, remade: Collection[str] = frozenset()
) -> str:
    """Return the offsets that an epoch begins with: of partitions that were made again the earliest, where the source wishes that.

    Args:
        spark: the session.
        spec: of the source, with all options.
        start: the offsets read before the epoch.
        end: those read after it.
        folder: address of a local folder of this run's.
        remade: the topics that were made again, as far as their ids say it.
    """
    if spec.on_remade != "restart" or not (remade or is_remade(json.loads(start), json.loads(end))):
        return start
    # A stream notes its first offsets in its folder, and a topic may be made again several times.
    return restarted(start, end, earliest(spark, spec, f"{folder}-{next(_LOOKS)}"), remade)


def earliest(spark: SparkSession, spec: FormatSpec, folder: str) -> str:
    """Return the earliest offsets that Kafka has of a source's partitions."""
    stream = OffsetStream(spark, spec.format, resumed(spec).options, folder)
    try:
        return stream.initial()
    finally:
        stream.close()


def _rows_between(start: object, end: object) -> int | None:
    """Return the number of offsets between two positions of Kafka's; None for other formats."""
    if not isinstance(start, Mapping) or not isinstance(end, Mapping):
        return None
    try:
        first, last = offsets_of(start), offsets_of(end)
    except AttributeError:
        return None
    return sum(offset - first.get(place, 0) for place, offset in last.items())
