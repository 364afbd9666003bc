"""What a kind computes for the elements of each key: the interface between a kind and the pass over its keys."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.graph.model.nodes import Expression
from tidemark.graph.operators.state_names import key_column
from tidemark.semantics.keyed_process.declarations import StateTtl
from tidemark.spark.columns.expressions import POSITION, TIME, column, quoted
from tidemark.spark.columns.schemas import nullable
from tidemark.spark.operators.keyed.columns import DUE, STATE, TIMER
from tidemark.spark.operators.native_keyed.columns import ELEMENT, HAD, LAST, NOW, RANK, REACHED, kept_name, key_name
from tidemark.spark.operators.native_keyed.times import PassTimes

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class KeyedProgram(ABC):
    """A kind's computation over the rows of a pass.

    Args:
        keys: names and expressions of the keys.
        ttl: the lifetime of state.
        kept: the columns of state, beside the keys.
    """

    def __init__(self, keys: Sequence[tuple[str, Expression]], ttl: StateTtl | None, kept: Sequence[str]) -> None:
        self.keys = tuple(keys)
        self.ttl = ttl
        self.kept = tuple(kept)

    @property
    def key_names(self) -> list[str]:
        """The keys in a pass."""
        return [key_name(number) for number in range(len(self.keys))]

    @property
    def stored_keys(self) -> list[str]:
        """The keys in state."""
        return [key_column(name) for name, _ in self.keys]

    @property
    def kept_names(self) -> list[str]:
        """The values of state in a pass."""
        return [kept_name(number) for number in range(len(self.kept))]

    @property
    @abstractmethod
    def result_columns(self) -> Sequence[str]:
        """The names of the results' columns, in order; those of ``result_name`` in a pass."""

    @property
    def entries(self) -> str:
        """SQL over a last row of how many values of state the key has; zero for none."""
        return f"CAST({ELEMENT} OR {HAD} AS INT)"

    @abstractmethod
    def kept_types(self, rows: DataFrame) -> list[T.DataType]:
        """Return the types of the values of state, from the operator's input."""

    @abstractmethod
    def payload(self, rows: DataFrame) -> list[Column]:
        """Return the columns of an element that the program reads in a pass, from the operator's input."""

    @abstractmethod
    def walk(self, fed: DataFrame, times: PassTimes, *, stored: bool) -> DataFrame:
        """Return the rows of the keys after all elements: those with results, and the last one of each key.

        They have the keys, ``RANK``, ``TIME``, ``POSITION``, ``ELEMENT``, ``COUNT``, ``EMITS``, ``LAST``, ``HAD``, ``REACHED``, ``NOW``,
        ``DUE`` and ``TIMER`` of stored rows, the values of state after the row, and results.

        Args:
            fed: elements and stored rows.
            times: of the pass.
            stored: whether there are stored rows.
        """

    def key_columns(self) -> list[Column]:
        """Return the keys of elements, named as in a pass."""
        return [column(expression).alias(name) for name, (_, expression) in zip(self.key_names, self.keys, strict=True)]

    def state_schema(self, rows: DataFrame) -> T.StructType:
        """Return the columns of keys and values in state."""
        keys = rows.select(*self.key_columns()).schema
        fields = [T.StructField(name, field.dataType) for name, field in zip(self.stored_keys, keys, strict=True)]
        kinds = zip(self.kept, self.kept_types(rows), strict=True)
        return nullable(T.StructType([*fields, *(T.StructField(name, kind) for name, kind in kinds)]))

    def elements(self, rows: DataFrame, times: PassTimes) -> DataFrame:
        """Return the elements of a pass."""
        ranked = rows.withColumn(RANK, F.col(TIME))
        return ranked.select(
            *self.key_columns(),
            F.col(RANK),
            F.col(POSITION),
            F.expr("true").alias(ELEMENT),
            F.expr(times.now()).alias(NOW),
            *self.payload(ranked),
        )

    def over(self, *further: str) -> str:
        """Return the window of all rows of a key in order, for a function that takes no frame."""
        by = [*map(quoted, self.key_names), *further]
        return f"OVER (PARTITION BY {', '.join(by)} ORDER BY {RANK}, {POSITION})"

    def over_so_far(self, *further: str) -> str:
        """Return the window of the rows of a key up to each one."""
        return f"{self.over(*further)[:-1]} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"

    def before_columns(self, *, stored: bool) -> list[str]:
        """Return window expressions of ``LAST`` and ``HAD``, and what only stored rows have, where there are none."""
        last = f"lead(true) {self.over()} IS NULL AS {LAST}"
        if not stored:
            absent = (f"false AS {HAD}", f"false AS {REACHED}", f"CAST(NULL AS BIGINT) AS {DUE}", f"CAST(NULL AS BIGINT) AS {TIMER}")
            return [last, *absent]
        newest = f"last(if({ELEMENT}, NULL, {STATE} IS NOT NULL), true) {self.over_so_far()}"
        return [last, f"coalesce({newest}, false) AS {HAD}"]
