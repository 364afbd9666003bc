"""The frames of the newest row of each key, by native Spark expressions: one shuffle of an epoch's rows and stored ones of their keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.graph.operators.latest.node import LatestNode
from tidemark.graph.operators.state_names import element_column, element_name
from tidemark.graph.operators.window.columns import BOUNDS, PANE_INDEX, REPLACES
from tidemark.semantics.watermarks.watermarks import clamp_watermark
from tidemark.spark.columns.arrow_batches import POSITION_TYPE
from tidemark.spark.columns.changes import AFTER, BEFORE, same
from tidemark.spark.columns.expressions import POSITION, TIME, column, quoted, visible_of
from tidemark.spark.columns.few_rows import in_one_task
from tidemark.spark.columns.schemas import has_fixed_width, nullable
from tidemark.spark.operators.changelog.contents import GONE
from tidemark.spark.operators.changelog.frames import ACCEPTED, HAD, KEPT, OTHERS, PairsFrames
from tidemark.spark.operators.changelog.lifetimes import EXPIRED, renewed_column, renewed_fields
from tidemark.spark.operators.latest.marks import (
    GIVEN,
    INCOMPLETE_ROW,
    ORDER,
    OUTDATED_ROW,
    STORED,
    row_fields,
    with_outdated,
    with_unchanged,
)
from tidemark.spark.operators.latest.sequenced import DELETED, SequencedRows, content_hash, whole_row, with_position
from tidemark.spark.prepared.runtime_literals import literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ROW: Final = "__tm_row"
_COUNTS: Final = "__tm_counts"

INCOMPLETE_ROWS: Final = "__tm_incomplete"
"""How many rows of a key are incomplete."""


class LatestFrames(PairsFrames):
    """The frames of one operator.

    Args:
        node: the operator.
        by_position: whether positions order rows as their source has them; rows of operators are ordered by their times first.
    """

    def __init__(self, node: LatestNode, *, by_position: bool) -> None:
        self._node = node
        self._by_position = by_position
        self._keys = [f"__tm_key_{number}" for number in range(len(node.by))]
        self.identity = tuple(map(element_column, node.by))
        self.lookup = self.identity
        self.ttl = node.ttl

    @property
    def _sequenced(self) -> SequencedRows:
        return SequencedRows(self._node, self._keys, by_position=self._by_position)

    def writes_once(self, columns: T.StructType) -> bool:
        """Whether rows have a fixed width beside their positions; where deleted keys are remembered, rows are written without a change."""
        values = (field.dataType for field in columns if field.name != POSITION)
        return self.ttl is None and not self._remembers and all(map(has_fixed_width, values))

    def rows_after(self, names: Sequence[str]) -> str:
        """Return SQL of the row that users see of a row of the state that is there, as a struct."""
        shown = ((name, element_name(name)) for name in names)
        return f"struct({', '.join(f'{quoted(name)} AS {quoted(user)}' for name, user in shown if user is not None)}, {TIME}, {POSITION})"

    @property
    def names(self) -> list[str]:
        """The key."""
        return list(self._node.by)

    @property
    def _remembers(self) -> bool:
        """Whether deleted keys are remembered."""
        return self._node.sequence is not None and self._node.deleted is not None

    def columns(self, rows: DataFrame) -> T.StructType:
        """Return the columns of rows, and what is known of them."""
        visible = [T.StructField(element_column(name), rows.schema[name].dataType) for name in visible_of(rows.columns)]
        fields = [*visible, T.StructField(TIME, T.LongType()), T.StructField(POSITION, POSITION_TYPE)]
        if self._remembers:
            fields.append(T.StructField(DELETED, T.BooleanType()))
        return nullable(T.StructType([*fields, *renewed_fields(self.ttl)]))

    def lookup_values(self, rows: DataFrame) -> DataFrame:
        """Return the keys, also of sessions whose place others take."""
        found = rows.select(*(F.col(quoted(name)).alias(stored) for name, stored in zip(self._node.by, self.lookup, strict=True)))
        if not self._replaces:
            return found
        gone = self._replaced(with_position(rows))
        return found.union(gone.select(*(F.col(key).alias(stored) for key, stored in zip(self._keys, self.lookup, strict=True))))

    @property
    def _replaces(self) -> bool:
        """Whether a row of input may take the place of rows with other keys."""
        return self._node.panes is not None and self._node.panes.merging

    def pairs(self, rows: DataFrame, stored: DataFrame | None, *, in_one: bool) -> DataFrame:
        """Return the row of each key before and after the epoch."""
        whole = with_position(rows)
        if self._node.sequence is not None and self._node.panes is None and not self._node.unchanged:
            return self._compared(self._sequenced.grouped(whole, stored, in_one=in_one))
        fed = self._given(whole)
        if self._replaces:
            fed = fed.unionByName(self._replaced(whole))
        kept = self._stored(stored, whole) if stored is not None else None
        if kept is not None:
            fed = fed.unionByName(kept, allowMissingColumns=True)
        else:
            fed = fed.withColumn(STORED, F.lit(None).cast(self._stored_type(whole)))
        fed = in_one_task(fed) if in_one else fed
        ordered = self._node.sequence is not None
        fed = with_outdated(fed, self._keys, may_lack=bool(self._node.unchanged)) if ordered else fed.withColumn(OUTDATED_ROW, F.lit(False))
        # An incomplete row counts as little as an outdated one.
        left_out = f"({OUTDATED_ROW} OR {INCOMPLETE_ROW})" if self._node.unchanged else OUTDATED_ROW
        incomplete = []
        if self._node.unchanged:
            fed = with_unchanged(fed, self._keys, [name for name, _ in self._node.unchanged])
            incomplete.append(F.expr(f"count_if({INCOMPLETE_ROW}) AS {INCOMPLETE_ROWS}"))
        order = f"struct({GIVEN}.sequence, {ORDER})" if ordered else ORDER
        grouped = fed.groupBy(*self._keys).agg(
            F.expr(f"any_value({STORED}, true) AS {STORED}"),
            F.expr(f"max_by({GIVEN}, if({GIVEN} IS NULL OR {left_out}, NULL, {order})) AS {GIVEN}"),
            F.expr(f"count_if({_COUNTS} AND NOT {left_out}) AS {ACCEPTED}"),
            F.expr(f"count_if({OUTDATED_ROW}) AS {OTHERS}"),
            *incomplete,
        )
        return self._compared(grouped)

    def outdated(self, rows: DataFrame, stored: DataFrame | None) -> DataFrame:
        """Return the rows that are outdated, with their columns."""
        return self._marked(rows, stored).where(OUTDATED_ROW).select(f"{GIVEN}.row.*")

    def incomplete(self, rows: DataFrame, stored: DataFrame | None) -> DataFrame:
        """Return the rows that are incomplete, with their columns."""
        fed = with_unchanged(self._marked(rows, stored), self._keys, [name for name, _ in self._node.unchanged])
        return fed.where(INCOMPLETE_ROW).select(f"{GIVEN}.row.*")

    def _marked(self, rows: DataFrame, stored: DataFrame | None) -> DataFrame:
        """Return rows of the input and of the state in one form, with those that are outdated."""
        whole = with_position(rows)
        fed = self._given(whole)
        if stored is not None:
            fed = fed.unionByName(self._stored(stored, whole), allowMissingColumns=True)
        else:
            fed = fed.withColumn(STORED, F.lit(None).cast(self._stored_type(whole)))
        return (
            with_outdated(fed, self._keys, may_lack=bool(self._node.unchanged))
            if self._node.sequence is not None
            else fed.withColumn(OUTDATED_ROW, F.lit(False))
        )

    def shown(self, stored: DataFrame) -> DataFrame:
        """Return the newest row of each key."""
        there = stored.where(f"NOT coalesce({DELETED}, false)") if DELETED in stored.columns else stored
        return shown_rows(there)

    def final(self, watermark: int) -> str | None:
        """Return SQL of whether no further pane of a stored window can come."""
        panes = self._node.panes
        if panes is None or panes.final_after_ms is None:
            return None
        return f"unix_millis({quoted(element_column(BOUNDS[1]))}) <= {literal(clamp_watermark(watermark - panes.final_after_ms + 1))}"

    def _given(self, rows: DataFrame) -> DataFrame:
        """Return rows of the input: their key, the row with its sequence and whether it deletes, and their order."""
        node = self._node
        deleted = F.lit(False) if node.deleted is None else F.coalesce(column(node.deleted), F.lit(False))
        sequence = F.lit(None).cast("int") if node.sequence is None else column(node.sequence)
        given = F.struct(F.expr(whole_row(rows)).alias("row"), sequence.alias("sequence"), deleted.alias("deleted"), *self._lacking())
        return rows.select(
            *(F.col(quoted(name)).alias(key) for name, key in zip(node.by, self._keys, strict=True)),
            given.alias(GIVEN),
            F.expr(self._order(rows)).alias(ORDER),
            F.lit(True).alias(_COUNTS),
        )

    def _lacking(self) -> list[Column]:
        """Return the field of a row that has the numbers of the columns that it leaves unchanged."""
        conditions = [condition for _, condition in self._node.unchanged]
        numbers = [F.when(F.coalesce(column(each), F.lit(False)), F.lit(number)) for number, each in enumerate(conditions)]
        return [F.array_compact(F.array(*numbers)).alias("lacks")] if numbers else []

    def _order(self, rows: DataFrame) -> str:
        if self._node.panes is not None:
            return f"struct({quoted(PANE_INDEX)}, 1 AS own, {TIME} AS time, {POSITION} AS position)"
        first, second = (POSITION, TIME) if self._by_position else (TIME, POSITION)
        return f"struct({first} AS o1, {second} AS o2, {content_hash(rows)} AS o3)"

    def _replaced(self, rows: DataFrame) -> DataFrame:
        """Return the sessions whose place other sessions take, as rows that delete them."""
        entry = "__tm_entry"
        exploded = rows.withColumn(entry, F.explode(F.col(REPLACES)))
        moved = {name: F.col(f"{entry}.{name}") for name in BOUNDS}
        visible = visible_of(rows.columns)
        keyed = exploded.select(
            *(
                (moved[name] if name in moved else F.col(quoted(name)) if name in (*self._node.by, PANE_INDEX) else F.lit(None))
                .cast(rows.schema[name].dataType)
                .alias(name)
                for name in visible
            ),
            TIME,
            POSITION,
        )
        given = F.struct(F.expr(whole_row(keyed)).alias("row"), F.lit(None).cast("int").alias("sequence"), F.lit(True).alias("deleted"))
        return keyed.select(
            *(F.col(quoted(name)).alias(key) for name, key in zip(self._node.by, self._keys, strict=True)),
            given.alias(GIVEN),
            F.expr(f"struct({quoted(PANE_INDEX)}, 0 AS own, {TIME} AS time, {POSITION} AS position)").alias(ORDER),
            F.lit(False).alias(_COUNTS),
        )

    def _stored(self, stored: DataFrame, rows: DataFrame) -> DataFrame:
        """Return rows of the state in the form of ``_given``; the sequence follows from a row's columns."""
        visible = visible_of(rows.columns)
        engine = [name for name in stored.columns if not visible_of([name])]
        shown = stored.select(*(F.col(quoted(element_column(name))).alias(name) for name in visible), *map(F.col, engine))
        sequence = F.lit(None).cast("int") if self._node.sequence is None else column(self._node.sequence)
        deleted = f"coalesce({DELETED}, false)" if self._remembers else "false"
        value = F.struct(
            F.expr(whole_row(rows)).alias("row"),
            sequence.alias("sequence"),
            F.expr(deleted).alias("deleted"),
            *([F.expr("CAST(array() AS ARRAY<INT>)").alias("lacks")] if self._node.unchanged else []),
            F.col(EXPIRED).alias("expired"),
        )
        return shown.select(
            *(F.col(quoted(name)).alias(key) for name, key in zip(self._node.by, self._keys, strict=True)),
            value.cast(self._stored_type(rows)).alias(STORED),
            F.lit(False).alias(_COUNTS),
        )

    def _stored_type(self, rows: DataFrame) -> T.StructType:
        given = self._given(rows).schema[GIVEN].dataType
        if not isinstance(given, T.StructType):
            raise TypeError(given.simpleString())
        return nullable(T.StructType([*given.fields, T.StructField("expired", T.BooleanType())]))

    def _compared(self, grouped: DataFrame) -> DataFrame:
        """Return what changes for users, and in the state."""
        had, new = f"{STORED} IS NOT NULL", f"{GIVEN} IS NOT NULL"
        live = f"{had} AND NOT {STORED}.expired AND NOT {STORED}.deleted"
        pairs = grouped.selectExpr(
            "*",
            f"if({live}, {STORED}.row, NULL) AS {BEFORE}",
            f"CASE WHEN {new} THEN if({GIVEN}.deleted, NULL, {GIVEN}.row) WHEN {live} THEN {STORED}.row END AS {AFTER}",
        )
        equal = same(pairs, BEFORE, AFTER)
        marked = pairs.withColumn("__tm_same", F.expr(equal))
        remembers = self._remembers
        gone = "false" if remembers else f"coalesce({GIVEN}.deleted, false)"
        # A row that users see as the same keeps its time: what follows was given that.
        row = f"if(__tm_same AND {BEFORE} IS NOT NULL, {BEFORE}, {GIVEN}.row)"
        names = visible_of(row_fields(grouped))
        values = [f"{row}.{quoted(name)} AS {quoted(element_column(name))}" for name in names]
        values += [f"{row}.{TIME} AS {TIME}", f"{row}.{POSITION} AS {POSITION}"]
        values += [f"{GIVEN}.deleted AS {DELETED}"] if remembers else []
        values += [f"CAST(NULL AS BIGINT) AS {renewed_column(self.ttl.domain)}"] if self.ttl is not None else []
        unchanged = "__tm_same" if self.ttl is None else "false"
        if remembers:
            # A deleted key that is deleted again has another sequence, perhaps.
            unchanged = f"{unchanged} AND {AFTER} IS NOT NULL"
        writes = f"{new} AND NOT ({unchanged}) AND NOT ({gone} AND NOT ({had}))"
        return marked.selectExpr(
            f"if(__tm_same, NULL, {BEFORE}) AS {BEFORE}",
            f"if(__tm_same, NULL, {AFTER}) AS {AFTER}",
            f"if({writes}, struct({', '.join(values)}), NULL) AS {KEPT}",
            f"{gone} AS {GONE}",
            f"{had} AS {HAD}",
            f"coalesce({STORED}.expired, false) AS {EXPIRED}",
            ACCEPTED,
            OTHERS,
            *([INCOMPLETE_ROWS] if self._node.unchanged else []),
        )


def shown_rows(stored: DataFrame) -> DataFrame:
    """Return rows of the state with the columns of the stream."""
    names = ((name, element_name(name)) for name in stored.columns)
    return stored.select(*(F.col(quoted(name)).alias(shown) for name, shown in names if shown is not None))
