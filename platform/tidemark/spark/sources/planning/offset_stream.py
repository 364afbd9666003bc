"""A source of Spark whose position is offsets, such as Kafka, without a query: its newest offsets, and the rows between two.

These are the classes that a query of Spark's uses: options, limits, new partitions and lost records mean the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame

from tidemark.spark.sources.intake_limits import KAFKA

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import SparkSession

_WAIT: Final = "kafka.fetch.max.wait.ms"
_WAIT_MS: Final = "20"
"""An epoch reads records that are there. Behind the last one of a partition Kafka's client asks for more, and what it asks next waits
behind that: half a second by default, with each task that reads a partition to its end."""


def with_short_waits(format: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return options of a stream, with a short wait for records that are not there yet, unless they have a wait.

    >>> with_short_waits("kafka", {"subscribe": "fares"})
    {'kafka.fetch.max.wait.ms': '20', 'subscribe': 'fares'}
    >>> with_short_waits("kafka", {"Kafka.Fetch.Max.Wait.Ms": "500"})
    {'Kafka.Fetch.Max.Wait.Ms': '500'}
    """
    has_wait = format.lower() != KAFKA or any(name.lower() == _WAIT for name in options)
    return dict(options) if has_wait else {_WAIT: _WAIT_MS, **options}


class OffsetStream:
    """A stream of a format, opened in the calling thread, which alone may use it.

    Offsets are the texts that Spark's offset log has.

    Args:
        spark: the session.
        format: a format whose Java class is a ``TableProvider`` of micro-batches.
        options: of Spark's reader.
        folder: address of a local folder of this run's, for what the stream notes.

    Raises:
        py4j.protocol.Py4JError: there is no such format, or it rejects its options.
    """

    def __init__(self, spark: SparkSession, format: str, options: Mapping[str, str], folder: str) -> None:
        self._spark = spark
        self._jvm = spark.sparkContext._jvm  # noqa: SLF001  # PySpark has no such API
        self._session = spark._jsparkSession  # noqa: SLF001
        self._activate()
        classes = self._jvm.org.apache.spark.sql.execution.datasources  # type: ignore[union-attr]
        given = self._jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(with_short_waits(format, options))  # type: ignore[union-attr]
        # As a reader of streams does it; what is meant for batches leaves out some formats.
        provider = classes.DataSource.lookupDataSource(format, self._session.sessionState().conf()).newInstance()
        none = self._jvm.scala.Option.empty()  # type: ignore[union-attr]
        table = classes.v2.DataSourceV2Utils.getTableFromProvider(provider, given, none)
        scan = table.newScanBuilder(given).build()
        self._schema = scan.readSchema()
        self._stream: JavaObject = scan.toMicroBatchStream(folder)
        self._limits = self._jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit  # type: ignore[union-attr]

    def initial(self) -> str:
        """Return the offsets that the stream begins with."""
        self._activate()
        return str(self._stream.initialOffset().json())

    def fix_end(self) -> None:
        """Let the stream end at its newest offsets of now."""
        self._activate()
        self._stream.prepareForTriggerAvailableNow()

    def latest(self, start: str, *, rows: int | None = None) -> str:
        """Return the newest offsets, or those up to which there are at most so many rows.

        Args:
            start: the offsets read so far.
            rows: how many rows may be read after them; a partition that has rows gets one at least.
        """
        self._activate()
        limit = self._limits.allAvailable() if rows is None else self._limits.maxRows(rows)
        found = self._stream.latestOffset(self._stream.deserializeOffset(start), limit)
        return start if found is None else str(found.json())

    def rows(self, start: str, end: str) -> DataFrame:
        """Return the rows between two offsets."""
        self._activate()
        first, last = self._stream.deserializeOffset(start), self._stream.deserializeOffset(end)
        partitions = self._jvm.java.util.ArrayList()  # type: ignore[union-attr]
        for partition in self._stream.planInputPartitions(first, last):
            partitions.add(self._jvm.scala.Some(partition))  # type: ignore[union-attr]
        seq, no_metrics = self._jvm.PythonUtils.toSeq(partitions), self._jvm.PythonUtils.toScalaMap({})  # type: ignore[union-attr]
        factory = self._stream.createReaderFactory()
        rdd = self._jvm.org.apache.spark.sql.execution.datasources.v2.DataSourceRDD(  # type: ignore[union-attr]
            self._session.sparkContext(), seq, factory, False, no_metrics
        )
        return DataFrame(self._session.internalCreateDataFrame(rdd, self._schema, False), self._spark)

    def close(self) -> None:
        """Close its connections."""
        self._stream.stop()

    def _activate(self) -> None:
        """Make the session that of this thread, as streams expect."""
        self._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(self._session)  # type: ignore[union-attr]
