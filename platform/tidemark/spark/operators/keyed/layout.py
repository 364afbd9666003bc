"""The columns of a keyed operator, in its state and in a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from tidemark.spark.columns.expressions import START
from tidemark.spark.operators.keyed.columns import (
    LATE,
    NOTE,
    NOTE_FIELDS,
    ORDER,
    OUTPUT,
    STORED,
    TAG,
    VERSION,
    VERSION_FIELDS,
    names_of,
)
from tidemark.spark.operators.keyed.key_state import NOTES, version_shape
from tidemark.spark.operators.keyed.output_buffer import Shape
from tidemark.spark.operators.keyed.packed_rows import VALUE_FIELDS

if TYPE_CHECKING:
    import pyarrow as pa

_TIME = T.StructField(START, T.LongType())
_ORDER = T.StructField(ORDER, T.LongType())
_TAG = T.StructField(TAG, T.IntegerType())


@dataclass(frozen=True)
class Layout:
    """Columns of one operator in an epoch, all nullable.

    ``keys`` and ``elements`` are columns of state by the users' names; ``engine`` are the engine's that stay with an element (its event
    time, its position); ``late_only`` are those that only late elements need. ``results`` are columns of the function, where the task
    returns its rows, and ``required`` those that may not be null. ``fields`` has the types of all. An operator kind may add columns:
    ``input_fields`` of its input, ``version_fields`` of a key's state, ``output_fields`` of its results, ``more_fields`` of other rows,
    with their ``more_shapes``.
    """

    keys: Mapping[str, str]
    elements: Mapping[str, str]
    engine: tuple[str, ...]
    fields: Mapping[str, T.StructField]
    late_only: Mapping[str, str] = field(default_factory=dict)
    results: Mapping[str, str] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    input_fields: tuple[T.StructField, ...] = ()
    version_fields: tuple[T.StructField, ...] = ()
    output_fields: tuple[T.StructField, ...] = ()
    more_fields: tuple[T.StructField, ...] = ()
    more_shapes: Mapping[int, Shape] = field(default_factory=dict)

    @property
    def stored(self) -> T.StructType:
        """The columns of elements in state."""
        return self._struct([*self.keys.values(), *self.elements.values(), *self.engine], (_TIME, _ORDER))

    @property
    def versions(self) -> T.StructType:
        """The columns of keys' versions."""
        return self._struct([*self.keys.values()], (*VERSION_FIELDS, *self.version_fields))

    @property
    def new(self) -> T.StructType:
        """The columns of an epoch's elements."""
        names = [*self.keys.values(), *self.elements.values(), *self.late_only.values(), *self.engine]
        return self._struct(names, self.input_fields)

    @property
    def output(self) -> T.StructType:
        """The columns of all rows that a task returns."""
        names = [*self.keys.values(), *self.elements.values(), *self.late_only.values(), *self.engine]
        made = (*VERSION_FIELDS, *self.version_fields, *self.output_fields, *self._results(), *self.more_fields, *NOTE_FIELDS)
        return self._struct(names, (_TIME, _ORDER, *made), first=(_TAG,))

    @property
    def shapes(self) -> dict[int, Shape]:
        """The columns of each tag of a task's output."""
        keys = tuple(self.keys.values())
        element = (*keys, *self.elements.values(), *self.engine)
        return {
            VERSION: version_shape(self.keys, names_of(self.version_fields)),
            STORED: Shape(element, (START, ORDER)),
            LATE: Shape((*self.elements.values(), *self.late_only.values(), *self.engine)),
            OUTPUT: Shape(
                keys if self.results else element,
                names_of(self.output_fields),
                {name: shown for shown, name in self.results.items()},
                self.required,
            ),
            NOTE: NOTES,
            **self.more_shapes,
        }

    def columns_of(self, tag: int) -> T.StructType:
        """Return the columns of the rows of a tag that a task returns."""
        shape = self.shapes[tag]
        names = {*shape.carried, *shape.made, *shape.results}
        return T.StructType([field for field in self.output if field.name in names])

    @property
    def packed_tags(self) -> tuple[int, ...]:
        """The tags of rows that a task returns packed, where it does: all but those of state, and of counts."""
        return tuple(tag for tag in self.shapes if tag not in (VERSION, STORED) and tag < NOTE)

    @property
    def packed_output(self) -> T.StructType:
        """The columns that a task returns which packs its rows: those of state and counts, and of packed values."""
        kept = {TAG, START, *(field.name for tag in self.shapes if tag == VERSION or tag >= NOTE for field in self.columns_of(tag))}
        return T.StructType([*(field for field in self.output if field.name in kept), *VALUE_FIELDS])

    def arrow(self, struct: T.StructType) -> pa.Schema:
        """Return the columns of a struct as an Arrow schema."""
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(struct, timezone="UTC")

    def _results(self) -> Sequence[T.StructField]:
        return [self.fields[name] for name in self.results.values()]

    def _struct(self, names: Sequence[str], more: Sequence[T.StructField], first: Sequence[T.StructField] = ()) -> T.StructType:
        return T.StructType([*first, *(self.fields[name] for name in names), *more])
