"""The state of keys, without windows' partials and elements, as tables: a row per key, window or timer, from their JSON texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.graph.operators.state_names import key_column
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK
from tidemark.spark.columns.expressions import quoted
from tidemark.spark.columns.schemas import no_rows
from tidemark.spark.columns.state_files import read_files
from tidemark.spark.operators.keyed.columns import DUE, EPOCH, OLDEST, STATE, TIMER, VERSION_FIELDS
from tidemark.state.log.records import OperatorState
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WINDOWS: Final = (
    "windows ARRAY<STRUCT<window: ARRAY<BIGINT>, held: BIGINT, panes: BIGINT, event: ARRAY<BIGINT>, processing: ARRAY<BIGINT>>>"
)
"""The part of a key's JSON text, as ``semantics.window_state`` writes it, that all operators share."""

_LAST_INSTANT: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: later times are those of windows without an end."""


@dataclass(frozen=True)
class StoredKeys:
    """The table of an operator's keys.

    Args:
        spark: the session.
        store: the store at the job's folder.
        state: the operator's.
        part: the name of the table.
        keys: names of the keys.
    """

    spark: SparkSession
    store: JobStore
    state: OperatorState
    part: str
    keys: Sequence[str]

    def newest(self) -> DataFrame:
        """Return a row per key that has state."""
        return self._newest().selectExpr(
            *map(quoted, self.keys),
            f"get_json_object({STATE}, '$.function.key') AS function_state",
            f"{STATE} AS state",
            f"{_instant(DUE)} AS due",
            f"{_instant(TIMER)} AS due_processing_time",
        )

    def windows(self) -> DataFrame:
        """Return a row per key and open window."""
        return self._windows().selectExpr(
            *map(quoted, self.keys),
            "timestamp_millis(each.window[0]) AS window_start",
            f"{_instant('each.window[1]')} AS window_end",
            "coalesce(each.held, 0L) AS held",
            "coalesce(each.panes, 0L) AS panes",
        )

    def timers(self) -> DataFrame:
        """Return a row per key, window and timer."""
        both = ", ".join(
            f"transform(coalesce(each.{domain}, array()), at -> struct('{domain}' AS domain, at))" for domain in ("event", "processing")
        )
        windows = self._windows().selectExpr(*map(quoted, self.keys), "each.window AS window", f"explode(concat({both})) AS timer")
        return windows.selectExpr(
            *map(quoted, self.keys),
            "timestamp_millis(window[0]) AS window_start",
            f"{_instant('window[1]')} AS window_end",
            "timer.domain AS domain",
            f"{_instant('timer.at')} AS at",
        )

    def _windows(self) -> DataFrame:
        windows = F.from_json(F.col(STATE), _WINDOWS).getField("windows")
        return self._newest().withColumn("each", F.explode(windows))

    def _newest(self) -> DataFrame:
        """Return the newest row of each key, without keys that have no state any more."""
        columns = [key_column(name) for name in self.keys]
        stored = self.state.definition.get("schema")
        known = {field.name: field for field in T.StructType.fromJson(stored)} if isinstance(stored, dict) else {}
        # If an operator never stored anything, the types of the keys are not known.
        schema = T.StructType([*(known.get(name, T.StructField(name, T.StringType())) for name in columns), *VERSION_FIELDS])
        files = [file for file in self.state.files if file.part == self.part]
        rows = read_files(self.spark, self.store, files, schema) if files else no_rows(self.spark, schema)
        others = [F.expr(f"max_by({name}, {EPOCH}) AS {name}") for name in (STATE, DUE, TIMER, OLDEST)]
        newest = rows.groupBy(*map(quoted, columns)).agg(*others).where(f"{STATE} IS NOT NULL")
        renamed = (F.col(quoted(column)).alias(name) for column, name in zip(columns, self.keys, strict=True))
        return newest.select(*renamed, STATE, DUE, TIMER, OLDEST)


def _instant(milliseconds: str) -> str:
    """Return the SQL of an instant, null for the greatest time, which means none."""
    return f"CASE WHEN {milliseconds} <= {min(_LAST_INSTANT, MAX_WATERMARK)}L THEN timestamp_millis({milliseconds}) END"
