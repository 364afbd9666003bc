"""Whether reading rows twice could give other rows, as far as Spark knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def is_deterministic(frame: DataFrame) -> bool:
    """Return whether Spark considers every expression of the plan deterministic (no rand, uuid, …), and none reads the clock."""
    plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - Python has no public way to ask
    jvm = frame.sparkSession.sparkContext._jvm  # noqa: SLF001
    if jvm is None:
        raise ValueError("the session has ended")
    asks_for_time = plan.containsPattern(jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE())
    return bool(plan.deterministic()) and not asks_for_time
