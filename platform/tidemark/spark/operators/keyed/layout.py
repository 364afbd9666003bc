"""Which columns an operator that keeps elements has, in its state and on the way through a task."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from tidemark.graph.checks.state_columns import element_column, element_name, needed_columns, state_columns
from tidemark.graph.model.nodes import WindowNode
from tidemark.spark.columns.expressions import POSITION, START, TIME, struct_of, visible_of
from tidemark.spark.operators.keyed.columns import (
    GAP,
    LATE,
    NOTE,
    NOTE_FIELDS,
    ORDER,
    PANE,
    PANE_FIELDS,
    STORED,
    TAG,
    VERSION,
    VERSION_FIELDS,
    names_of,
    result_column,
)
from tidemark.spark.operators.keyed.key_state import NOTES, version_shape
from tidemark.spark.operators.keyed.output_buffer import Shape
from tidemark.spark.sinks.sinks import nullable

if TYPE_CHECKING:
    import pyarrow as pa

_TIME = T.StructField(START, T.LongType())
_ORDER = T.StructField(ORDER, T.LongType())
_GAP = T.StructField(GAP, T.LongType())
_TAG = T.StructField(TAG, T.IntegerType())


@dataclass(frozen=True)
class Layout:
    """Columns of one operator in an epoch, every one nullable.

    ``keys`` and ``elements`` are columns of state by the names that users gave them; ``beside`` are the engine's that stay with an
    element (its event time, its position); ``late_only`` are those that only late elements are wanted with. ``results`` are columns of
    the window function, where its rows come out of the task. ``fields`` has the types of all.
    """

    keys: Mapping[str, str]
    elements: Mapping[str, str]
    beside: tuple[str, ...]
    fields: Mapping[str, T.StructField]
    late_only: Mapping[str, str] = field(default_factory=dict)
    results: Mapping[str, str] = field(default_factory=dict)
    has_gap: bool = False

    @property
    def stored(self) -> T.StructType:
        """The columns of elements in state."""
        return self._struct([*self.keys.values(), *self.elements.values(), *self.beside], (_TIME, _ORDER))

    @property
    def versions(self) -> T.StructType:
        """The columns of what is kept of keys."""
        return self._struct([*self.keys.values()], VERSION_FIELDS)

    @property
    def new(self) -> T.StructType:
        """The columns of an epoch's elements."""
        names = [*self.keys.values(), *self.elements.values(), *self.late_only.values(), *self.beside]
        return self._struct(names, (_GAP,) if self.has_gap else ())

    @property
    def given_back(self) -> T.StructType:
        """The columns of all that comes out of a task."""
        names = [*self.keys.values(), *self.elements.values(), *self.late_only.values(), *self.beside]
        return self._struct(names, (_TIME, _ORDER, *VERSION_FIELDS, *PANE_FIELDS, *self._results(), *NOTE_FIELDS), first=(_TAG,))

    @property
    def shapes(self) -> dict[int, Shape]:
        """Which columns each tag of it has."""
        keys = tuple(self.keys.values())
        element = (*keys, *self.elements.values(), *self.beside)
        return {
            VERSION: version_shape(self.keys),
            STORED: Shape(element, (START, ORDER)),
            LATE: Shape((*self.elements.values(), *self.late_only.values(), *self.beside)),
            PANE: Shape(keys if self.results else element, names_of(PANE_FIELDS), {name: shown for shown, name in self.results.items()}),
            NOTE: NOTES,
        }

    def arrow(self, struct: T.StructType) -> pa.Schema:
        """Return the same columns as Arrow has them."""
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(struct, timezone="UTC")

    def _results(self) -> Sequence[T.StructField]:
        return [self.fields[name] for name in self.results.values()]

    def _struct(self, names: Sequence[str], more: Sequence[T.StructField], first: Sequence[T.StructField] = ()) -> T.StructType:
        return T.StructType([*first, *(self.fields[name] for name in names), *more])


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
    beside = tuple(name for name in (TIME, POSITION) if name in rows.names)
    late_only: dict[str, str] = {}
    if node.late_to is not None:
        late_only = {name: element_column(name) for name in visible if name not in elements}
        late_only |= {name: name for name in rows.names if name not in visible and name not in beside}
    fields = {field.name: field for field in nullable(key_types)}
    for given in nullable(rows):
        name = given.name if given.name not in visible else element_column(given.name)
        fields[name] = T.StructField(name, given.dataType)
    return _with_results(node, Layout(keys, elements, beside, fields, late_only, has_gap=has_gap))


def layout_of_state(node: WindowNode, keys: Mapping[str, str], stored: T.StructType, *, has_gap: bool) -> Layout:
    """Return the columns of an operator in an epoch without input; ``stored`` is what its elements in state have.

    The names of the stream's columns are in the letters that the stream has now, as far as the graph knows them.
    """
    fields = {field.name: field for field in nullable(stored)}
    spelled = {column.lower(): element_name(column) for column in state_columns(node) or ()}
    elements = {spelled.get(column.lower()) or name: column for column in stored.names if (name := element_name(column)) is not None}
    beside = tuple(name for name in (TIME, POSITION) if name in fields)
    return _with_results(node, Layout(keys, elements, beside, fields, has_gap=has_gap))


def layout_of_results(node: WindowNode, keys: Mapping[str, str], results: T.StructType) -> Layout:
    """Return the columns of an operator whose function is given the results of aggregates.

    Args:
        node: the operator.
        keys: its key columns by name.
        results: the columns of the results, or of the keys alone.
    """
    aggregates = {name: element_column(name) for name, _ in node.aggregates if name in results.names}
    named = {**keys, **aggregates}
    fields = {named[given.name]: T.StructField(named[given.name], given.dataType) for given in nullable(results) if given.name in named}
    return _with_results(node, Layout(keys, aggregates, (), fields))


def _with_results(node: WindowNode, layout: Layout) -> Layout:
    if node.function is None:
        return layout
    made = nullable(struct_of(node.function.returns))
    results = {given.name: result_column(given.name) for given in made}
    fields = {results[given.name]: T.StructField(results[given.name], given.dataType) for given in made}
    return dataclasses.replace(layout, fields={**layout.fields, **fields}, results=results)
