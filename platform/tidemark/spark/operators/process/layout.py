"""The columns of an operator that keeps elements, in its state and in a task."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypedDict

from pyspark.sql import types as T

from tidemark.graph.checks.schema_inference import state_columns
from tidemark.graph.operators.state_names import element_column, element_name
from tidemark.graph.operators.window.node import WindowNode
from tidemark.graph.operators.window.state_columns import needed_columns
from tidemark.spark.columns.expressions import POSITION, TIME, visible_of
from tidemark.spark.columns.schemas import nullable, struct_of
from tidemark.spark.operators.keyed.columns import result_column
from tidemark.spark.operators.keyed.layout import Layout
from tidemark.spark.operators.keyed.output_buffer import Shape
from tidemark.spark.operators.process.pane_columns import GAP_FIELD, PANE_FIELDS, PANE_NOTE, PANE_NOTES


class _WindowColumns(TypedDict):
    input_fields: tuple[T.StructField, ...]
    output_fields: tuple[T.StructField, ...]
    more_shapes: Mapping[int, Shape]


def _window_columns(*, has_gap: bool = False) -> _WindowColumns:
    return {"input_fields": (GAP_FIELD,) if has_gap else (), "output_fields": PANE_FIELDS, "more_shapes": {PANE_NOTE: PANE_NOTES}}


def layout_of_rows(node: WindowNode, keys: Mapping[str, str], rows: T.StructType, key_types: T.StructType, *, has_gap: bool) -> Layout:
    """Return the columns of an operator whose input has these columns.

    Args:
        node: the operator.
        keys: its key columns by name.
        rows: the columns of its input.
        key_types: the key columns.
        has_gap: whether each element has its own gap.
    """
    wanted = needed_columns(node)
    visible = visible_of(rows.names)
    elements = {name: element_column(name) for name in visible if wanted is None or name.lower() in wanted}
    engine = tuple(name for name in (TIME, POSITION) if name in rows.names)
    late_only: dict[str, str] = {}
    if node.late_to is not None:
        late_only = {name: element_column(name) for name in visible if name not in elements}
        late_only |= {name: name for name in rows.names if name not in visible and name not in engine}
    fields = {field.name: field for field in nullable(key_types)}
    for given in nullable(rows):
        name = given.name if given.name not in visible else element_column(given.name)
        fields[name] = T.StructField(name, given.dataType)
    return _with_results(node, Layout(keys, elements, engine, fields, late_only, **_window_columns(has_gap=has_gap)))


def layout_of_state(node: WindowNode, keys: Mapping[str, str], stored: T.StructType, *, has_gap: bool) -> Layout:
    """Return the columns of an operator in an epoch without input; ``stored`` are those of its elements in state.

    The names of the stream's columns are spelled as the stream has them now, as far as the graph knows them.
    """
    fields = {field.name: field for field in nullable(stored)}
    spelled = {column.lower(): element_name(column) for column in state_columns(node) or ()}
    elements = {spelled.get(column.lower()) or name: column for column in stored.names if (name := element_name(column)) is not None}
    engine = tuple(name for name in (TIME, POSITION) if name in fields)
    return _with_results(node, Layout(keys, elements, engine, fields, **_window_columns(has_gap=has_gap)))


def layout_of_results(node: WindowNode, keys: Mapping[str, str], results: T.StructType) -> Layout:
    """Return the columns of an operator whose function gets the results of aggregates.

    Args:
        node: the operator.
        keys: its key columns by name.
        results: the columns of the results, or of the keys alone.
    """
    aggregates = {name: element_column(name) for name, _ in node.aggregates if name in results.names}
    named = {**keys, **aggregates}
    fields = {named[given.name]: T.StructField(named[given.name], given.dataType) for given in nullable(results) if given.name in named}
    return _with_results(node, Layout(keys, aggregates, (), fields, **_window_columns()))


def _with_results(node: WindowNode, layout: Layout) -> Layout:
    if node.function is None:
        return layout
    made = nullable(struct_of(node.function.returns))
    results = {given.name: result_column(given.name) for given in made}
    fields = {results[given.name]: T.StructField(results[given.name], given.dataType) for given in made}
    return dataclasses.replace(layout, fields={**layout.fields, **fields}, results=results)
