"""The columns of a process function, in its state and in a task."""

from __future__ import annotations

from pyspark.sql import types as T

from tidemark.graph.operators.keyed_process.node import KeyedProcessNode, emitted_counter
from tidemark.graph.operators.keyed_process.state_columns import columns_of
from tidemark.graph.operators.state_names import element_column, key_column
from tidemark.spark.columns.expressions import POSITION, TIME, visible_of
from tidemark.spark.columns.schemas import nullable, struct_of
from tidemark.spark.operators.keyed.columns import names_of, result_column
from tidemark.spark.operators.keyed.layout import Layout
from tidemark.spark.operators.keyed.output_buffer import Shape
from tidemark.spark.operators.keyed_process.columns import (
    ERROR,
    FAILED_ROW,
    FAILED_TIMER,
    KEY_NOTE,
    NOTE_FIELDS,
    RESULT_FIELDS,
    RESULT_TIME,
    TIMER_FIELDS,
    side_column,
    side_tags,
)


def state_fields(node: KeyedProcessNode) -> tuple[T.StructField, ...]:
    """Return the columns of a key's states, and of its timers."""
    columns = {name: kind for state, descriptor in node.states for name, kind in columns_of(state, descriptor).items()}
    if not columns:
        return TIMER_FIELDS
    return (*nullable(struct_of(", ".join(f"`{name}` {kind}" for name, kind in columns.items()))), *TIMER_FIELDS)


def keys_of_node(node: KeyedProcessNode) -> dict[str, str]:
    """Return the key columns of state by the names of the keys."""
    return {name: key_column(name) for name, _ in node.keys}


def layout_of(node: KeyedProcessNode, key_types: T.StructType, rows: T.StructType | None) -> Layout:
    """Return the columns of an operator.

    Args:
        node: the operator.
        key_types: the key columns.
        rows: the columns of its input; None in an epoch without any.
    """
    names = [] if rows is None else visible_of(rows.names)
    elements = {name: element_column(name) for name in names}
    engine = () if rows is None else tuple(name for name in (TIME, POSITION) if name in rows.names)
    fields = {field.name: field for field in nullable(key_types)}
    for given in () if rows is None else nullable(rows):
        name = elements.get(given.name, given.name)
        fields[name] = T.StructField(name, given.dataType)
    results = _made(node.returns)
    fields |= {result_column(name): T.StructField(result_column(name), kind) for name, kind in results.items()}
    more: list[T.StructField] = [*NOTE_FIELDS, T.StructField(ERROR, T.StringType())]
    shapes: dict[int, Shape] = {
        KEY_NOTE: Shape(made=names_of(NOTE_FIELDS)),
        FAILED_ROW: Shape((*elements.values(), *engine), (ERROR,)),
        FAILED_TIMER: Shape((), (ERROR, RESULT_TIME)),
    }
    tags = side_tags(node)
    for tag, ddl in node.side_outputs:
        number = tags[emitted_counter(tag)]
        made = _made(ddl)
        more += [T.StructField(side_column(number, name), kind) for name, kind in made.items()]
        shapes[number] = Shape(
            tuple(keys_of_node(node).values()), names_of(RESULT_FIELDS), {side_column(number, name): name for name in made}
        )
    return Layout(
        keys_of_node(node),
        elements,
        engine,
        fields,
        results={name: result_column(name) for name in results},
        version_fields=state_fields(node),
        output_fields=RESULT_FIELDS,
        more_fields=tuple(more),
        more_shapes=shapes,
    )


def _made(ddl: str) -> dict[str, T.DataType]:
    return {field.name: field.dataType for field in nullable(struct_of(ddl))}
