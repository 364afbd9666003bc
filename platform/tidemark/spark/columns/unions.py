"""The union of streams: the user's columns must match, the engine's may be missing in some streams."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidemark.errors import UserCodeError
from tidemark.spark.columns.expressions import visible_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def union_rows(parts: Sequence[DataFrame], *, uid: str, place: str) -> DataFrame:
    """Return the rows of several streams, their columns matched by name.

    Args:
        parts: the streams that have rows in this epoch, at least one.
        uid: name of the union, for the error.
        place: where it was declared, for the error.

    Raises:
        UserCodeError: the streams differ in columns or types. At definition that is known only where all their schemas are.
    """
    if len(parts) == 1:
        return parts[0]
    first = visible_of(parts[0].columns)
    for part in parts[1:]:
        other = visible_of(part.columns)
        if {name.lower() for name in first} != {name.lower() for name in other}:
            raise UserCodeError(
                f"the streams of a union have different columns: {', '.join(first)} and {', '.join(other)}",
                fix="give each the same columns with .select(...) before .union(...)",
                uid=uid,
                place=place,
            )
        # With a common type, rows would have another one in epochs in which one of the streams has no rows.
        types = _types(parts[0])
        unlike = next(((name, kind, types[name]) for name, kind in _types(part).items() if kind != types[name]), None)
        if unlike is not None:
            name, kind, wanted = unlike
            raise UserCodeError(
                f"the streams of a union have a column {name!r} that is {wanted} in one and {kind} in another",
                fix=f"cast it before the union: .with_columns({name}='CAST({name} AS {wanted.upper()})')",
                uid=uid,
                place=place,
            )
    kinds = {field.name: field.dataType for part in parts for field in part.schema.fields if field.name not in visible_of(part.columns)}
    filled = [
        part.withColumns({name: F.lit(None).cast(kind) for name, kind in kinds.items() if name not in part.columns}) for part in parts
    ]
    return reduce(lambda left, right: left.unionByName(right), filled)


def _types(part: DataFrame) -> dict[str, str]:
    visible = {name.lower() for name in visible_of(part.columns)}
    return {field.name.lower(): field.dataType.simpleString() for field in part.schema if field.name.lower() in visible}
