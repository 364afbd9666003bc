"""The frames of a regular join: the versions of rows that an epoch concerns, and the changes of the result.

Of each input a row of these keys is in the content before the epoch, in the one after it, or in both. A pair of rows is in the result's
content before if both rows were, and after if both are; a row without a partner, if its key has no row of the other input. So at most one
version of a result is gone, and one is new.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import Observation
from pyspark.sql import functions as F

from tidemark.semantics.changelog.row_kinds import RowKind
from tidemark.spark.columns.changes import AFTER, BEFORE, CHANGE_TYPE, net_changes, same
from tidemark.spark.columns.expressions import CHANGE, POSITION, TIME, key_hash, quoted
from tidemark.spark.columns.schemas import has_fixed_width, may_be_normalized
from tidemark.spark.operators.changelog.contents import EPOCH, GONE, HASH, lookup_hash
from tidemark.spark.operators.changelog.lifetimes import EXPIRED
from tidemark.spark.operators.keyed.key_table import union_of
from tidemark.spark.operators.regular_join.layout import INPUT, JoinLayout, SideLayout
from tidemark.spark.prepared.runtime_literals import runtime_literals

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WHOLE: Final = "__tm_whole"
"""Whether changes of the other input have the row's key, so that the row may be in a result; else only that it is there counts."""

OLD: Final = "__tm_old"
NEW: Final = "__tm_new"
"""Whether a version is in the content before the epoch, and after it."""

_WAS: Final = "__tm_was"
_IS: Final = "__tm_is"
_ADDED: Final = "__tm_added"
_REMOVED: Final = "__tm_removed"
_HAD: Final = "__tm_had"
_VERSION: Final = "__tm_version"
_ROWS: Final = {"left": "l", "right": "r"}

MOST_COMPARED: Final = 2_000
"""Up to so many versions, pairs that do not change cost less than a second join."""

TWICE: Final = "twice"
EXAMPLE: Final = "example"
NULL_KEYS: Final = "null_keys"
"""Observed of an input: its keys that came again without a change of their row, one of them, and by how much rows with a null key grew."""

GROWN: Final = "grown"
EXPIRED_ROWS: Final = "expired"
"""Observed of an input whose rows have a lifetime: by how much its stored rows grew in number, and how many had expired and came again."""


class JoinFrames:
    """The frames over an epoch's changes and state. Nothing runs until a returned frame is written.

    Args:
        layout: the columns.
        uid: of the operator.
        epoch: the current one.
    """

    def __init__(self, layout: JoinLayout, uid: str, epoch: int) -> None:
        self._layout = layout
        self._uid = uid
        self._epoch = epoch
        self._on = [f"__tm_on_{number}" for number in range(len(layout.left.compared))]

    def versions(self, side: SideLayout, rows: DataFrame, observation: Observation, *, again: bool = False) -> DataFrame:
        """Return the versions of an input's rows, with what was observed of their keys.

        Args:
            side: the input.
            rows: its changes in this epoch, and the stored rows that changes of the other input, or of its own, concern; with ``WHOLE``,
                and with ``EXPIRED`` where rows have a lifetime.
            observation: for ``TWICE``, ``EXAMPLE`` and ``NULL_KEYS``; with a lifetime also for ``GROWN`` and ``EXPIRED_ROWS``.
            again: whether a key may come again without a delete before.
        """
        now = f"{EPOCH} = {runtime_literals(self._epoch, varying=HASH)[0]}"
        # One number, so that Spark can hash: the greater, the newer, and in one epoch a row is newer than a mark.
        version = f"(2L * {EPOCH} + if({GONE}, 0L, 1L))"
        # Stored rows say best what there was; else the change itself has the row before.
        earlier, later = f"if({now}, if({GONE}, -1L, NULL), {version})", version
        counted: list[Column] = []
        if side.side.ttl is not None:
            earlier, later = (f"if({EXPIRED}, NULL, {order})" for order in (earlier, version))
            before = f"if({now}, NULL, {version})"
            counted = [F.expr(f"max_by(NOT {GONE}, {before})").alias(_HAD), F.expr(f"max_by({EXPIRED}, {before})").alias(EXPIRED)]
        counted += [
            F.expr(f"count_if({now} AND NOT {GONE})").alias(_ADDED),
            F.expr(f"count_if({now} AND {GONE})").alias(_REMOVED),
            F.expr(f"max({WHOLE})").alias(WHOLE),
        ]
        orders = {BEFORE: (earlier, f"{GONE} AND NOT ({now})"), AFTER: (later, GONE)}
        pairs = self._grouped(side, rows, orders, counted)
        observed = pairs.observe(observation, *self._observed(side, again=again))
        return self._exploded(side, observed.where(f"{BEFORE} IS NOT NULL OR {AFTER} IS NOT NULL"))

    @staticmethod
    def _grouped(side: SideLayout, rows: DataFrame, orders: Mapping[str, tuple[str, str]], more: Sequence[Column]) -> DataFrame:
        """Return for each key and compared values the greatest row by each order, as a struct; null where it is a mark.

        Args:
            side: the input.
            rows: its rows.
            orders: SQL of an order and of whether a row is a mark, by the names of the structs.
            more: further aggregates.
        """
        keys, names = list(dict.fromkeys((*side.identity, *side.compared))), side.columns.names
        kinds = {field.name: field.dataType for field in side.columns}
        values = [name for name in names if name not in keys or may_be_normalized(kinds[name])]
        if not all(has_fixed_width(kinds[name]) for name in values):
            whole = f"struct({', '.join(map(quoted, names))})"
            made = (F.expr(f"max_by(if({mark}, NULL, {whole}), {order})").alias(row) for row, (order, mark) in orders.items())
            return rows.groupBy(*map(quoted, keys)).agg(*made, *more)
        # Column by column: Spark hashes rows by their key where it would sort them to keep a struct.
        numbers = {name: number for number, name in enumerate(values)}
        found = []
        for row, (order, mark) in orders.items():
            found += [F.expr(f"max_by({quoted(name)}, {order})").alias(f"{row}_{number}") for name, number in numbers.items()]
            found.append(F.expr(f"max_by(NOT ({mark}), {order})").alias(row))
        grouped = rows.groupBy(*map(quoted, keys)).agg(*found, *more)
        structs = []
        for row in orders:
            fields = (f"{row}_{numbers[name]} AS {quoted(name)}" if name in numbers else quoted(name) for name in names)
            structs.append(f"if({row}, struct({', '.join(fields)}), NULL) AS {row}")
        others = grouped.columns[len(keys) + len(found) :]
        return grouped.selectExpr(*map(quoted, keys), *structs, *others)

    def both(self, versions: Sequence[DataFrame]) -> DataFrame:
        """Return the versions of rows of one input, or of both."""
        together = union_of(versions)
        for side in self._layout.sides.values():
            row = _ROWS[side.port]
            if row not in together.columns:
                together = together.withColumn(row, F.lit(None).cast(side.columns))
        return together.select(*self._on, INPUT, OLD, NEW, *_ROWS.values())

    def scans(self, apart: Collection[str]) -> int:
        """Return how many times ``results`` read the versions."""
        how = self._layout.node.how
        pairs = 0 if how in {"semi", "anti"} else 2 * max(len(apart), 1)
        return pairs + {"inner": 0, "full": 4}.get(how, 2)

    def _observed(self, side: SideLayout, *, again: bool) -> list[Column]:
        twice = f"{_ADDED} > 1 OR {_REMOVED} > 1"
        twice += "" if again else f" OR ({_ADDED} = 1 AND {_REMOVED} = 0 AND {BEFORE} IS NOT NULL)"
        key = ", ".join(f"{quoted(side.names[name])} AS {quoted(name)}" for name in side.side.keys) or "1"
        grown = f"CAST({AFTER} IS NOT NULL AS INT) - CAST({BEFORE} IS NOT NULL AS INT)"
        return [
            F.expr(f"count_if({twice})").alias(TWICE),
            F.expr(f"max(if({twice}, to_json(struct({key})), NULL))").alias(EXAMPLE),
            F.expr(f"coalesce(sum(if({self._unidentified(side)}, {grown}, 0)), 0L)").alias(NULL_KEYS),
            *self._observed_lives(side),
        ]

    def _unidentified(self, side: SideLayout) -> str:
        """Return SQL of whether the key of a row's result, without a partner, could be that of a row of the other input."""
        node = self._layout.node
        tests = [f"{quoted(side.names[name])} IS NULL" for name in node.own_keys(side.port)]
        if node.compares_key:
            tests.append(f"({' OR '.join(f'{quoted(name)} IS NULL' for name in side.compared)})")
        return " AND ".join(tests) or "true"

    @staticmethod
    def _observed_lives(side: SideLayout) -> list[Column]:
        """Return by how much the number of stored rows grows, and how many had expired and are written again."""
        if side.side.ttl is None:
            return []
        changed, had = f"{_ADDED} + {_REMOVED} > 0", f"coalesce({_HAD}, false)"
        return [
            F.expr(f"coalesce(sum(if({changed}, CAST({_ADDED} > 0 AS INT) - CAST({had} AS INT), 0)), 0L)").alias(GROWN),
            F.expr(f"count_if({changed} AND {had} AND {EXPIRED})").alias(EXPIRED_ROWS),
        ]

    def _exploded(self, side: SideLayout, pairs: DataFrame) -> DataFrame:
        """Return one row for a key whose row stays, and else one for each of the rows before and after."""
        stays = f"({same(pairs, BEFORE, AFTER)})"
        # Numbers, not the rows themselves, which Spark would copy into an array.
        which = (
            f"CASE WHEN {stays} THEN array(2) WHEN {AFTER} IS NULL THEN array(0) WHEN {BEFORE} IS NULL THEN array(1) ELSE array(0, 1) END"
        )
        compared = [F.col(quoted(name)).alias(on) for name, on in zip(side.compared, self._on, strict=True)]
        rows = pairs.select(*compared, BEFORE, AFTER, WHOLE, F.expr(f"explode({which})").alias(_VERSION))
        row = f"CASE {_VERSION} WHEN 0 THEN {BEFORE} WHEN 1 THEN {AFTER} ELSE if({WHOLE}, {AFTER}, NULL) END"
        return rows.select(
            *self._on,
            F.lit(side.port).alias(INPUT),
            F.expr(f"{_VERSION} <> 1").alias(OLD),
            F.expr(f"{_VERSION} <> 0").alias(NEW),
            F.expr(row).alias(_ROWS[side.port]),
        )

    def flipped(self, versions: DataFrame) -> DataFrame:
        """Return the hashes of the keys that had rows of an input before the epoch and have none after it, or the other way round.

        Args:
            versions: of the input.
        """
        there = self._there(versions).where(f"{_WAS} <> {_IS}")
        return there.select(F.expr(lookup_hash(self._on)).alias(HASH))

    def _there(self, versions: DataFrame) -> DataFrame:
        """Return the keys of an input, without nulls, and whether it has rows of each before the epoch and after it."""
        present = " AND ".join(f"{on} IS NOT NULL" for on in self._on)
        return versions.where(present).groupBy(*self._on).agg(F.expr(f"max({OLD})").alias(_WAS), F.expr(f"max({NEW})").alias(_IS))

    def results(self, versions: DataFrame, *, apart: Collection[str] = (), few: bool) -> DataFrame:
        """Return the net changes of the result.

        Args:
            versions: of both inputs.
            apart: the inputs with changes, where there are so many versions that rows which stay are not compared with one another.
            few: whether all are processed in one task.
        """
        how = self._layout.node.how
        left, right = (versions.where(F.col(INPUT) == port) for port in ("left", "right"))
        parts = []
        if how not in {"semi", "anti"}:
            parts += self._all_pairs(left, right, apart, few=few)
        if how in {"left", "full", "semi", "anti"}:
            parts.append(self._kept(left, right, partners=how == "semi", few=few))
        if how in {"right", "full"}:
            parts.append(self._kept(right, left, partners=False, few=few))
        every = parts[0]
        for part in parts[1:]:
            every = every.unionByName(part)
        return self._net(every)

    def _all_pairs(self, left: DataFrame, right: DataFrame, changed: Collection[str], *, few: bool) -> list[DataFrame]:
        """Return what ``_pairs`` does, in parts that compare no two rows that both stay: of a large key that would be all with all."""
        changes, stays = f"{OLD} <> {NEW}", f"{OLD} AND {NEW}"
        parts = []
        if "left" in changed:
            parts.append(self._pairs(left.where(changes), right, few=few))
        if "right" in changed:
            parts.append(self._pairs(left.where(stays) if parts else left, right.where(changes), few=few))
        return parts or [self._pairs(left, right, few=few)]

    def _pairs(self, left: DataFrame, right: DataFrame, *, few: bool) -> DataFrame:
        """Return the pairs that are in one of the contents before and after, and not in the other."""
        there = right.select(*(F.col(on).alias(f"{on}_r") for on in self._on), F.col(OLD).alias(_WAS), F.col(NEW).alias(_IS), "r")
        there = there.hint("merge") if few else there
        equal = " AND ".join(f"{on} = {on}_r" for on in self._on)
        was, now = f"{OLD} AND {_WAS}", f"{NEW} AND {_IS}"
        joined = left.drop("r").join(there, F.expr(f"{equal} AND ({was}) <> ({now})"))
        return joined.selectExpr("l", "r", f"{was} AS {OLD}")

    def _kept(self, rows: DataFrame, others: DataFrame, *, partners: bool, few: bool) -> DataFrame:
        """Return the versions of an input's rows that enter or leave the result, alone, by whether their key has rows of the other one."""
        there = self._there(others).select(*(F.col(on).alias(f"{on}_r") for on in self._on), _WAS, _IS)
        there = there.hint("merge") if few else there
        joined = rows.join(there, F.expr(" AND ".join(f"{on} = {on}_r" for on in self._on)), "left")
        found = "" if partners else "NOT "
        was, now = (f"{mine} AND {found}coalesce({other}, false)" for mine, other in ((OLD, _WAS), (NEW, _IS)))
        return joined.where(f"({was}) <> ({now})").selectExpr("l", "r", f"{was} AS {OLD}")

    def _net(self, pairs: DataFrame) -> DataFrame:
        """Return the changes of results: a key may lose one row and get another."""
        node = self._layout.node
        columns = [F.expr(value).alias(name) for name, value in self._layout.results.items()]
        times = f"l.{TIME}" if node.left_only else f"greatest(l.{TIME}, r.{TIME})"
        kind = F.expr(f"if({OLD}, {int(RowKind.DELETE)}, {int(RowKind.INSERT)})").cast(CHANGE_TYPE)
        rows = pairs.select(*columns, F.expr(times).alias(TIME), kind.alias(CHANGE))
        net = net_changes(rows, node.result_keys)
        place = f"struct('{self._uid}' AS origin, {TIME} AS block, {key_hash(node.result_keys)} AS row)"
        return net.withColumn(POSITION, F.expr(place))
