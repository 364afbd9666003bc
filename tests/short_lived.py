"""Settings of a session that lives only as long as a few tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.spark.session import JAVA_OPTIONS, LOCAL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The JVM's second compiler pays for what it costs only where something runs for long.
SHORT_LIVED = {JAVA_OPTIONS: f"{LOCAL[JAVA_OPTIONS]} -XX:TieredStopAtLevel=1"}

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""For a few rows, compiling a plan costs more than it saves."""


def interpreting(spark: SparkSession) -> SparkSession:
    """Return a new session on the same context that compiles no plans."""
    session = spark.newSession()
    for setting, value in INTERPRETED.items():
        session.conf.set(setting, value)
    return session
