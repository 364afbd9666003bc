"""Settings of sessions that see a few rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.spark.env.class_archive import archive_options
from tidemark.spark.env.session import LOCAL
from tidemark.spark.env.start_errors import JAVA_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Half of the processor time went into the JVM's second compiler; without it, the first one needs the room of both. For a few rows,
# compiling a plan costs more than it saves, too.
FEW_ROWS = {
    JAVA_OPTIONS: f"{LOCAL[JAVA_OPTIONS]} -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m {archive_options()}".rstrip(),
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Measured 8 % of a test's time; it saves reading rows, of which there are few.
    "spark.sql.constraintPropagation.enabled": "false",
}


def compiling(spark: SparkSession) -> SparkSession:
    """Return a new session on the same context that plans and compiles as a job's does."""
    session = spark.newSession()
    session.conf.set("spark.sql.codegen.wholeStage", "true")
    session.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    session.conf.set("spark.sql.constraintPropagation.enabled", "true")
    return session
