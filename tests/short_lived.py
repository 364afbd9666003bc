"""Settings of sessions that see a few rows: of those that live as long as a test process, and of those that end with a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.spark.env.class_archive import archive_options
from tidemark.spark.env.session import LOCAL
from tidemark.spark.env.start_errors import JAVA_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# For a few rows, compiling a plan costs more than it saves.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}

# Those of HotSpot, also for the second compiler: a session that lives as long as a test process runs for long.
LONG_LIVED = {
    JAVA_OPTIONS: (
        f"{LOCAL[JAVA_OPTIONS]} -XX:TieredStopAtLevel=4 -XX:Tier4InvocationThreshold=5000 -XX:Tier4MinInvocationThreshold=600"
        f" -XX:Tier4CompileThreshold=15000 -XX:Tier4BackEdgeThreshold=40000 {archive_options()}"
    ).rstrip(),
    **INTERPRETED,
}

# The JVM's second compiler pays only where something runs for long: after some minutes tests take a third of the time with it.
SHORT_LIVED = {JAVA_OPTIONS: f"{LOCAL[JAVA_OPTIONS]} -XX:TieredStopAtLevel=1 {archive_options()}".rstrip(), **INTERPRETED}


def compiling(spark: SparkSession) -> SparkSession:
    """Return a new session on the same context that compiles its plans, as a job's does."""
    session = spark.newSession()
    session.conf.set("spark.sql.codegen.wholeStage", "true")
    session.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    return session
