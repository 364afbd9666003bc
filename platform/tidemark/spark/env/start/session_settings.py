"""The settings that a session is built with. Loads no PySpark."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.spark.env.avro_limits import EXECUTOR_OPTIONS, executor_options
from tidemark.spark.env.class_archive import archive_options
from tidemark.spark.env.connector_jars import connector_settings
from tidemark.spark.env.crash_reports import is_in_spark_defaults
from tidemark.spark.env.java import ensure_java
from tidemark.spark.env.start_errors import JAVA_OPTIONS

SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    # An overflowing sum is an error, not a wrong number.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    # Adaptive execution runs one more job per shuffle, and epochs are small: measured slower.
    "spark.sql.adaptive.enabled": "false",
    # INT96 has no statistics and Delta does not know it.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # List a few hundred state files on the driver, not the executors.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Otherwise a record is malformed or not depending on the columns that a job uses.
    "spark.sql.csv.parser.columnPruning.enabled": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    # Each file that is read is read once or a few times, by relations of which each has entries of its own in the cache of listings:
    # it would grow with every epoch, up to 250 MB.
    "spark.sql.hive.filesourcePartitionFileCacheSize": "0",
}

START: Mapping[str, str] = {
    # Of generated classes Spark keeps 100 by default, and an epoch of three operators has more: each was compiled again in every epoch.
    "spark.sql.codegen.cache.maxEntries": "3000",
    # Else PySpark asks the JVM eight times more for each column, to say in an error where in the engine it was made.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
"""Settings that a session is started with and keeps."""

LOCAL: Mapping[str, str] = {
    # Servers of a session on one machine are not reachable from others.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The plan of every query goes to listeners as a text; the longer one is only for Spark's pages.
    "spark.sql.ui.explainMode": "simple",
    # Measured a third faster than G1, which marks the heap all the time beside Spark's large arrays; and Spark's many classes would
    # else have the whole heap collected several times at the start. Until the first epoch is out a quarter of the work is the second
    # compiler's, on what hardly runs again (Spark's SQL parser, above all): thirty times the default thresholds leave that compiler to
    # what a stream runs for long.
    JAVA_OPTIONS: (
        "-XX:+UseParallelGC -XX:MetaspaceSize=256m -XX:Tier4InvocationThreshold=150000 -XX:Tier4MinInvocationThreshold=18000"
        " -XX:Tier4CompileThreshold=450000 -XX:Tier4BackEdgeThreshold=1200000"
    ),
}
"""Settings of a session on one machine."""


def local_settings() -> dict[str, str]:
    """Return the settings of a session on this machine; Java options in the user's ``spark-defaults.conf`` stay."""
    if is_in_spark_defaults(JAVA_OPTIONS):
        return {key: value for key, value in LOCAL.items() if key != JAVA_OPTIONS}
    return {**LOCAL, JAVA_OPTIONS: f"{LOCAL[JAVA_OPTIONS]} {archive_options()}".rstrip()}


def start_settings(master: str, *, app_name: str = "tidemark", conf: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return all settings of a session; ``conf`` overrides the defaults.

    Raises:
        SetupError: no Java 17 or newer is found.
    """
    ensure_java()
    local = local_settings() if master.startswith("local") else {}
    executors = {} if local or is_in_spark_defaults(EXECUTOR_OPTIONS) else {EXECUTOR_OPTIONS: executor_options()}
    given = {**local, **executors, **START, **SETTINGS, **(conf or {})}
    found = {**connector_settings(given), **given, "spark.master": master, "spark.app.name": app_name}
    return {key: value for key, value in found.items() if value}
