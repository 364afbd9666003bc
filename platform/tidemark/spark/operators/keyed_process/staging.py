"""Stages the elements of an epoch: those of two inputs in the same files, with the number of their input."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.errors import UserCodeError
from tidemark.graph.operators.keyed_process.node import KeyedProcessNode
from tidemark.spark.columns.expressions import POSITION, TIME, column, quoted
from tidemark.spark.operators.base.contract import PortInput
from tidemark.spark.operators.keyed_process.columns import INPUT
from tidemark.spark.operators.keyed_process.layout import Elements, elements_of, keys_of_node

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def staged_rows(node: KeyedProcessNode, inputs: Mapping[str, PortInput]) -> tuple[DataFrame, T.StructType, Elements] | None:
    """Return the rows to stage, the types of the keys, and the columns of elements by input; None where no input with keys has rows.

    Raises:
        UserCodeError: the keys of the two inputs are of other types.
    """
    ports = node.PORTS[: len(node.methods)]
    given = [inputs[port].rows if port in inputs else None for port in ports]
    elements = elements_of(node, [() if rows is None else rows.columns for rows in given])
    parts, keys = [], T.StructType()
    for number, (rows, columns, expressions) in enumerate(zip(given, elements, node.port_keys, strict=False)):
        if rows is None:
            continue
        named = zip(keys_of_node(node).values(), expressions, strict=True)
        made = [column(expression).alias(stored) for stored, (_, expression) in named]
        types = rows.select(*made).schema
        _require_same(node, keys, types)
        keys = types
        kept = [F.col(quoted(name)).alias(stored) for name, stored in columns.items()]
        hidden = [F.col(name) for name in (TIME, POSITION) if name in rows.columns]
        mark = [F.lit(number).alias(INPUT)] if len(ports) > 1 else []
        parts.append(rows.select(*made, *kept, *hidden, *mark))
    if not parts:
        return None
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts), keys, elements


def _require_same(node: KeyedProcessNode, first: T.StructType, second: T.StructType) -> None:
    for one, other in zip(first, second, strict=False):
        if one.dataType != other.dataType:
            was, now = one.dataType.simpleString(), other.dataType.simpleString()
            raise UserCodeError(
                f"the connected streams are keyed by {was} and by {now}, which have no keys in common",
                fix=f"cast the second: .key_by(id='CAST(id AS {was.upper()})')",
                uid=node.uid,
                place=node.place,
            )
