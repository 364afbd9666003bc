"""Columns of the state and the results of operators that make a changelog of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from tidemark.graph.operators.state_names import element_name
from tidemark.spark.columns.changes import CHANGE_TYPE
from tidemark.spark.columns.expressions import CHANGE, visible_of
from tidemark.spark.operators.base.schemas import OperatorSchemas, with_time
from tidemark.spark.operators.changelog.frames import PairsFrames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class RowsSchemas(OperatorSchemas):
    """The input's columns in state, and as results, with those that are added.

    Args:
        frames: of the operator.
        inputs: frames without rows, by port.
        added: columns that results have beside the input's.
    """

    def __init__(self, frames: PairsFrames, inputs: Mapping[str, DataFrame], added: T.StructType | None = None) -> None:
        (self._rows,) = inputs.values()
        self._frames = frames
        self._added = added or T.StructType()

    def state(self) -> T.StructType:
        """Return the input's columns, named as in state."""
        return T.StructType([field for field in self._frames.columns(self._rows) if element_name(field.name) is not None])

    def results(self) -> T.StructType:
        """Return the input's columns and those that are added, of a changelog."""
        visible = [self._rows.schema[name] for name in visible_of(self._rows.columns)]
        return T.StructType([*with_time(T.StructType([*visible, *self._added])), T.StructField(CHANGE, CHANGE_TYPE)])
