"""The newest row of each key where a sequence orders rows: each row is sorted once, as it is, and few of them are compared as a whole.

In the order of a key's rows the sequence of those that are not outdated never falls, so that the newest row is the last of them. A row
whose next one has a sequence as great is not the last one: of a key with many rows in order only one is left when rows are grouped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from tidemark.graph.operators.latest.node import LatestNode
from tidemark.graph.operators.state_names import element_column
from tidemark.spark.columns.arrow_batches import POSITION_TYPE
from tidemark.spark.columns.expressions import POSITION, TIME, column, quoted, visible_of
from tidemark.spark.columns.few_rows import in_one_task
from tidemark.spark.operators.changelog.frames import ACCEPTED, OTHERS
from tidemark.spark.operators.changelog.lifetimes import EXPIRED
from tidemark.spark.operators.latest.marks import GIVEN, OUTDATED_ROW, STORED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DELETED: Final = "__tm_deleted"
"""The column of the state that says whether a key's newest row deleted it."""

_IS_STORED: Final = "__tm_is_stored"
_SEQUENCE: Final = "__tm_sequence"
_CONTENT: Final = "__tm_content"
_NUMBER: Final = "__tm_number"
_NEXT: Final = "__tm_next"
_GREATEST: Final = "__tm_greatest"
_IS_LAST: Final = "__tm_is_last"


class SequencedRows:
    """The rows of one operator.

    Args:
        node: the operator, with a sequence.
        keys: the names for the columns of its key.
        by_position: whether positions order rows as their source has them; rows of operators are ordered by their times first.
    """

    def __init__(self, node: LatestNode, keys: Sequence[str], *, by_position: bool) -> None:
        self._node = node
        self._keys = list(keys)
        self._order = [POSITION, TIME] if by_position else [TIME, POSITION]

    def grouped(self, rows: DataFrame, stored: DataFrame | None, *, in_one: bool) -> DataFrame:
        """Return a row for each key of the epoch: ``STORED`` and ``GIVEN``, its newest row, null where there is none, and counts of rows.

        Args:
            rows: of the epoch, with their positions.
            stored: the rows of the state with ``EXPIRED``; None where there are none.
            in_one: whether there are few rows, which are processed in one task.
        """
        fed = self._given(rows)
        if stored is not None:
            fed = fed.unionByName(self._stored(stored, rows))
        marked = self._marked(in_one_task(fed) if in_one else fed)
        # The last row of a key has no next one, so that each key's greatest number is left.
        superseded = f"NOT {_IS_STORED} AND NOT {OUTDATED_ROW} AND {_NEXT} IS NOT NULL AND {_NEXT} >= {_SEQUENCE}"
        # A stored row without one of the epoch changes nothing: it is left out before rows are grouped, compared and counted.
        left = marked.where(f"NOT coalesce({superseded}, false) AND NOT ({_IS_STORED} AND {_IS_LAST})")
        row = f"struct({', '.join([*map(quoted, visible_of(rows.columns)), TIME, POSITION])}) AS row"
        kept = f"if({_IS_STORED}, struct({row}, {DELETED} AS deleted, {EXPIRED} AS expired), NULL)"
        return left.groupBy(*self._keys).agg(
            F.expr(f"any_value({kept}, true) AS {STORED}"),
            F.expr(f"max_by(struct({row}, {DELETED} AS deleted), if({_IS_STORED} OR {OUTDATED_ROW}, NULL, {_NUMBER})) AS {GIVEN}"),
            F.expr(f"max({_NUMBER}) - count_if({_IS_STORED} OR {OUTDATED_ROW}) AS {ACCEPTED}"),
            F.expr(f"count_if({OUTDATED_ROW}) AS {OTHERS}"),
        )

    def _marked(self, fed: DataFrame) -> DataFrame:
        """Return rows with their number in their key's order, whether they are outdated or the last, and the sequence of the next one."""
        order = f"PARTITION BY {', '.join(self._keys)} ORDER BY {_IS_STORED} DESC, {', '.join(self._order)}, {_CONTENT}"
        known = f"if({_IS_STORED} AND {EXPIRED}, NULL, {_SEQUENCE})"
        windowed = fed.selectExpr(
            "*",
            f"max({known}) OVER ({order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS {_GREATEST}",
            f"CAST(row_number() OVER ({order}) AS BIGINT) AS {_NUMBER}",
            f"lead({_SEQUENCE}) OVER ({order}) AS {_NEXT}",
            f"lead({_IS_STORED}) OVER ({order}) IS NULL AS {_IS_LAST}",
        )
        # A null comes before all other sequences.
        outdated = f"NOT {_IS_STORED} AND {_GREATEST} IS NOT NULL AND ({_SEQUENCE} IS NULL OR {_SEQUENCE} < {_GREATEST})"
        return windowed.withColumn(OUTDATED_ROW, F.expr(outdated))

    def _given(self, rows: DataFrame) -> DataFrame:
        deleted = F.lit(False) if self._node.deleted is None else F.coalesce(column(self._node.deleted), F.lit(False))
        return rows.select(*self._columns(rows, deleted, F.expr(content_hash(rows)), F.lit(False)), F.lit(False).alias(EXPIRED))

    def _stored(self, stored: DataFrame, rows: DataFrame) -> DataFrame:
        """Return rows of the state in the form of ``_given``; the sequence follows from a row's columns."""
        engine = [name for name in stored.columns if not visible_of([name])]
        shown = (F.col(quoted(element_column(name))).cast(rows.schema[name].dataType).alias(name) for name in visible_of(rows.columns))
        named = stored.select(*shown, *map(F.col, engine))
        remembered = F.expr(f"coalesce({DELETED}, false)") if self._remembers else F.lit(False)
        return named.select(*self._columns(rows, remembered, F.lit(None).cast("bigint"), F.lit(True)), EXPIRED)

    @property
    def _remembers(self) -> bool:
        return self._node.deleted is not None

    def _columns(self, rows: DataFrame, deleted: Column, content: Column, is_stored: Column) -> list[Column]:
        if self._node.sequence is None:
            raise ValueError("no sequence")
        return [
            *(F.col(quoted(name)).alias(key) for name, key in zip(self._node.by, self._keys, strict=True)),
            *(F.col(quoted(name)) for name in visible_of(rows.columns)),
            F.col(TIME),
            F.col(POSITION),
            column(self._node.sequence).alias(_SEQUENCE),
            deleted.alias(DELETED),
            content.alias(_CONTENT),
            is_stored.alias(_IS_STORED),
        ]


def with_position(rows: DataFrame) -> DataFrame:
    """Return rows that have a position, null where they had none."""
    return rows if POSITION in rows.columns else rows.withColumn(POSITION, F.lit(None).cast(POSITION_TYPE))


def whole_row(rows: DataFrame) -> str:
    """Return SQL of a row as users see it, with the engine's time and position."""
    return f"struct({', '.join([*map(quoted, visible_of(rows.columns)), TIME, POSITION])})"


def content_hash(rows: DataFrame) -> str:
    """Return SQL of a number that orders rows of one position by what they hold, so that another reading of them has the same order."""
    kinds = {field.name: field.dataType.simpleString() for field in rows.schema}
    names = [name for name in visible_of(rows.columns) if "map<" not in kinds[name] and "variant" not in kinds[name]]
    return f"xxhash64({', '.join(map(quoted, names))})" if names else "0L"
