"""Versions of rows, each with the time for which it is valid: how the versions of a key follow from those before and new ones.

The rows of a stream that is only added to are versions: each is valid until the next one begins, in whatever order they come. Of a
changelog the versions without an end are its content: a row that is there is valid from its time on, whatever the table had from then on
for its key; a row that is deleted ends when it was deleted, and never before it began.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from tidemark.graph.model.nodes import VALID_FROM, VALID_TO
from tidemark.spark.columns.expressions import quoted
from tidemark.spark.operators.keyed.key_table import union_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RANK: Final = "__tm_rank"
_SINCE: Final = "__tm_new_since"
_ENDS: Final = "__tm_ends"


def versions(old: DataFrame, new: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the versions of keys: of those that begin at one time a new one takes the place of an older one.

    A version is valid until the next one begins. Both frames have ``VALID_FROM`` and ``VALID_TO``.

    Args:
        old: the versions that a table has.
        new: those that are added.
        keys: the columns that identify a row.
    """
    events = union_of([rows.withColumn(_RANK, F.lit(rank)) for rank, rows in enumerate((old, new))])
    by = [quoted(key) for key in keys]
    first = Window.partitionBy(*by, VALID_FROM).orderBy(F.desc(_RANK))
    events = events.withColumn("__tm_nth", F.row_number().over(first)).where("__tm_nth = 1").drop("__tm_nth", _RANK)
    following = F.lead(VALID_FROM).over(Window.partitionBy(*by).orderBy(VALID_FROM))
    return events.withColumn(VALID_TO, following)


def followed(old: DataFrame, new: DataFrame, ended: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the versions of keys after an epoch of a changelog: those without an end are the rows that are there.

    A new version takes the place of all that the table has from its beginning on, so that one before it ends there. The open version of a
    deleted row ends at the time of the deletion, or where it begins if that is later; then it was valid at no time, and is removed.

    Args:
        old: the versions that a table has.
        new: rows that are there now; at most one of a key.
        ended: rows that are deleted, with the time of that in ``VALID_FROM``; at most one of a key, and none of a key with a new row.
        keys: the columns that identify a row.
    """
    names = [f"__tm_key_{number}" for number in range(len(keys))]
    named = [F.col(quoted(key)).alias(name) for key, name in zip(keys, names, strict=True)]
    none = F.lit(None).cast("timestamp")
    changes = new.select(*named, F.col(VALID_FROM).alias(_SINCE), none.alias(_ENDS)).unionByName(
        ended.select(*named, none.alias(_SINCE), F.col(VALID_FROM).alias(_ENDS))
    )
    same = F.lit(True)
    for key, name in zip(keys, names, strict=True):
        same = same & old[quoted(key)].eqNullSafe(changes[name])
    # Least and greatest leave out nulls.
    deleted = f"{VALID_TO} IS NULL AND {_ENDS} IS NOT NULL"
    end = f"if({deleted}, greatest({_ENDS}, {VALID_FROM}), least({VALID_TO}, {_SINCE}))"
    stays = f"({_SINCE} IS NULL OR {VALID_FROM} < {_SINCE}) AND NOT ({deleted} AND {_ENDS} <= {VALID_FROM})"
    kept = old.join(changes, same, "left").where(stays).withColumn(VALID_TO, F.expr(end)).drop(*names, _SINCE, _ENDS)
    return kept.unionByName(new.withColumn(VALID_TO, none))
