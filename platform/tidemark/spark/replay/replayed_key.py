"""The key of a replay: its values as their columns' types have them, and the condition that finds its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.errors import ColumnError
from tidemark.graph.operators.keyed_process.node import KeyedProcessNode
from tidemark.spark.columns.expressions import quoted
from tidemark.spark.columns.user_values import MisfitError, coerce_values, sql_type
from tidemark.spark.operators.keyed_process.layout import keys_of_node

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class ReplayedKey:
    """The values of a key as somebody gave them, by the names of the key's columns.

    Args:
        job: the job's name.
        node: the operator.
        values: by the names of its keys.
    """

    job: str
    node: KeyedProcessNode
    values: Mapping[str, object]

    def typed(self, types: T.StructType) -> dict[str, object]:
        """Return the values as the types of the key's columns, in the order of the keys, have them.

        Raises:
            ColumnError: a value is none of its column's type.
        """
        return {name: self._typed(name, field.dataType) for (name, _), field in zip(self.node.keys, types, strict=True)}

    def condition(self, node: KeyedProcessNode) -> Callable[[T.StructType], Column]:
        """Return what makes the condition that finds the key's rows, given the columns of the key.

        Args:
            node: the operator; its keys may have other names.
        """

        def of(types: T.StructType) -> Column:
            values = zip(self.typed(types).values(), types, keys_of_node(node).values(), strict=True)
            return reduce(and_, (F.col(quoted(stored)).eqNullSafe(_literal(value, field.dataType)) for value, field, stored in values))

        return of

    def _typed(self, name: str, kind: T.DataType) -> object:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_type

        value = self.values[name]
        arrow = to_arrow_type(kind, timezone="UTC")
        try:
            (found,) = pa.array(coerce_values([value], arrow), arrow).to_pylist()
        except (MisfitError, pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ColumnError(
                f"the key column {name!r} has the type {sql_type(arrow)}, and is given {value!r} ({type(value).__name__})",
                fix=f"give a value of that type: key={{{name!r}: ...}}",
                job=self.job,
                uid=self.node.uid,
            ) from error
        return found


def _literal(value: object, kind: T.DataType) -> Column:
    if isinstance(kind, T.StructType) and isinstance(value, Mapping):
        return F.struct(*(_literal(value.get(field.name), field.dataType).alias(field.name) for field in kind))
    return F.lit(value).cast(kind)
