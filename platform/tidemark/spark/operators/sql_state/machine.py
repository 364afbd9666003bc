"""What both forms of a state machine have in common: the columns that expressions read, and the results of an element."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.graph.expressions.expressions import Site, column_names, parse_sql
from tidemark.graph.operators.keyed_process.state_columns import value_column
from tidemark.graph.operators.sql_state.expressions import NEW, names_read
from tidemark.graph.operators.sql_state.node import SqlStateNode, StateField
from tidemark.spark.columns.expressions import POSITION, TIME, quoted, visible_of
from tidemark.spark.columns.schemas import struct_of
from tidemark.spark.operators.keyed.columns import DUE, TIMER
from tidemark.spark.operators.native_keyed.columns import COUNT, ELEMENT, EMITS, HAD, LAST, NOW, RANK, REACHED, result_name
from tidemark.spark.operators.native_keyed.program import KeyedProgram

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BEFORE = "__tm_before"
"""A struct of the fields before an element, by their names."""

CARRIED = (RANK, TIME, POSITION, ELEMENT, COUNT, LAST, HAD, REACHED, NOW, DUE, TIMER)
"""Columns that a row has whatever it emits."""


def updated(field: StateField) -> str:
    """Return SQL of a field's next value, over the columns of the element and the fields."""
    return f"CAST(({field.update}) AS {field.type})"


def with_initial(field: StateField, value: str) -> str:
    """Return SQL of a field's value, which is the initial one where it is null."""
    return value if field.initial is None else f"coalesce({value}, CAST(({field.initial}) AS {field.type}))"


class Machine(KeyedProgram, ABC):
    """A state machine.

    Args:
        node: its declaration.
    """

    def __init__(self, node: SqlStateNode) -> None:
        super().__init__(node.keys, node.ttl, [value_column(field.name) for field in node.fields])
        self.node = node

    @property
    def result_columns(self) -> Sequence[str]:
        """The declared columns; of ``reduce`` keys and fields."""
        if self.node.reduced:
            return [name for name, _ in self.node.keys] + [field.name for field in self.node.fields]
        return [name for name, _ in self.node.returns]

    @property
    def entries(self) -> str:
        """SQL of how many fields have a value."""
        if self.node.reduced:
            return super().entries
        return " + ".join(f"CAST({name} IS NOT NULL AS INT)" for name in self.kept_names)

    def kept_types(self, rows: DataFrame) -> list[T.DataType]:
        """Return the declared types of fields; of ``reduce`` those of the stream's columns."""
        if self.node.reduced:
            return [rows.select(F.col(quoted(field.name))).schema[0].dataType for field in self.node.fields]
        return [struct_of(f"value {field.type}")[0].dataType for field in self.node.fields]

    @cached_property
    def _texts(self) -> list[str]:
        """The expressions that are evaluated after the walk."""
        texts = [text for _, text in self.node.returns]
        return [*texts, *([] if self.node.emit_when is None else [self.node.emit_when])]

    @cached_property
    def _reads_new(self) -> bool:
        return any(NEW in names_read(text) for text in self._texts)

    def columns_read(self, rows: DataFrame, *, updates: bool) -> list[str]:
        """Return the stream's columns that results read, with ``updates`` also those that updates do, as the stream spells them."""
        texts = [*self._texts, *(field.update for field in self.node.fields if updates or self._reads_new)]
        read = {name.lower() for text in texts for name in column_names(parse_sql(text, Site("expression", "")))}
        read -= self.node.field_names
        return [name for name in visible_of(rows.columns) if name.lower() in read]

    def with_results(self, walked: DataFrame, columns: Sequence[str], *, elements: str, emits: str) -> DataFrame:
        """Return rows with ``EMITS`` and results, of rows that have the element's columns and, in ``BEFORE``, the fields before it.

        Expressions are evaluated for elements only, and those of results for emitted ones: others may be no input for them.

        Args:
            walked: rows with all hidden columns but these.
            columns: of the element.
            elements: SQL of whether a row is an element.
            emits: SQL of whether a row that is one has results.
        """
        node = self.node
        hidden = [*self.key_names, *CARRIED, *self.kept_names]
        fields = [f"{BEFORE}.{quoted(field.name)} AS {quoted(field.name)}" for field in node.fields]
        seen = walked.selectExpr(*hidden, *map(quoted, columns), *fields)
        if self._reads_new:
            after = (f"{with_initial(field, updated(field))} AS {quoted(field.name)}" for field in node.fields)
            seen = seen.withColumn(NEW, F.expr(f"if({elements}, struct({', '.join(after)}), NULL)"))
        chosen = seen.withColumn(EMITS, F.expr(f"if({elements}, {emits}, false)"))
        results = (f"if({EMITS}, ({text}), NULL) AS {result_name(number)}" for number, (_, text) in enumerate(node.returns))
        return chosen.selectExpr(*hidden, EMITS, *results)
