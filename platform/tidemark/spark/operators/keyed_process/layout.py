"""The columns of a process function, in its state and in a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from tidemark.graph.checks.schema_inference import schema_of
from tidemark.graph.operators.emitting import emitted_counter
from tidemark.graph.operators.keyed_process.node import KeyedProcessNode
from tidemark.graph.operators.keyed_process.state_columns import columns_of, value_column
from tidemark.graph.operators.state_names import element_column, key_column
from tidemark.spark.columns.expressions import POSITION, TIME, quoted, visible_of
from tidemark.spark.columns.schemas import nullable, struct_of
from tidemark.spark.operators.keyed.columns import names_of, result_column
from tidemark.spark.operators.keyed.layout import Layout
from tidemark.spark.operators.keyed.output_buffer import Shape
from tidemark.spark.operators.keyed_process.columns import (
    ERROR,
    FAILED_ELEMENT,
    FAILED_INPUT,
    FAILED_ROW,
    FAILED_TIMER,
    INPUT,
    KEY_NOTE,
    NOTE_FIELDS,
    RESULT_FIELDS,
    RESULT_TIME,
    TIMER_FIELDS,
    side_column,
    side_tags,
)

if TYPE_CHECKING:
    import pyarrow as pa


def state_fields(node: KeyedProcessNode) -> tuple[T.StructField, ...]:
    """Return the columns of a key's states, and of its timers."""
    columns = {name: kind for state, descriptor in node.states for name, kind in columns_of(state, descriptor).items()}
    if not columns:
        return TIMER_FIELDS
    return (*nullable(struct_of(", ".join(f"`{name}` {kind}" for name, kind in columns.items()))), *TIMER_FIELDS)


def state_types(node: KeyedProcessNode) -> dict[str, tuple[pa.DataType, pa.DataType | None]]:
    """Return the Arrow types of each state's values, and of a map's keys."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(T.StructType(list(state_fields(node))), timezone="UTC")
    found: dict[str, tuple[pa.DataType, pa.DataType | None]] = {}
    for name, descriptor in node.states:
        kind = schema.field(value_column(name)).type
        if descriptor.kind == "list":
            found[name] = kind.value_type, None
        elif descriptor.kind == "map":
            found[name] = kind.item_type, kind.key_type
        else:
            found[name] = kind, None
    return found


def keys_of_node(node: KeyedProcessNode) -> dict[str, str]:
    """Return the key columns of state by the names of the keys."""
    return {name: key_column(name) for name, _ in node.keys}


def given_columns(node: KeyedProcessNode) -> T.StructType:
    """Return the columns of the first input whose types the graph knows."""
    schema = schema_of(node.inputs[0]) if node.inputs else None
    known = [] if schema is None else [f"{quoted(each.name)} {each.type}" for each in schema.columns if each.type is not None]
    return nullable(struct_of(", ".join(known))) if known else T.StructType()


Elements = tuple[Mapping[str, str], ...]
"""The columns of elements by their names in the stream, for each input."""


def elements_of(node: KeyedProcessNode, columns: Sequence[Sequence[str]]) -> Elements:
    """Return the columns of elements, given those of each input; none for one that has no rows in the epoch."""
    if len(node.methods) == 1:
        return ({name: element_column(name) for name in visible_of(list(columns[0]))},)
    return tuple({name: f"row{number}_{name}" for name in visible_of(list(names))} for number, names in enumerate(columns, start=1))


def layout_of(node: KeyedProcessNode, key_types: T.StructType, elements: Elements = (), staged: T.StructType | None = None) -> Layout:
    """Return the columns of an operator.

    Args:
        node: the operator.
        key_types: the key columns.
        elements: the columns of its input's elements; none in an epoch without any.
        staged: the types of these, and the engine's columns that stay with them.
    """
    connected = len(node.methods) > 1
    engine = () if staged is None else tuple(name for name in (TIME, POSITION) if name in staged.names)
    fields = {field.name: field for field in nullable(key_types)}
    fields |= {} if staged is None else {field.name: field for field in nullable(staged)}
    # Two inputs may have columns of one name.
    stored = {column: column for columns in elements for column in columns.values()} if connected else dict(elements[0] if elements else {})
    results = _made(node.returns)
    fields |= {result_column(name): T.StructField(result_column(name), kind) for name, kind in results.items()}
    more: list[T.StructField] = [*NOTE_FIELDS, *(T.StructField(name, T.StringType()) for name in (ERROR, FAILED_INPUT, FAILED_ELEMENT))]
    shapes: dict[int, Shape] = {
        KEY_NOTE: Shape(made=names_of(NOTE_FIELDS)),
        FAILED_ROW: Shape(engine, (ERROR, FAILED_INPUT, FAILED_ELEMENT)) if connected else Shape((*stored.values(), *engine), (ERROR,)),
        FAILED_TIMER: Shape((), (ERROR, RESULT_TIME)),
    }
    tags = side_tags(node)
    for tag, ddl in node.side_outputs:
        number = tags[emitted_counter(tag)]
        made = _made(ddl)
        more += [T.StructField(side_column(number, name), kind) for name, kind in made.items()]
        shapes[number] = Shape(
            tuple(keys_of_node(node).values()),
            names_of(RESULT_FIELDS),
            {side_column(number, name): name for name in made},
            _required(ddl),
        )
    return Layout(
        keys_of_node(node),
        stored,
        engine,
        fields,
        input_fields=(T.StructField(INPUT, T.IntegerType()),) if connected else (),
        results={name: result_column(name) for name in results},
        required=_required(node.returns),
        version_fields=state_fields(node),
        output_fields=RESULT_FIELDS,
        more_fields=tuple(more),
        more_shapes=shapes,
    )


def _required(ddl: str) -> frozenset[str]:
    return frozenset(field.name for field in struct_of(ddl) if not field.nullable)


def _made(ddl: str) -> dict[str, T.DataType]:
    return {field.name: field.dataType for field in nullable(struct_of(ddl))}
