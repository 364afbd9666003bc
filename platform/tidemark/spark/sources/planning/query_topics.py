"""Topics that a query of Spark's reads, and that were made again: an epoch of the query is not run over another topic's offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.source_specs import FormatSpec
from tidemark.spark.sources.epoch_input import EpochInput
from tidemark.spark.sources.kafka.options import resolved
from tidemark.spark.sources.kafka.remade_topics import offsets_of, require_not_remade
from tidemark.spark.sources.kafka.topic_ids import TopicIds
from tidemark.state.log.records import EpochRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class QueryTopics:
    """The ids of topics that a query of Spark's reads.

    Args:
        spark: the session.
        sources: of the job; nothing is asked for those that declare nothing about topics that are made again.
    """

    def __init__(self, spark: SparkSession, sources: Sequence[SourceNode]) -> None:
        self._spark = spark
        # Only of these it is declared what to do.
        self._sources = [source for source in sources if isinstance(source.spec, FormatSpec) and source.spec.on_remade is not None]
        self._ids: dict[str, TopicIds] = {}

    def noted(self, taken: EpochInput, before: EpochRecord | None) -> EpochInput:
        """Return the input of a batch with the ids of its topics.

        Args:
            taken: the input.
            before: the record of the epoch before, None before the first.

        Raises:
            SourceError: a topic was made again, and its source declares that as an error.
            py4j.protocol.Py4JJavaError: the brokers do not answer.
        """
        topics: dict[str, Mapping[str, str]] = {}
        for source in self._sources:
            if taken.has_new_data(source.name) and isinstance(source.spec, FormatSpec):
                if source.name not in self._ids:
                    self._ids[source.name] = TopicIds(self._spark, resolved(source, source.spec))
                known = before.topics.get(source.name, {}) if before is not None else {}
                asked = {topic for topic, _ in offsets_of(taken.now[source.name])}
                topics[source.name], remade = self._ids[source.name].since(known, asked, taken.before.get(source.name))
                require_not_remade(source, remade)
        return replace(taken, topics=topics)

    def close(self) -> None:
        """Close the connections."""
        for ids in self._ids.values():
            ids.close()
