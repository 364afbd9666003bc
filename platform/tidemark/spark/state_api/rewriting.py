"""Rewrites state files, one table at a time: rows that one job wrote stay together, and keep their epoch."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.crashpoints import crash_point
from tidemark.errors import CorruptStoreError
from tidemark.graph.operators.state_names import ELEMENT_ORDER
from tidemark.spark.columns.expressions import START
from tidemark.spark.columns.state_files import write_folder
from tidemark.spark.operators.aligned.sliced import STACKS
from tidemark.spark.operators.aligned.two_stacks import END
from tidemark.spark.operators.base.tables import HASHING, MAIN, STATE_COMPRESSION
from tidemark.spark.operators.changelog.contents import STORED
from tidemark.spark.operators.count.counted_frames import NEWEST, UNTIL
from tidemark.spark.operators.group_aggregate.columns import EMITS
from tidemark.spark.operators.session.session_deferral import DEFERRED
from tidemark.state.gc.state_file_check import owner_store
from tidemark.state.log.records import StateFile
from tidemark.state.store.layout import state_folder
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP: Final = "__tm_group"
"""A column that rows have while they are rewritten: which of them stay together. Functions that change rows must keep it."""

WITH_PARTIALS: Final = frozenset({MAIN, DEFERRED})
"""Tables whose rows have partials or elements; others have keys, and their further columns are never read again."""


def depends_on_columns(counter: str) -> bool:
    """Return whether a counter of an operator says what was computed from columns of its state, which other columns may not give."""
    return counter in STACKS or counter.startswith(HASHING)


@dataclass(frozen=True)
class Rewriting:
    """Rewrites tables of one operator.

    Args:
        spark: the session.
        store: of the files: the store at the folder of the job whose record names them.
        target: of the new files: the same, or the folder of a savepoint that is being written.
        uid: the operator's new one.
        epoch: in which they are written.
    """

    spark: SparkSession
    store: JobStore
    target: JobStore
    uid: str
    epoch: int

    def columns(self, files: Sequence[StateFile]) -> list[str]:
        """Return all columns that any of a table's files has."""
        return list(dict.fromkeys(name for group in _groups(files) for name in self._read(group).columns))

    def written(self, files: Sequence[StateFile], change: Callable[[DataFrame], DataFrame], *, fewer: bool = False) -> list[StateFile]:
        """Write changed rows of a table and return the new files; one Spark job.

        Args:
            files: of one table.
            change: returns the new rows, with ``GROUP`` and the engine's own columns unchanged.
            fewer: whether ``change`` may leave rows out.

        Raises:
            CorruptStoreError: the number of rows changed, or a file does not hold the recorded ones.
        """
        if not files:
            return []
        held = _groups(files)
        frames = [self._read(group).withColumn(GROUP, F.lit(number)) for number, group in enumerate(held)]
        changed = change(reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames))
        folder = f"{state_folder(self.uid)}/{self.epoch:012d}-{uuid.uuid4().hex[:12]}"
        written = write_folder(
            changed.coalesce(max(1, self.spark.sparkContext.defaultParallelism)),
            self.target,
            folder,
            compression=STATE_COMPRESSION,
            time_column=_time_of(changed.columns),
            apart=[GROUP],
        )
        crash_point("state-staged")
        made: list[list[StateFile]] = [[] for _ in held]
        for summary in written:
            number = int(summary.path.removeprefix(f"{folder}/{GROUP}=").partition("/")[0])
            made[number].append(replace(summary.as_state_file(held[number][0].epoch), part=held[number][0].part))
        for before, after in zip(held, made, strict=True):
            self._require_rows(before, after, fewer=fewer)
        return [file for group in made for file in group]

    def _read(self, files: Sequence[StateFile]) -> DataFrame:
        reader = self.spark.read.options(mergeSchema="true").option("parquet.page.verify-checksum.enabled", "true")
        rows = reader.parquet(*(owner_store(self.store, file).spark_uri(file.path) for file in files))
        # What rows were before an epoch is only for that epoch.
        return rows.drop(STORED, EMITS)

    def _require_rows(self, before: Sequence[StateFile], after: Sequence[StateFile], *, fewer: bool) -> None:
        had, has = (sum(file.rows for file in files) for files in (before, after))
        if has == had or (fewer and has < had):
            return
        raise CorruptStoreError(
            f"{had:,} rows of state became {has:,}",
            fix="restore from another savepoint, or correct the function that changes the rows: it must return one row for each; "
            "nothing was changed",
            uid=self.uid,
            place=before[0].path,
        )


def _groups(files: Sequence[StateFile]) -> list[list[StateFile]]:
    """Return files by the Spark job that wrote them, identified by folder: in its files a key and window occurs once."""
    groups: dict[tuple[str, str, int], list[StateFile]] = {}
    for file in files:
        groups.setdefault((file.owner, file.path.rpartition("/")[0], file.epoch), []).append(file)
    return list(groups.values())


def _time_of(columns: Sequence[str]) -> str | None:
    """Return the time column whose bounds are recorded for files with these columns, None for none."""
    if UNTIL in columns:
        return NEWEST
    if END in columns and ELEMENT_ORDER not in columns:
        return END
    return START if START in columns else None
