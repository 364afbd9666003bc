"""Columns of an operator's state and results, from its inputs' columns alone. Makes plans and runs none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from tidemark.spark.columns.arrow_batches import POSITION_TYPE
from tidemark.spark.columns.expressions import POSITION, TIME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class OperatorSchemas(ABC):
    """The columns of one operator, from empty frames with the columns of its inputs."""

    @abstractmethod
    def state(self) -> T.StructType:
        """Return the columns of its main state table, without the engine's own; all nullable."""

    @abstractmethod
    def results(self) -> T.StructType:
        """Return the columns of its results, including the engine's own."""

    def side_output(self, counter: str) -> T.StructType | None:
        """Return the columns of a side output, including the engine's own; None where its rows are rows of the input."""
        del counter
        return None

    def empty_accumulators(self) -> DataFrame | None:
        """Return one row of state without elements, which merges with other rows without changing them. None where there is no such row."""
        return None


def with_time(columns: T.StructType) -> T.StructType:
    """Return columns with the engine's own of emitted rows: event time, and position."""
    return T.StructType([*columns, T.StructField(TIME, T.LongType()), T.StructField(POSITION, POSITION_TYPE)])
