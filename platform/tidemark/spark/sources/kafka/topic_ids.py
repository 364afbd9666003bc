"""Ids of topics: one that was deleted and made again has another id, whatever its offsets are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError

from tidemark.graph.model.source_specs import FormatSpec
from tidemark.spark.sources.kafka.remade_topics import remade_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PREFIX: Final = "kafka."
_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""Of brokers before 2.8."""


class TopicIds:
    """Asks the brokers of a source for the ids of topics, with the source's options; it connects with the first question.

    Args:
        spark: a session with Kafka's connector.
        spec: of the source, with all options.
    """

    def __init__(self, spark: SparkSession, spec: FormatSpec) -> None:
        self._jvm: Any = spark.sparkContext._jvm  # noqa: SLF001  # PySpark has no such API
        self._spec = spec
        self._admin: Any = None
        self._cluster = ""

    def of(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the ids of those topics that exist and have one, each behind its cluster's, as ``CLUSTER/ID``.

        Raises:
            py4j.protocol.Py4JJavaError: the brokers do not answer, or refuse it.
        """
        names = self._jvm.java.util.ArrayList()
        for topic in topics:
            names.add(topic)
        found: dict[str, str] = {}
        if names.isEmpty():
            return found
        for topic, answer in self._connected().describeTopics(names).topicNameValues().items():
            try:
                id_ = str(answer.get().topicId())
            except Py4JJavaError as error:
                if "UnknownTopicOrPartitionException" not in str(error.java_exception):
                    raise
                continue
            if id_ != _NO_ID:
                found[str(topic)] = f"{self._cluster}/{id_}"
        return found

    def since(self, known: Mapping[str, str], topics: Collection[str], read: object) -> tuple[dict[str, str], frozenset[str]]:
        """Return the ids of topics, and those of the topics that were made again; one that brokers do not know at this moment keeps its id.

        Args:
            known: the ids of the topics that were read.
            topics: of which to ask.
            read: the offsets that were read.

        Raises:
            py4j.protocol.Py4JJavaError: the brokers do not answer, or refuse it.
        """
        ids = {**{topic: id_ for topic, id_ in known.items() if topic in topics}, **self.of(topics)}
        return ids, remade_topics(known, ids, read)

    def close(self) -> None:
        """Close the connection."""
        if self._admin is not None:
            self._admin.close(self._jvm.java.time.Duration.ZERO)
            self._admin = None

    def _connected(self) -> Any:  # noqa: ANN401 - a Java object
        if self._admin is None:
            # Spark's source takes options in any case, too.
            given = {name[len(_PREFIX) :].lower(): value for name, value in self._spec.options.items() if name.lower().startswith(_PREFIX)}
            settings = self._jvm.PythonUtils.toScalaMap(given)
            # As Spark's source does: it takes the user's delegation token, where there is one.
            updater = self._jvm.org.apache.spark.kafka010.KafkaConfigUpdater("source", settings)
            admin = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(updater.setAuthenticationConfigIfNeeded().build())
            try:
                self._cluster = str(admin.describeCluster().clusterId().get() or "")
            except BaseException:
                admin.close(self._jvm.java.time.Duration.ZERO)
                raise
            self._admin = admin
        return self._admin
