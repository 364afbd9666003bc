"""Results of sliding and cumulative windows from slices, with one merge per result: see ``tidemark.semantics.windows.slices``.

A window is a suffix of one block and a prefix of the next. Both change only where the key has a slice, so the computation yields, per
key and block, a short list of rows in order of time, each with the values from there on: the prefix so far, by a running merge, and
the remaining suffix. Each row gives the results of all windows that end before the next row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.semantics.windows.slices import Slices
from tidemark.spark.columns.expressions import START, quoted
from tidemark.spark.operators.base.partials import Partials
from tidemark.spark.prepared.runtime_literals import runtime_literals

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCK = "__tm_block"
END = "__tm_end"
LOW = "__tm_low"
REAL = "__tm_real"
FIRST = "__tm_first"
LAST = "__tm_last"
_AT, _UNTIL, _KIND, _TOP, _PAST = "__tm_at", "__tm_until", "__tm_kind", "__tm_top", "__tm_past"
_PREFIX, _STORED, _RAW = 0, 1, 2


@dataclass(frozen=True)
class Ends:
    """Ends of the windows that fire, both inclusive."""

    first: int
    last: int


class TwoStacks:
    """The DataFrames of one operator.

    Args:
        slices: of its windows.
        partials: its keys and aggregates, which ``can_run``.
    """

    def __init__(self, slices: Slices, partials: Partials) -> None:
        self._slices = slices
        self._partials = partials
        self._keys = [quoted(key) for key in partials.keys]
        self._columns = [quoted(name) for name in partials.columns]
        self._grid = slices.last_end(0)

    def suffixes(self, rows: DataFrame) -> DataFrame:
        """Return, for each slice of a key, the slices that follow it in its block, merged.

        A row is for window starts in (``LOW``, ``START``]; ``BLOCK`` is the block after, in which such windows end. A last row with
        ``REAL`` false has the start from which on nothing is left.
        """
        span = self._slices.span
        block = f"{START} - pmod({START} - {self._slices.offset}L, {span}L) + {span}L"
        by = ", ".join([*self._keys, BLOCK])
        order = f"PARTITION BY {by} ORDER BY {START} DESC"
        blocks = rows.selectExpr(*self._keys, START, f"{block} AS {BLOCK}", *self._columns)
        merged = blocks.select(
            *self._keys,
            BLOCK,
            START,
            *self._partials.running(blocks, f"({order} ROWS UNBOUNDED PRECEDING)"),
            F.expr(f"lead({START}, 1, {BLOCK} - {span + 1}L) OVER ({order}) AS {LOW}"),
            F.expr(f"lag({START}) OVER ({order}) IS NULL AS {_TOP}"),
        )
        both = merged.selectExpr("*", f"explode(if({_TOP}, array(false, true), array(false))) AS {_PAST}")
        return both.selectExpr(
            *self._keys,
            BLOCK,
            f"if({_PAST}, {BLOCK}, {START}) AS {START}",
            f"if({_PAST}, {START}, {LOW}) AS {LOW}",
            f"NOT {_PAST} AS {REAL}",
            *(f"if({_PAST}, NULL, {column}) AS {column}" for column in self._columns),
        ).where(f"{LOW} < {START}")

    def results(
        self,
        ends: Ends,
        *,
        prefix: DataFrame,
        grown: DataFrame | None = None,
        stored: DataFrame | None = None,
        raw: DataFrame | None = None,
    ) -> DataFrame:
        """Return merged partials of the windows that end within bounds and have any slice, each row for consecutive windows.

        ``FIRST`` and ``LAST`` are the ends of a row's windows; ``at_each_end`` returns a row for each.

        Args:
            ends: of the windows.
            prefix: slices, for the windows of their own block.
            grown: rows with ``BLOCK`` and, as ``START``, the end up to which its block's slices are merged in it; None for none.
            stored: suffixes that were computed before; None for none.
            raw: slices to compute suffixes from; those of ``stored`` are not among them. None for none.
        """
        width = self._slices.width
        events = [prefix.selectExpr(*self._keys, f"{self._block()} AS {BLOCK}", f"{START} + {width}L AS {_AT}", *self._kind(_PREFIX))]
        if grown is not None:
            events.append(grown.selectExpr(*self._keys, BLOCK, f"{START} AS {_AT}", *self._kind(_PREFIX)))
        kinds = []
        for kind, rows in ((_STORED, stored), (_RAW, None if raw is None else self.suffixes(raw))):
            if rows is not None:
                events.append(self._suffix_events(rows, kind, ends))
                kinds.append(kind)
        united = reduce(DataFrame.union, events)
        return self._bounded(self._combined(self._aligned(united, kinds), kinds), ends)

    def _block(self) -> str:
        return f"{START} - pmod({START} - {self._slices.offset}L, {self._slices.span}L)"

    def _kind(self, kind: int, real: str = "true") -> list[str]:
        return [f"{kind} AS {_KIND}", f"{real} AS {REAL}", *self._columns]

    def _suffix_events(self, rows: DataFrame, kind: int, ends: Ends) -> DataFrame:
        span = self._slices.span
        first, last = runtime_literals(ends.first - span, ends.last - span)
        needed = rows.where(f"{START} >= {first} AND {LOW} < {last}")
        return needed.selectExpr(*self._keys, BLOCK, f"{LOW} + {span + 1}L AS {_AT}", *self._kind(kind, REAL))

    def _aligned(self, events: DataFrame, kinds: Sequence[int]) -> DataFrame:
        """Return rows with the values, per key and block, in [``_AT``, ``_UNTIL``): structs ``p``, and one per kind of suffix."""
        by = ", ".join([*self._keys, BLOCK])
        order = f"PARTITION BY {by} ORDER BY {_AT}"
        over = f"({order} ROWS UNBOUNDED PRECEDING)"
        held = ", ".join([REAL, *self._columns])
        apart = events.selectExpr(
            *self._keys,
            BLOCK,
            _AT,
            f"if({_KIND} = {_PREFIX}, true, NULL) AS {REAL}",
            *(f"if({_KIND} = {_PREFIX}, {column}, NULL) AS {column}" for column in self._columns),
            *(f"if({_KIND} = {kind}, struct({held}), NULL) AS s{kind}" for kind in kinds),
        )
        return apart.select(
            *self._keys,
            BLOCK,
            _AT,
            F.expr(f"lead({_AT}, 1, {BLOCK} + {self._slices.span + 1}L) OVER ({order}) AS {_UNTIL}"),
            F.expr(f"max({REAL}) OVER {over} AS {REAL}"),
            *self._partials.running(apart, over),
            *(F.expr(f"last(s{kind}, true) OVER {over} AS s{kind}") for kind in kinds),
        ).where(f"{_AT} < {_UNTIL}")

    def _combined(self, aligned: DataFrame, kinds: Sequence[int]) -> DataFrame:
        """Return the rows with prefix and suffixes merged into one, without empty ones."""
        place = [*self._keys, BLOCK, _AT, _UNTIL]
        if not kinds:
            return aligned
        if not self._partials.can_combine:
            parts = ", ".join([f"struct({', '.join([REAL, *self._columns])})", *(f"s{kind}" for kind in kinds)])
            rows = aligned.selectExpr(*place, f"explode(array({parts})) AS part").where(f"part.{REAL}").selectExpr(*place, "part.*")
            return self._partials.grouped(rows.drop(REAL), BLOCK, _AT, _UNTIL)
        some = aligned.where(" OR ".join([REAL, *(f"s{kind}.{REAL}" for kind in kinds)]))
        rows = some.selectExpr(*place, f"struct({', '.join(self._columns)}) AS p", *(f"s{kind}" for kind in kinds))
        for kind in kinds:
            merged = (
                F.expr(sql).alias(name) for name, sql in zip(self._partials.columns, self._partials.combined("p", f"s{kind}"), strict=True)
            )
            # Sums widen decimals.
            rows = rows.withColumn("p", F.struct(*merged).cast(rows.schema["p"].dataType))
        return rows.selectExpr(*place, "p.*")

    def at_each_end(self, rows: DataFrame) -> DataFrame:
        """Return the rows of ``results`` by key and ``END``."""
        each = f"explode(sequence({FIRST}, {LAST}, {self._slices.ends}L)) AS {END}"
        return rows.selectExpr(*self._keys, *self._columns, each)

    def _bounded(self, rows: DataFrame, ends: Ends) -> DataFrame:
        step, span = self._slices.ends, self._slices.span
        low, high = runtime_literals(ends.first, ends.last, varying=_AT)
        first = f"greatest({_AT}, {low}, {BLOCK} + 1L)"
        last = f"least({_UNTIL} - 1L, {high}, {BLOCK} + {span}L)"
        return rows.selectExpr(
            *self._keys,
            *self._columns,
            f"{first} + pmod({self._grid}L - {first}, {step}L) AS {FIRST}",
            f"{last} - pmod({last} - {self._grid}L, {step}L) AS {LAST}",
        ).where(f"{FIRST} <= {LAST}")
