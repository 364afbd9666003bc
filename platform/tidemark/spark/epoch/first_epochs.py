"""The first epochs of a run interpret their expressions where they have few rows, instead of generating Java and compiling it.

In a JVM that has just started, a generated class costs up to a tenth of a second: the compiler's own classes are loaded, and it runs
uncompiled. Few rows do not win that back, and from the third epoch on most passes over few rows have a prepared plan, for which classes
are generated then (ADR 56). Spark's own settings choose between both; the results are the same.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

from tidemark.spark.changed_settings import changed_settings
from tidemark.spark.columns.few_rows import FEW_ROWS
from tidemark.spark.env.session import jobs_in
from tidemark.spark.prepared.prepared_pass import PreparedPass

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from tidemark.spark.epoch.epoch_plan import EpochPlan

_COMPILED: Final = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
_INTERPRETED: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


class FirstEpochs:
    """Says of each epoch of a run whether it is interpreted: those before any plan is kept are, where they have few rows.

    A plan that is made in an interpreted epoch would be interpreted for good, also one that another job in the session keeps meanwhile;
    so epochs of a job that shares its session are not interpreted.
    """

    def __init__(self) -> None:
        self._begun = 0

    def passes(self, spark: SparkSession, plan: EpochPlan) -> AbstractContextManager[None]:
        """Return the context in which the next epoch's passes are made.

        Args:
            spark: the epoch's session.
            plan: of the epoch.
        """
        self._begun += 1
        first = self._begun <= PreparedPass.PREPARED_AFTER
        return _interpreted(spark) if first and _is_small(plan) and jobs_in(spark) <= 1 else nullcontext()


def _is_small(plan: EpochPlan) -> bool:
    """Whether an epoch is known to read few rows: of input, of state, and none of other tables."""
    stored = sum(file.rows for state in plan.before.operators.values() for file in state.files)
    return all(batch.has_few_rows for batch in plan.batches.values()) and stored <= FEW_ROWS and not plan.tables


def _interpreted(spark: SparkSession) -> AbstractContextManager[None]:
    """Have a session interpret expressions in the block; one with other settings than Spark's defaults keeps them."""
    own = any(spark.conf.get(key) != value for key, value in _COMPILED.items())
    return nullcontext() if own else changed_settings(spark, _INTERPRETED)
