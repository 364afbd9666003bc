"""Settings of a session that lives only as long as a few tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.spark.class_archive import archive_options
from tidemark.spark.session import JAVA_OPTIONS, LOCAL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# For a few rows, compiling a plan costs more than it saves; and the JVM's second compiler pays only where something runs for long.
SHORT_LIVED = {
    JAVA_OPTIONS: f"{LOCAL[JAVA_OPTIONS]} -XX:TieredStopAtLevel=1 {archive_options()}".rstrip(),
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def compiling(spark: SparkSession) -> SparkSession:
    """Return a new session on the same context that compiles its plans, as a job's does."""
    session = spark.newSession()
    session.conf.set("spark.sql.codegen.wholeStage", "true")
    session.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    return session
