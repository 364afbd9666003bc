"""Columns of the state and the results of a kind that keeps one row of each key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from tidemark.spark.operators.base.schemas import OperatorSchemas, with_time
from tidemark.spark.operators.native_keyed.columns import result_name
from tidemark.spark.operators.native_keyed.passes import KeyedPass
from tidemark.spark.operators.native_keyed.program import KeyedProgram
from tidemark.spark.operators.native_keyed.times import PassTimes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class NativeKeyedSchemas(OperatorSchemas):
    """Keys and values in state; as results what a pass makes.

    Args:
        program: what the operator computes.
        inputs: frames without rows, by port.
    """

    def __init__(self, program: KeyedProgram, inputs: Mapping[str, DataFrame]) -> None:
        (self._rows,) = inputs.values()
        self._program = program

    def state(self) -> T.StructType:
        """Return keys and values."""
        return self._program.state_schema(self._rows)

    def results(self) -> T.StructType:
        """Return the columns of results."""
        program = self._program
        times = PassTimes(program.ttl, 0, 0, 0, 0)
        finished = KeyedPass(program, times).walked(program.elements(self._rows, times), None).schema
        fields = [T.StructField(name, finished[result_name(n)].dataType) for n, name in enumerate(program.result_columns)]
        return with_time(T.StructType(fields))
