"""Which file systems Spark has: object stores are read and written through Hadoop's connectors, which PySpark does not include."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError

from tidemark.errors import SetupError
from tidemark.graph.job.job import Job
from tidemark.graph.model.nodes import DeltaSpec, ParquetSpec
from tidemark.graph.model.source_specs import DeltaTableSpec, FilesSpec
from tidemark.locations import Location, absolute_path
from tidemark.spark.env.store_settings import AZURE_HOST, azure_settings, google_settings, hand_over, was_given

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONNECTORS: Final[Mapping[str, str]] = {
    "s3a": "the connector by `tidemark connectors install s3`, or spark.jars.packages=org.apache.hadoop:hadoop-aws:{hadoop}",
    "abfss": "spark.jars.packages=org.apache.hadoop:hadoop-azure:{hadoop}",
    "gs": "spark.jars.packages=org.apache.hadoop:hadoop-gcp:{hadoop}",
}
_ALSO: Final[Mapping[str, str]] = {"s3": "s3a", "gcs": "gs"}


def require_file_systems(spark: SparkSession, job: Job, store: Location) -> None:
    """Make sure that Spark has a file system for each place of a job, and the credentials that it needs; no place is accessed.

    Args:
        spark: the session.
        job: the job, with the places of its sources and outputs.
        store: the root of the job store.

    Raises:
        SetupError: Spark has none for one of them, or the credentials cannot be used.
    """
    outputs = [output.sink.path for output in job.outputs.values() if isinstance(output.sink, DeltaSpec | ParquetSpec)]
    sources = (source.spec.path for source in job.sources.values() if isinstance(source.spec, FilesSpec))
    tables = [source.spec.path for source in job.sources.values() if isinstance(source.spec, DeltaTableSpec)]
    places = [
        store.spark_uri,
        *(Location.parse(path).spark_uri for path in [*outputs, *tables]),
        *(readable(spark, path) for path in sources),
    ]
    for place in places:
        scheme, separator, rest = place.partition("://")
        hand_over(spark, _credentials(spark, scheme, rest))
        if separator and not _has(spark, scheme):
            hadoop = spark.sparkContext._jvm.org.apache.hadoop.util.VersionInfo.getVersion()  # type: ignore[union-attr]  # noqa: SLF001
            connector = _CONNECTORS.get(scheme, "Hadoop's connector for it").format(hadoop=hadoop)
            raise SetupError(
                f"Spark has no file system for {scheme}://, so it can neither read nor write {place}",
                fix=f"give the session {connector}",
                job=job.name,
            )


def _credentials(spark: SparkSession, scheme: str, rest: str) -> dict[str, str]:
    """Return Hadoop's settings for a place, from this process's variables, unless the session says how it authenticates.

    Those for S3 a session has from its start.
    """
    if scheme == "abfss":
        account = rest.partition("/")[0].rpartition("@")[2].partition(".")[0]
        host, kind = f"{account}.{AZURE_HOST}", "fs.azure.account.auth.type"
        # The second is for all accounts; with a key alone no type is needed.
        own = (f"{kind}.{host}", kind, f"fs.azure.account.key.{host}")
        return {} if any(was_given(spark, name) for name in own) else azure_settings(os.environ, account)
    return google_settings(os.environ) if scheme == "gs" and not was_given(spark, "fs.gs.auth.type") else {}


def readable(spark: SparkSession, path: str) -> str:
    """Return a path, or a pattern, as Spark reads it.

    ``s3://`` is ``s3a://``, unless the session has a file system of that name. A relative path starts from the working directory of this
    process, as all paths of a job do: Java has its own, which stays what it was when Spark started.
    """
    path = absolute_path(path)
    scheme, separator, rest = path.partition("://")
    also = _ALSO.get(scheme.lower())
    return f"{also}://{rest}" if separator and also is not None and not _has(spark, scheme) else path


def _has(spark: SparkSession, scheme: str) -> bool:
    context = spark.sparkContext
    conf = context._jsc.hadoopConfiguration()  # noqa: SLF001
    try:
        context._jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, conf)  # type: ignore[union-attr]  # noqa: SLF001
    except Py4JJavaError:
        return False
    return True
