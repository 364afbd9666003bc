"""Versions of rows, each with the time for which it is valid: how the versions of a key follow from those before and new ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from tidemark.graph.model.nodes import VALID_FROM, VALID_TO
from tidemark.spark.columns.expressions import quoted
from tidemark.spark.operators.keyed.key_table import union_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RANK = "__tm_rank"
_ENDS = "__tm_ends"
_NEW, _OLD, _END = 2, 1, 0


def versions(old: DataFrame, new: DataFrame, ended: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the versions of keys: of those that begin at one time a new one takes the place of an older one.

    A version is valid until the next one begins, or its key ends. Both frames of versions have ``VALID_FROM`` and ``VALID_TO``.

    Args:
        old: the versions that a table has.
        new: those that are added.
        ended: keys with ``VALID_FROM``, the time from which there is no row.
        keys: the columns that identify a row.
    """
    columns = [*map(quoted, keys), VALID_FROM]
    since = [F.col(VALID_TO).alias(VALID_FROM) if name == VALID_FROM else F.col(name) for name in columns]
    ends = old.where(F.col(VALID_TO).isNotNull()).select(*since).unionByName(ended.select(*columns))
    parts = [(new, _NEW, False), (old, _OLD, False), (ends, _END, True)]
    events = union_of([rows.withColumns({_RANK: F.lit(rank), _ENDS: F.lit(end)}) for rows, rank, end in parts])
    by = [quoted(key) for key in keys]
    first = Window.partitionBy(*by, VALID_FROM).orderBy(F.desc(_RANK))
    events = events.withColumn("__tm_nth", F.row_number().over(first)).where("__tm_nth = 1").drop("__tm_nth")
    following = F.lead(VALID_FROM).over(Window.partitionBy(*by).orderBy(VALID_FROM))
    return events.withColumn(VALID_TO, following).where(~F.col(_ENDS)).drop(_RANK, _ENDS)
