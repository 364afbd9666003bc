"""The columns of a pass over elements: those that its tasks read, and those of the rows that they return, by tag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.graph.operators.element_process.node import ElementProcessNode
from tidemark.graph.operators.emitting import FAILED, emitted_counter
from tidemark.graph.operators.state_names import element_column
from tidemark.spark.columns.arrow_batches import POSITION_PARTS, POSITION_ROW, position_of_parts, position_parts
from tidemark.spark.columns.expressions import MAX_PIECES, POSITION, TIME, quoted, visible_of
from tidemark.spark.columns.schemas import nullable, struct_of
from tidemark.spark.frame_steps import FrameSteps
from tidemark.spark.operators.keyed.columns import ACCEPTED, NOTE, OUTPUT, TAG, result_column
from tidemark.spark.operators.keyed.output_buffer import Shape

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

FAILED_ROW: Final = 5
"""Elements whose call failed, with the error."""

FIRST_SIDE: Final = 10
"""The tag of the first side output; the others follow."""

BYTES = "__tm_bytes"
NOTE_COLUMNS: Final = (ACCEPTED, BYTES)
"""Of a task: the elements whose call did not fail, and the bytes of all."""

ERROR = "__tm_error"
NTH = "__tm_result_number"
"""The number of a row among those of its element."""


@dataclass(frozen=True)
class ElementLayout:
    """The columns of one operator in an epoch.

    Args:
        node: the operator.
        given: the columns of its input's rows, the engine's among them.
    """

    node: ElementProcessNode
    given: T.StructType
    _names: Mapping[str, str] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        names = {name: element_column(name) for name in visible_of(self.given.names)}
        object.__setattr__(self, "_names", names)

    @property
    def elements(self) -> Mapping[str, str]:
        """The columns of elements by their names in the stream."""
        return self._names

    @property
    def places(self) -> Sequence[str]:
        """The columns of an element's position; none where its source has no positions."""
        return tuple(POSITION_PARTS) if POSITION in self.given.names else ()

    @property
    def tags(self) -> dict[str, int]:
        """The tag of the rows of each side output, by its counter."""
        sides = {emitted_counter(tag): FIRST_SIDE + number for number, (tag, _) in enumerate(self.node.side_outputs)}
        return {**sides, **({FAILED: FAILED_ROW} if self.node.on_error is not None else {})}

    @property
    def is_numbered(self) -> bool:
        """Whether an element may become several rows."""
        return self.node.method in ("process", "flat_map")

    @cached_property
    def sides(self) -> dict[int, dict[str, str]]:
        """The columns of each side output that the function emits to, by their names, by tag."""
        found = {}
        for number, (_, ddl) in enumerate(self.node.side_outputs, start=FIRST_SIDE):
            found[number] = {field.name: f"side_{number}_{field.name}" for field in struct_of(ddl)}
        return found

    @cached_property
    def results(self) -> dict[str, str]:
        """The columns of results by their names; of a filter those of the elements."""
        if self.node.keeps_elements:
            return dict(self._names)
        return {field.name: result_column(field.name) for field in struct_of(self.node.returns)}

    @cached_property
    def input(self) -> T.StructType:
        """The columns that a task reads."""
        given = {field.name: field for field in nullable(self.given)}
        elements = [T.StructField(stored, given[name].dataType) for name, stored in self._names.items()]
        return T.StructType([*elements, T.StructField(TIME, T.LongType()), *self._place_fields])

    @property
    def _place_fields(self) -> list[T.StructField]:
        return [T.StructField(name, POSITION_PARTS[name].dataType) for name in self.places]

    @cached_property
    def output(self) -> T.StructType:
        """The columns of all rows that a task returns."""
        node = self.node
        made = [T.StructField(TAG, T.IntegerType())]
        made += self.input.fields if node.keeps_elements or node.on_error is not None else self._engine_fields
        if not node.keeps_elements:
            made += [T.StructField(result_column(field.name), field.dataType) for field in nullable(struct_of(node.returns))]
        for number, (_, ddl) in enumerate(node.side_outputs, start=FIRST_SIDE):
            made += [T.StructField(f"side_{number}_{field.name}", field.dataType) for field in nullable(struct_of(ddl))]
        made += [T.StructField(NTH, T.LongType())] if self.is_numbered else []
        made += [T.StructField(ERROR, T.StringType())] if node.on_error is not None else []
        return T.StructType([*made, *(T.StructField(name, T.LongType()) for name in NOTE_COLUMNS)])

    @property
    def _engine_fields(self) -> list[T.StructField]:
        return [T.StructField(TIME, T.LongType()), *self._place_fields]

    @property
    def shapes(self) -> dict[int, Shape]:
        """The columns of each tag of a task's output."""
        engine, numbered = (TIME, *self.places), (NTH,) if self.is_numbered else ()
        element = (*self._names.values(), *engine)
        found = {NOTE: Shape(made=NOTE_COLUMNS), FAILED_ROW: Shape(element, (ERROR,))}
        found |= {tag: Shape(engine, numbered, _shown(columns)) for tag, columns in self.sides.items()}
        kept = self.node.keeps_elements
        return {**found, OUTPUT: Shape(element if kept else engine, numbered, {} if kept else _shown(self.results))}

    def arrow(self) -> pa.Schema:
        """Return the columns of a task's output as an Arrow schema."""
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(self.output, timezone="UTC")

    def flat(self, rows: DataFrame) -> DataFrame:
        """Return rows of the input with the columns that a task reads."""
        elements = [F.col(quoted(name)).alias(stored) for name, stored in self._names.items()]
        return FrameSteps(rows).select(*elements, TIME, *(position_parts() if self.places else ())).frame()

    def emitted_rows(self, rows: DataFrame, tag: int) -> DataFrame:
        """Return what was written under a tag as rows of the stream, with the hidden time and position."""
        if tag == FAILED_ROW:
            columns = [F.col(quoted(stored)).alias(name) for name, stored in self._names.items()]
            return rows.select(*columns, F.col(ERROR).alias("error"), TIME, *self._position(POSITION_ROW))
        named = self.results if tag == OUTPUT else self.sides[tag]
        bits = MAX_PIECES.bit_length() - 1
        row = f"shiftleft({POSITION_ROW}, {bits}) | least({NTH}, {MAX_PIECES - 1}L)" if self.is_numbered else POSITION_ROW
        return rows.select(*(F.col(quoted(stored)).alias(name) for name, stored in named.items()), TIME, *self._position(row))

    def _position(self, row: str) -> list[Column]:
        return [position_of_parts(row)] if self.places else []


def _shown(columns: Mapping[str, str]) -> dict[str, str]:
    return {stored: name for name, stored in columns.items()}
