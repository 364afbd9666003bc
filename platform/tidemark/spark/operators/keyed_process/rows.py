"""The rows of a process function that a pass wrote: results, side outputs, elements that failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.graph.operators.keyed_process.node import KeyedProcessNode
from tidemark.spark.columns.arrow_batches import POSITION_TYPE
from tidemark.spark.columns.expressions import POSITION, TIME, key_hash, quoted
from tidemark.spark.operators.keyed.layout import Layout
from tidemark.spark.operators.keyed_process.columns import ERROR, FAILED_ELEMENT, FAILED_INPUT, RESULT_NUMBER, RESULT_TIME
from tidemark.spark.operators.keyed_process.layout import keys_of_node

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SHIFT: Final = 20
"""Up to so many bits of a row's number among those of its key follow the hash of the key."""


def emitted_rows(node: KeyedProcessNode, rows: DataFrame, columns: Mapping[str, str], *, named: bool = False) -> DataFrame:
    """Return emitted rows with the hidden time and position, by which operators that follow order them.

    Args:
        node: the operator.
        rows: as the pass wrote them.
        columns: stored columns by the names that the function declares.
        named: whether ``columns`` are the other way round.
    """
    stored = {name: found for found, name in columns.items()} if named else columns
    row = f"shiftleft({key_hash(list(keys_of_node(node).values()))}, {_SHIFT}) | {RESULT_NUMBER}"
    return rows.selectExpr(
        *(f"{quoted(found)} AS {quoted(name)}" for name, found in stored.items()),
        f"{RESULT_TIME} AS {TIME}",
        f"struct('{node.uid}' AS origin, {RESULT_TIME} AS block, {row} AS row) AS {POSITION}",
    )


def failed_rows(elements: DataFrame, timers: DataFrame, layout: Layout, given: T.StructType) -> DataFrame:
    """Return the elements that failed, and for each timer that did a row whose other columns are null; ``error`` says why.

    Args:
        elements: as the pass wrote them.
        timers: as the pass wrote them.
        layout: of the epoch.
        given: the input's columns, for an epoch without input.
    """
    if layout.input_fields:
        named = [F.col(FAILED_INPUT).alias("input"), F.col(FAILED_ELEMENT).alias("element")]
    elif layout.elements:
        named = [F.col(quoted(stored)).alias(name) for name, stored in layout.elements.items()]
    else:
        named = [F.lit(None).cast(field.dataType).alias(field.name) for field in given]
    hidden = [F.col(name) for name in layout.engine] or [F.lit(None).cast(POSITION_TYPE).alias(POSITION)]
    found = elements.select(*named, F.col(ERROR).alias("error"), *hidden)
    errors = timers.select(F.col(ERROR).alias("error"), F.col(RESULT_TIME).alias(TIME))
    return found.unionByName(errors, allowMissingColumns=True)
