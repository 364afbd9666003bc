"""The columns of a window join's results."""

from __future__ import annotations

from typing import Final

from pyspark.sql import types as T

from tidemark.graph.operators.window.columns import BOUNDS, PANE
from tidemark.graph.operators.window_join.checks import check_names
from tidemark.spark.operators.interval_join.columns import ResultColumns, result_types

_TYPES: Final = (T.TimestampType(), T.TimestampType(), T.StringType(), T.IntegerType())


class WindowJoinColumns(ResultColumns):
    """The columns of the sides, which results have before those of the window and the pane."""

    def __post_init__(self) -> None:
        """Check the names, which are known at definition only where both streams' columns are.

        Raises:
            ColumnError: both sides have a column, or one has the name of a column that the join adds.
        """
        super().__post_init__()
        check_names([each.name for each in self.columns], self.node)


def window_join_types(results: WindowJoinColumns) -> T.StructType:
    """Return the types of results, without the engine's columns."""
    own = [T.StructField(name, kind) for name, kind in zip((*BOUNDS, *PANE), _TYPES, strict=True)]
    return T.StructType([*result_types(results), *own])
