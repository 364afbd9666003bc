"""The lifetime of stored rows in one epoch: a column with the time from which a row's counts, and which rows have expired.

Expired rows are never read; they are dropped some times in the length of a lifetime. State that has no time in the domain of the lifetime,
since it was written without one, or before there was a watermark, lives from the first time that there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.semantics.keyed_process.declarations import StateTtl
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK, clamp_watermark
from tidemark.spark.columns.expressions import START, quoted
from tidemark.spark.operators.base.contract import OperatorContext
from tidemark.spark.operators.base.tables import StateTables, is_current
from tidemark.spark.operators.changelog.contents import ENGINE_FIELDS, EPOCH, GONE, Contents
from tidemark.spark.prepared.runtime_literals import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EXPIRED: Final = "__tm_expired"
"""Whether a stored row has expired."""

SWEEPS_PER_LIFETIME: Final = 8
"""Expired rows are never read; they are dropped so many times in the length of a lifetime."""


def renewed_fields(ttl: StateTtl | None) -> list[T.StructField]:
    """Return the column of state with the time from which a row's lifetime counts; none where state lives for ever."""
    return [] if ttl is None else [T.StructField(renewed_column(ttl.domain), T.LongType())]


def renewed_column(domain: str) -> str:
    """Return the column of state with the time from which a row's lifetime counts, by the time domain."""
    return f"__tm_renewed_{domain}"


def stored_columns(tables: StateTables, ttl: StateTtl | None) -> T.StructType:
    """Return the columns of the main table as they are stored, without those of ``Contents``, and that of the lifetime."""
    engine = {START, *(field.name for field in ENGINE_FIELDS)}
    known = [field for field in tables.schema or () if is_current(field) and field.name not in engine]
    names = {field.name for field in known}
    return T.StructType([*known, *(field for field in renewed_fields(ttl) if field.name not in names)])


class Lifetime:
    """The lifetime of the rows of one table, in an epoch.

    Args:
        ttl: how long they live, None for ever.
        context: of the epoch.
        table: part of the names of its counters, where an operator has several tables with a lifetime of their own.
    """

    def __init__(self, ttl: StateTtl | None, context: OperatorContext, table: str = "") -> None:
        self.ttl = ttl
        self._context = context
        self._before = context.before.counters
        self._suffix = f"_{table}" if table else ""
        self._domain = "" if ttl is None else ttl.domain
        self._swept = self._before.get(self._name("swept"), MIN_WATERMARK)

    def _name(self, what: str) -> str:
        return f"{what}_{self._domain}{self._suffix}"

    @property
    def waits(self) -> bool:
        """Whether rows can be written only when the epoch's watermark is known."""
        return self.ttl is not None and self.ttl.domain == "event"

    @property
    def now_before(self) -> int:
        """The time, in the domain of the lifetime, at which stored rows are read."""
        return self.now(self._context.before.watermark)

    def now(self, watermark: int) -> int:
        """Return the time in the domain of the lifetime; ``watermark`` is that of the epoch."""
        return watermark if self.ttl is None or self.ttl.domain == "event" else self._context.processing_time

    def _begin(self, now: int) -> int:
        """Return the first time of the lifetime's domain, from which rows live that were written without one."""
        begin = self._before.get(self._name("begin"), MIN_WATERMARK)
        return now if begin == MIN_WATERMARK else begin

    def expired(self, now: int) -> str:
        """Return SQL of whether a stored row has expired at a time."""
        if self.ttl is None or now == MIN_WATERMARK:
            return "false"
        return f"coalesce({renewed_column(self.ttl.domain)}, {literal(self._begin(now))}) <= {literal(clamp_watermark(now - self.ttl.ms))}"

    def renewed(self, rows: DataFrame, watermark: int) -> DataFrame:
        """Return rows that are written now, with the time from which their lifetime counts."""
        if self.ttl is None:
            return rows
        now = self.now(watermark)
        # State that would expire after the end of time expires with it.
        value = "NULL" if now == MIN_WATERMARK else literal(min(now, MAX_WATERMARK - self.ttl.ms))
        return rows.withColumn(renewed_column(self.ttl.domain), F.expr(f"CAST({value} AS BIGINT)"))

    def sweeps(self, now: int) -> bool:
        """Return whether expired rows are to be dropped now; asked once in an epoch."""
        if self.ttl is None or now == MIN_WATERMARK:
            return False
        due = self._swept != MIN_WATERMARK and now - self._swept >= max(1, self.ttl.ms // SWEEPS_PER_LIFETIME)
        self._swept = now if due or self._swept == MIN_WATERMARK else self._swept
        return due

    def counters(self, watermark: int) -> dict[str, int]:
        """Return the counters that the next epoch needs."""
        # A lifetime that comes back begins again.
        found = {name: MIN_WATERMARK for name in self._before if name.startswith(("begin_", "swept_")) and name.endswith(self._suffix)}
        if self.ttl is not None:
            found |= {self._name("begin"): self._begin(self.now(watermark)), self._name("swept"): self._swept}
        return found


def with_expired(stored: DataFrame, expired: str, together: Sequence[str] | None) -> DataFrame:
    """Return stored rows with ``EXPIRED``.

    Args:
        stored: rows of the state.
        expired: SQL of whether a row has expired, by its own time.
        together: the columns of the group whose rows all expire when the last of them does; None where each expires by itself.
    """
    if together is None or expired == "false":
        return stored.withColumn(EXPIRED, F.expr(expired))
    group = f"PARTITION BY {', '.join(map(quoted, together))}" if together else ""
    return stored.withColumn(EXPIRED, F.expr(f"min({expired}) OVER ({group})"))


def drop_expired(contents: Contents, expired: str, together: Sequence[str] | None, epoch: int) -> int:
    """Write marks for the rows that have expired; return their number. One Spark job.

    Args:
        contents: the table.
        expired: SQL of whether a row has expired, by its own time.
        together: as ``with_expired`` has it.
        epoch: the current one, none of whose rows has expired.
    """
    # The rows of this epoch renew their groups.
    stored = contents.current(before=None if together is not None else epoch)
    gone = with_expired(stored, expired, together).where(EXPIRED).drop(EXPIRED)
    return sum(file.rows for file in contents.add(gone.selectExpr("*", f"true AS {GONE}", f"{epoch}L AS {EPOCH}")))
