"""Settings of a session that lives only as long as a few tests."""

from __future__ import annotations

from tidemark.spark.session import JAVA_OPTIONS, LOCAL

# The JVM's second compiler pays for what it costs only where something runs for long.
SHORT_LIVED = {JAVA_OPTIONS: f"{LOCAL[JAVA_OPTIONS]} -XX:TieredStopAtLevel=1"}
