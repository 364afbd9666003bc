"""The rows of a changelog as they are staged: for a history, for an upsert with deletes, or as versions that are valid for a time.

Deleted rows are staged in files of their own, which are never added to a table: they say which of its rows to remove, or to end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Observation, Window
from pyspark.sql import functions as F

from tidemark.errors import ConservationError
from tidemark.graph.model.nodes import VALID_FROM, VALID_TO
from tidemark.semantics.changelog.row_kinds import RowKind
from tidemark.spark.columns.changes import AFTER, BEFORE, COUNT, as_changes, differ, history, paired
from tidemark.spark.columns.expressions import CHANGE, POSITION, TIME, quoted, visible_of
from tidemark.spark.prepared.runtime_literals import runtime_literals
from tidemark.state.log.parquet_files import ParquetSummary
from tidemark.state.log.records import OutputRecord, StagedFile

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DELETED: Final = "__tm_deleted"
"""The column by which rows are staged in folders of their own: whether their keys are gone."""

_GIVEN: Final = "given"
_NTH: Final = "__tm_nth"
_DIFFERS: Final = "__tm_differs"

OPERATIONS: Final[Mapping[str, RowKind]] = {"insert": RowKind.INSERT, "update": RowKind.UPDATE_AFTER, "delete": RowKind.DELETE}
"""What is counted of an epoch's changes, by name."""


@dataclass(frozen=True)
class Changes:
    """A changelog that goes to a sink: the columns of its key, and whether an epoch's changes are net already."""

    keys: tuple[str, ...]
    net: bool


@dataclass(frozen=True)
class StagedChanges:
    """The rows of an epoch to stage, and the observation of its changes, whose values are known once the rows were written.

    ``apart`` are the columns by which they are written into folders of their own.
    """

    rows: DataFrame
    observation: Observation
    apart: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of net changes by operation."""
        return ObservedChanges(self.observation.get).counts

    def emitted(self, files: Iterable[ParquetSummary], output: str) -> int:
        """Return the number of rows that the output was given, as ``ObservedChanges.emitted`` does."""
        return ObservedChanges(self.observation.get).emitted(files, output)


@dataclass(frozen=True)
class ObservedChanges:
    """What was observed of an epoch's changes while they were staged."""

    found: Mapping[str, Any]

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of net changes by operation."""
        return {name: int(self.found[name] or 0) for name in OPERATIONS}

    def emitted(self, files: Iterable[ParquetSummary], output: str) -> int:
        """Return the number of rows that the output was given.

        Raises:
            ConservationError: the files do not have a row for each net change.
        """
        written, changes = sum(file.rows for file in files), sum(self.counts.values())
        if written != changes:
            raise ConservationError(
                f"{changes} changes were to be staged and {written} are in the files",
                fix="if an expression or function gives other results when it is run twice, make it deterministic; else report this",
                uid=output,
            )
        return int(self.found["emitted"] or 0)


def staged_history(rows: DataFrame, changes: Changes, epoch: int) -> StagedChanges:
    """Return the changes as a history, with the operation and the epoch."""
    net, observation = _net(rows, changes)
    # As a plain number it would have the pass compiled again in each epoch.
    number = runtime_literals(epoch, varying=f"coalesce({TIME}, 0L)")[0] if TIME in net.columns else f"{epoch}L"
    return StagedChanges(history(net, F.expr(number)), observation)


def staged_upsert(rows: DataFrame, changes: Changes) -> StagedChanges:
    """Return rows that are there after the epoch, and apart those that are gone."""
    net, observation = _net(rows, changes)
    return StagedChanges(_after(net), observation, (DELETED,))


def staged_versions(
    rows: DataFrame, changes: Changes | None, keys: Sequence[str], sequence: str | None, processing_time: int
) -> StagedChanges:
    """Return versions of rows with the time from which each is valid, and apart deleted rows with the time of that.

    Args:
        rows: of a changelog, or of a stream whose rows are versions.
        changes: how the rows of a changelog are identified.
        keys: of the table's rows.
        sequence: the column with the time from which a row is valid; the epoch's time by default.
        processing_time: of the epoch, milliseconds.
    """
    if changes is None:
        observation = Observation()
        # Of versions that begin at one time the last one is kept, by event time and source position.
        order = [F.col(name).desc_nulls_last() for name in (TIME, POSITION) if name in rows.columns]
        first = Window.partitionBy(*map(quoted, keys), quoted(sequence or "")).orderBy(*order)
        counted = [F.expr("count(1) AS emitted"), F.expr(f"count_if({_NTH} = 1) AS insert"), F.expr("0L AS update"), F.expr("0L AS delete")]
        numbered = rows.withColumn(_NTH, F.row_number().over(first)).observe(observation, *counted)
        after = numbered.where(f"{_NTH} = 1").select(*_visible(rows), F.lit(False).alias(DELETED))
    else:
        net, observation = _net(rows, changes)
        after = _after(net)
    now = f"timestamp_millis({processing_time}L)"
    since = now if sequence is None else f"if({DELETED}, {now}, {_required(sequence)})"
    ends = "CAST(NULL AS TIMESTAMP)"
    versions = after.selectExpr(*map(quoted, visible_of(after.columns)), f"{since} AS {VALID_FROM}", f"{ends} AS {VALID_TO}", DELETED)
    return StagedChanges(versions, observation, (DELETED,))


def is_deletion(file: StagedFile) -> bool:
    """Return whether a staged file has rows whose keys are gone."""
    return f"/{DELETED}=true/" in file.path


def _after(net: DataFrame) -> DataFrame:
    """Return the newest row of each key that changed."""
    kept = net.where(f"{CHANGE} <> {int(RowKind.UPDATE_BEFORE)}")
    return kept.select(*_visible(net), (F.col(CHANGE) == int(RowKind.DELETE)).alias(DELETED))


def _visible(rows: DataFrame) -> list[Column]:
    return [F.col(quoted(name)) for name in visible_of(rows.columns)]


def _required(sequence: str) -> str:
    message = f"scd2: the column {sequence} says from when a row is valid, and is null"
    return f"coalesce(CAST({quoted(sequence)} AS TIMESTAMP), CAST(raise_error('{message}') AS TIMESTAMP))"


def _net(rows: DataFrame, changes: Changes) -> tuple[DataFrame, Observation]:
    """Return net changes, and the observation of their number and of that of the rows; made where no task's rows are read twice."""
    observation = Observation()
    if changes.net:
        kinds = {name: f"count_if({CHANGE} = {int(kind)})" for name, kind in OPERATIONS.items()}
        return rows.observe(observation, *_counts("count(1)", kinds)), observation
    return as_changes(observed_pairs(rows, changes.keys, observation)), observation


def observed_pairs(rows: DataFrame, keys: Sequence[str], observation: Observation) -> DataFrame:
    """Return the rows of a changelog as pairs: for each key that changes, its row before and after the epoch (``paired``).

    Args:
        rows: of the changelog in one epoch.
        keys: the columns of its key.
        observation: of the number of rows and of the changes by operation, as ``StagedChanges`` has it.
    """
    pairs = paired(rows, keys)
    differs = pairs.withColumn(_DIFFERS, F.expr(differ(pairs)))
    kinds = {
        "insert": f"count_if({BEFORE} IS NULL AND {_DIFFERS})",
        "update": f"count_if({BEFORE} IS NOT NULL AND {AFTER} IS NOT NULL AND {_DIFFERS})",
        "delete": f"count_if({AFTER} IS NULL AND {_DIFFERS})",
    }
    observed = differs.observe(observation, *_counts(f"sum({COUNT})", kinds))
    return observed.where(_DIFFERS)


def _counts(emitted: str, kinds: Mapping[str, str]) -> list[Column]:
    return [F.expr(f"{text} AS {name}") for name, text in {"emitted": emitted, **kinds}.items()]


def changes_options(given: int, counts: Mapping[str, int]) -> dict[str, str]:
    """Return the options of an output's record for the number of rows that it was given, and of its changes by operation."""
    return {_GIVEN: str(given), **{name: str(count) for name, count in counts.items()}}


def rows_given(record: OutputRecord) -> int:
    """Return how many rows an output was given; a changelog's are more than its changes, since an update has two."""
    return int(record.options.get(_GIVEN, record.rows))


def changes_of(record: OutputRecord) -> dict[str, int]:
    """Return the numbers of changes by operation; none for streams that are added to."""
    return {name: int(record.options[name]) for name in OPERATIONS if name in record.options}
