"""The frames of the best rows of each group, by native Spark expressions.

Over a stream that is only added to, the state has the best rows of each group. With a rank a stored row is identified by its place, so that
an epoch writes the places that changed; without one by its key, which no other row has. A group lives as long as its newest row, so that
each epoch that brings rows of it writes one of its rows, at least.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.graph.expressions.expressions import Site
from tidemark.graph.operators.state_names import element_column
from tidemark.graph.operators.top_n.node import TopNode
from tidemark.graph.operators.top_n.order import OrderPart, parse_order
from tidemark.spark.columns.arrow_batches import POSITION_TYPE
from tidemark.spark.columns.changes import ADDS, AFTER, BEFORE, net_changes, same
from tidemark.spark.columns.expressions import CHANGE, POSITION, TIME, quoted, visible_of
from tidemark.spark.columns.few_rows import in_one_task
from tidemark.spark.columns.schemas import nullable
from tidemark.spark.operators.changelog.contents import GONE
from tidemark.spark.operators.changelog.frames import ACCEPTED, HAD, KEPT, OTHERS, PairsFrames
from tidemark.spark.operators.changelog.lifetimes import EXPIRED, renewed_column, renewed_fields
from tidemark.spark.operators.latest.frames import shown_rows
from tidemark.spark.operators.latest.sequenced import content_hash, with_position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RANK: Final = "__tm_rank"
"""The column of state with the place of a row, where results have one and the input is only added to."""

_PLACE: Final = "__tm_place"
_NEW: Final = "__tm_new"
_SLOT: Final = "__tm_slot"
_OLD: Final = "__tm_old"
_TOUCHED: Final = "__tm_touched"


class TopFrames(PairsFrames):
    """The frames of one operator.

    Args:
        node: the operator.
    """

    def __init__(self, node: TopNode) -> None:
        self._node = node
        self.order: tuple[OrderPart, ...] = parse_order(node.order, Site("top_n order", node.place, node.uid))
        self.lookup = tuple(map(element_column, node.by))
        by_place = node.rank is not None and node.changelog is None
        self.identity = (RANK,) if by_place else tuple(map(element_column, node.row_key))
        self._by_place = by_place
        self.ttl = node.ttl
        self.together = self.lookup if node.ttl is not None else None

    @property
    def names(self) -> list[str]:
        """The group and the key of rows, as far as they are declared."""
        return list(dict.fromkeys((*self._node.by, *self._node.row_key))) or ["row"]

    def columns(self, rows: DataFrame) -> T.StructType:
        """Return the columns of rows, and their places where these identify them."""
        visible = [T.StructField(element_column(name), rows.schema[name].dataType) for name in visible_of(rows.columns)]
        place = [T.StructField(RANK, T.IntegerType())] if self._by_place else []
        return nullable(
            T.StructType(
                [*visible, T.StructField(TIME, T.LongType()), T.StructField(POSITION, POSITION_TYPE), *place, *renewed_fields(self.ttl)]
            )
        )

    def lookup_values(self, rows: DataFrame) -> DataFrame:
        """Return the columns of groups."""
        named = (F.col(quoted(name)).alias(stored) for name, stored in zip(self._node.by, self.lookup, strict=True))
        return rows.select(*named) if self.lookup else rows.select(F.lit(0).alias("__tm_all"))

    def pairs(self, rows: DataFrame, stored: DataFrame | None, *, in_one: bool) -> DataFrame:
        """Return the row of each place, or with each key, before and after the epoch."""
        whole = with_position(rows)
        visible = visible_of(whole.columns)
        marks = [F.lit(None).cast("int").alias(RANK), F.lit(True).alias(_NEW), F.lit(False).alias(EXPIRED)]
        new = whole.select(*map(quoted, visible), TIME, POSITION, *marks)
        fed = new if stored is None else new.unionByName(self._stored(stored, visible))
        placed = (in_one_task(fed) if in_one else fed).withColumn(_PLACE, F.expr(self._place(whole)))
        best = f"{_PLACE} <= {self._node.n} AND NOT {EXPIRED}"
        if self.ttl is not None:
            placed = placed.withColumn(_TOUCHED, F.expr(f"max({_NEW}) OVER ({_partition(self._node.by)})"))
        return self._by_places(placed, visible, best) if self._by_place else self._by_keys(placed, visible, best)

    @property
    def _renews(self) -> str:
        """SQL of whether a row of the best is written so that its group lives on, though it does not change."""
        return "false" if self.ttl is None else f"{_TOUCHED} AND {_PLACE} = 1"

    def shown(self, stored: DataFrame) -> DataFrame:
        """Return the stored rows, with their places where the state has them."""
        if RANK not in stored.columns or self._node.rank is None:
            return shown_rows(stored)
        names = (name for name in stored.columns if name.startswith(element_column("")))
        shown = (F.col(quoted(name)).alias(name.removeprefix(element_column(""))) for name in names)
        return stored.select(*shown, F.col(RANK).alias(self._node.rank))

    def changes(self, stored: DataFrame | None, rows: DataFrame, *, again: bool) -> DataFrame:
        """Return the net changes of the best rows of groups, given the changes of a changelog.

        Args:
            stored: the rows of these groups before the epoch, and perhaps of others; None where there are none.
            rows: the changes, named as in state.
            again: whether a key may come again without a delete before; else that fails the epoch.
        """
        node = self._node
        names = [name for name in rows.columns if name != CHANGE]
        whole = f"struct({', '.join(map(quoted, names))})"
        none = f"if(false, {whole}, NULL)"
        given = rows.selectExpr(
            *_quoted(self._row_identity), f"{none} AS old", f"if({ADDS}, {whole}, NULL) AS new", f"NOT ({ADDS}) AS taken"
        )
        if stored is not None:
            kept = stored.selectExpr(*_quoted(self._row_identity), f"{whole} AS old", f"{none} AS new", "false AS taken")
            given = given.unionByName(kept)
        grouped = given.groupBy(*map(quoted, self._row_identity)).agg(
            F.expr("any_value(old, true) AS old"), F.expr("any_value(new, true) AS new"), F.expr("max(taken) AS taken")
        )
        kept_or_new = "coalesce(new, old)" if again else f"if(old IS NOT NULL AND new IS NOT NULL, {self._comes_again}, coalesce(new, old))"
        now = grouped.selectExpr(*_quoted(self._row_identity), "old", f"if(taken, new, {kept_or_new}) AS now")
        placed = now.selectExpr("*", *(f"{self._place_of(name)} AS {name}_place" for name in ("old", "now")))
        ends = [f"if({name} IS NOT NULL AND {name}_place <= {node.n}, {name}, NULL)" for name in ("old", "now")]
        sides = f"array(struct({ends[0]} AS row, old_place AS place, 3Y AS kind), struct({ends[1]} AS row, now_place AS place, 0Y AS kind))"
        found = placed.select(F.expr(f"explode(filter({sides}, x -> x.row IS NOT NULL)) AS side"))
        shown = [f"side.row.{quoted(element_column(name))} AS {quoted(name)}" for name in self._shown_names(names)]
        rank = [f"side.place AS {quoted(node.rank)}"] if node.rank is not None else []
        made = found.selectExpr(*shown, *rank, f"side.row.{TIME} AS {TIME}", f"side.row.{POSITION} AS {POSITION}", f"side.kind AS {CHANGE}")
        return net_changes(made, node.result_key)

    @property
    def _comes_again(self) -> str:
        """SQL that fails with what is wrong with a key that comes again."""
        key = ", ".join(f"new.{quoted(element_column(name))} AS {quoted(name)}" for name in self._node.row_key) or "1 AS row"
        uid = f"top_n {self._node.uid}: the key ".replace("'", "\\'")
        text = (
            "without the row that it takes the place of: updates need it (update_before); .latest(by=[...]) keeps the newest row of a key"
        )
        return f"raise_error(concat('{uid}', to_json(struct({key})), ' comes again {text}'))"

    def written(self, stored: DataFrame | None, rows: DataFrame, observation: Observation) -> DataFrame:
        """Return the rows of the state that changes write, with ``GONE``, and the expired rows of their groups; with what was observed.

        Args:
            stored: the rows of these groups before the epoch, with ``EXPIRED``; None where there are none.
            rows: the changes, named as in state.
            observation: for ``opened``, by how much the number of rows grows, and ``expired``.
        """
        names = [name for name in rows.columns if name != CHANGE]
        whole = f"struct({', '.join(map(quoted, names))})"
        given = rows.selectExpr(*_quoted(self._row_identity), f"{whole} AS row", ADDS + " AS adds", "false AS had", f"false AS {EXPIRED}")
        if stored is not None:
            kept = [f"{whole} AS row", "false AS adds", "true AS had", EXPIRED]
            given = given.unionByName(stored.selectExpr(*_quoted(self._row_identity), *kept))
        grouped = given.groupBy(*map(quoted, self._row_identity)).agg(
            F.expr("max_by(row, adds) AS row"),
            F.expr("max(adds) AS there"),
            F.expr("count_if(NOT had) > 0 AS changed"),
            F.expr("max(had) AS had"),
            F.expr(f"max({EXPIRED}) AS {EXPIRED}"),
        )
        counts = ["coalesce(sum(CAST(there AS INT) - CAST(had AS INT)), 0) AS opened", f"count_if({EXPIRED}) AS expired"]
        found = grouped.where(f"changed OR {EXPIRED}").observe(observation, *map(F.expr, counts))
        return found.selectExpr("row.*", f"NOT there AS {GONE}")

    @property
    def _row_identity(self) -> list[str]:
        return list(dict.fromkeys((*self.lookup, *map(element_column, self._node.row_key))))

    @staticmethod
    def _shown_names(stored: Sequence[str]) -> list[str]:
        return [name.removeprefix(element_column("")) for name in stored if name.startswith(element_column(""))]

    def _place_of(self, row: str) -> str:
        """Return SQL of a row's place in its group; rows that are not there come last."""
        parts = [f"{row}.{quoted(_order_name(number))} {_direction(part)}" for number, part in enumerate(self.order)]
        ties = [f"{row}.{quoted(element_column(name))}" for name in self._node.row_key]
        return _row_number(self.lookup, [f"{row} IS NULL", *parts, *ties])

    def ordered(self, rows: DataFrame) -> DataFrame:
        """Return rows with the values of the order, as columns of their own."""
        return rows.withColumns({_order_name(number): F.expr(part.expression) for number, part in enumerate(self.order)})

    def ordered_stored(self, stored: DataFrame) -> DataFrame:
        """Return rows of the state with the values of the order."""
        shown = shown_rows(stored)
        named = stored.withColumns({name: F.col(quoted(element_column(name))) for name in shown.columns})
        return self.ordered(named).drop(*shown.columns)

    def _place(self, rows: DataFrame) -> str:
        """Return SQL of a row's place among the stored and the new rows of its group."""
        ties = [quoted(name) for name in self._node.row_key]
        ties += [f"{RANK} ASC NULLS LAST", POSITION, TIME, content_hash(rows)]
        expired = [] if self.ttl is None else [EXPIRED]
        return _row_number(self._node.by, [*expired, *(part.sql for part in self.order), *ties])

    def _stored(self, stored: DataFrame, visible: Sequence[str]) -> DataFrame:
        place = RANK if self._by_place else f"0 AS {RANK}"
        named = (f"{quoted(element_column(name))} AS {quoted(name)}" for name in visible)
        return stored.selectExpr(*named, TIME, POSITION, place, f"false AS {_NEW}", EXPIRED)

    def _by_keys(self, placed: DataFrame, visible: Sequence[str], best: str) -> DataFrame:
        """Return the rows that come into the best ones, and those that leave them."""
        row = f"struct({', '.join([*map(quoted, visible), TIME, POSITION])})"
        # An expired row is dropped where its group has rows again.
        expired = EXPIRED if self.ttl is None else f"{EXPIRED} AND {_TOUCHED}"
        return placed.selectExpr(
            f"if(NOT {_NEW} AND NOT {EXPIRED} AND NOT ({best}), {row}, NULL) AS {BEFORE}",
            f"if({_NEW} AND {best}, {row}, NULL) AS {AFTER}",
            f"if(({expired}) OR (NOT {EXPIRED} AND ({_NEW} = ({best}) OR ({self._renews}))), {self._kept(visible)}, NULL) AS {KEPT}",
            f"NOT ({best}) AS {GONE}",
            f"NOT {_NEW} AS {HAD}",
            EXPIRED,
            f"CAST({_NEW} AS INT) AS {ACCEPTED}",
            f"0 AS {OTHERS}",
        )

    def _by_places(self, placed: DataFrame, visible: Sequence[str], best: str) -> DataFrame:
        """Return the rows of each place before and after."""
        rank = self._node.rank or RANK
        names = [*map(quoted, visible), f"{_SLOT} AS {quoted(rank)}", TIME, POSITION]
        counted = f"CAST({_NEW} AS INT)"
        expired = EXPIRED if self.ttl is None else f"{EXPIRED} AND {_TOUCHED}"
        was = f"struct({RANK} AS slot, NOT {EXPIRED} AS was, {expired} AS old, false AS new, false AS renewed, 0 AS counted)"
        marks = f"false AS was, false AS old, {best} AS new, {self._renews} AS renewed"
        now = f"struct(if({best}, {_PLACE}, NULL) AS slot, {marks}, {counted} AS counted)"
        # A row that is new and none of the best is in no place, and is counted there.
        ends = placed.selectExpr("*", f"explode(filter(array({was}, {now}), x -> x.slot IS NOT NULL OR x.counted > 0)) AS side")
        flat = ends.selectExpr(*map(quoted, visible), TIME, POSITION, f"side.slot AS {_SLOT}", "side.*")
        row = f"struct({', '.join(names)})"
        grouped = flat.groupBy(*map(quoted, self._node.by), _SLOT).agg(
            F.expr(f"any_value(if(was, {row}, NULL), true) AS {BEFORE}"),
            F.expr(f"any_value(if(new, {row}, NULL), true) AS {AFTER}"),
            F.expr(f"any_value(if(old, {row}, NULL), true) AS {_OLD}"),
            F.expr("max(renewed) AS renewed"),
            F.expr(f"sum(counted) AS {ACCEPTED}"),
        )
        marked = grouped.withColumn("__tm_same", F.expr(same(grouped, BEFORE, AFTER)))
        kept = f"if({AFTER} IS NULL OR __tm_same, coalesce({BEFORE}, {_OLD}), {AFTER})"
        values = [f"{kept}.{quoted(name)} AS {quoted(element_column(name))}" for name in visible]
        values += [f"{kept}.{TIME} AS {TIME}", f"{kept}.{POSITION} AS {POSITION}", f"{_SLOT} AS {RANK}", *self._unrenewed]
        return marked.selectExpr(
            f"if(__tm_same, NULL, {BEFORE}) AS {BEFORE}",
            f"if(__tm_same, NULL, {AFTER}) AS {AFTER}",
            f"if(__tm_same AND NOT renewed AND {_OLD} IS NULL, NULL, struct({', '.join(values)})) AS {KEPT}",
            f"{AFTER} IS NULL AS {GONE}",
            f"{BEFORE} IS NOT NULL OR {_OLD} IS NOT NULL AS {HAD}",
            f"{_OLD} IS NOT NULL AS {EXPIRED}",
            ACCEPTED,
            f"0 AS {OTHERS}",
        )

    def _kept(self, visible: Sequence[str]) -> str:
        values = [*(f"{quoted(name)} AS {quoted(element_column(name))}" for name in visible), TIME, POSITION, *self._unrenewed]
        return f"struct({', '.join(values)})"

    @property
    def _unrenewed(self) -> list[str]:
        """The column of the lifetime, whose value is known when the epoch's rows are written."""
        return [] if self.ttl is None else [f"CAST(NULL AS BIGINT) AS {renewed_column(self.ttl.domain)}"]


def _row_number(by: Sequence[str], order: Sequence[str]) -> str:
    return f"row_number() OVER ({_partition(by)} ORDER BY {', '.join(order)})"


def _partition(by: Sequence[str]) -> str:
    return f"PARTITION BY {', '.join(map(quoted, by))}" if by else ""


def _order_name(number: int) -> str:
    return f"__tm_order_{number}"


def _direction(part: OrderPart) -> str:
    return part.sql.removeprefix(part.expression)


def _quoted(columns: Sequence[str]) -> list[str]:
    return [quoted(name) for name in columns]
