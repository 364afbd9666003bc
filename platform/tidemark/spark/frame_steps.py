"""Several steps on a DataFrame in one call, after which Spark analyses its plan once.

Each method of a DataFrame has Spark go over the plan with all rules of its analyzer, a millisecond or more, and asks the JVM several times
for each column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.spark.compiled_java import shared_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Observation

_CLASS: Final = "FrameSteps"
_STEP: Final = "\1"
_PART: Final = "\0"
_COLUMN: Final = "\2"


class FrameSteps:
    """Steps on a DataFrame, which are taken when ``frame`` is called; each method adds one in place, as the DataFrame's of that name does.

    A column is SQL or a Column. An expression of a user's is a Column, unless it is a name: behind it an alias may be in a comment.

    Args:
        rows: the DataFrame before them.
    """

    def __init__(self, rows: DataFrame) -> None:
        self._rows = rows
        self._steps: list[str] = []
        self._columns: list[Column] = []
        self._observation: Observation | None = None

    def select(self, *columns: str | Column) -> FrameSteps:
        """Keep these columns only."""
        return self._add("select", *map(self._part, columns))

    def where(self, condition: str | Column) -> FrameSteps:
        """Keep the rows for which a condition is true."""
        return self._add("where", self._part(condition))

    def group(self, keys: Sequence[str | Column], *aggregates: str | Column) -> FrameSteps:
        """Group the rows by the keys, and compute aggregates; the result has both."""
        return self._add("group", str(len(keys)), *map(self._part, (*keys, *aggregates)))

    def observe(self, observation: Observation, *metrics: str | Column) -> FrameSteps:
        """Observe metrics of the rows; one step at most."""
        if self._observation is not None:
            raise ValueError("the rows are observed already")
        self._observation = observation
        return self._add("observe", *map(self._part, metrics))

    def in_one_task(self) -> FrameSteps:
        """Have the rows in one partition, of which Spark knows that it needs no shuffle."""
        return self._add("coalesce")

    def frame(self) -> DataFrame:
        """Return the DataFrame after the steps."""
        if not self._steps:
            return self._rows
        session = self._rows.sparkSession
        observed = None
        if self._observation is not None:
            # As DataFrame.observe sets them.
            jvm = self._observation._jvm = session.sparkContext._jvm  # noqa: SLF001
            observed = self._observation._jo = getattr(jvm, "org.apache.spark.sql.Observation")()  # noqa: SLF001
        columns = [each._jc for each in self._columns] or None  # noqa: SLF001
        steps = shared_object(session, __package__, _CLASS)
        return DataFrame(steps.after(self._rows._jdf, _STEP.join(self._steps), columns, observed), session)  # noqa: SLF001

    def _add(self, *parts: str) -> FrameSteps:
        self._steps.append(_PART.join(parts))
        return self

    def _part(self, column: str | Column) -> str:
        if isinstance(column, str):
            if not any(separator in column for separator in (_STEP, _PART, _COLUMN)):
                return column
            column = F.expr(column)
        self._columns.append(column)
        return f"{_COLUMN}{len(self._columns) - 1}"
