"""Writes a new savepoint: from nothing, or from another one with operators changed, added, renamed or removed.

It is written into a folder in the form of an exported savepoint: import it into a job store, and restore a job from it. The savepoint
that it is made from is never changed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.errors import DefinitionError, UserCodeError
from tidemark.graph.job.code_version import code_version
from tidemark.graph.job.job import Job
from tidemark.graph.model.nodes import StatefulNode
from tidemark.graph.operators.changes import entries
from tidemark.graph.operators.keyed_process.state_columns import renewed_column, value_column
from tidemark.graph.operators.registry import encode, keeps_state
from tidemark.graph.operators.state_names import ELEMENT_ORDER, element_name, key_column
from tidemark.names import validate_name
from tidemark.savepoints.export.export_format import ExportedFile, copy_all, read_index
from tidemark.savepoints.export.exporting import finish_export
from tidemark.savepoints.model.savepoint import info_of
from tidemark.savepoints.model.stored_types import stored_columns
from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK
from tidemark.spark.columns.error_text import first_line
from tidemark.spark.columns.expressions import META, quoted
from tidemark.spark.operators.aligned.sliced import PREFIX, SUFFIX
from tidemark.spark.operators.base.contract import OperatorContext, PortInput, rows_of
from tidemark.spark.operators.keyed_process.broadcast import PART as BROADCAST
from tidemark.spark.operators.keyed_process.runtime import TIMERS_SET
from tidemark.spark.operators.registry.runtimes import runtime_of
from tidemark.spark.state_api.histories import histories_of
from tidemark.spark.state_api.rewriting import WITH_PARTIALS, Rewriting, depends_on_columns
from tidemark.spark.state_api.schema_probe import probe_inputs
from tidemark.spark.state_api.state_processor import StoredState
from tidemark.state.gc.state_file_check import owner_store
from tidemark.state.log.progress import PROCESS_FUNCTIONS, EpochProgress
from tidemark.state.log.records import EpochRecord, OperatorState, StateFile
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NEW_EPOCH = 0


def new_savepoint(folder: str, job: Job, *, spark: SparkSession, clock: Clock = SYSTEM_CLOCK) -> SavepointWriter:
    """Begin a savepoint without any state; a job that is restored from it reads its sources from their beginning.

    Args:
        folder: of the new savepoint; an empty folder, local or of an object store.
        job: that will be restored from it.
        spark: the session to write with.
        clock: for the savepoint's time.

    Raises:
        DefinitionError: the folder is not empty.
    """
    lineage = secrets.token_hex(8)
    now = clock.now_ms()
    progress = EpochProgress(job.name, lineage, _NEW_EPOCH, now, 0, rows_in=0, rows_out=0)
    record = EpochRecord(job.name, lineage, None, 0, _NEW_EPOCH, now, "", progress, code_version=code_version(job))
    return SavepointWriter(_empty_folder(folder), record, None, spark=spark, clock=clock)


def changed_savepoint(folder: str, stored: StoredState, *, spark: SparkSession, clock: Clock = SYSTEM_CLOCK) -> SavepointWriter:
    """Begin a savepoint as a copy of another one, or of the newest epoch of a job; positions stay as they are.

    Args:
        folder: of the new savepoint; an empty folder, local or of an object store.
        stored: the result of ``tm.savepoint``.
        spark: the session to write with.
        clock: for the savepoint's time.

    Raises:
        DefinitionError: the folder is not empty.
    """
    return SavepointWriter(_empty_folder(folder), stored.record, stored.store, spark=spark, clock=clock)


class SavepointWriter:
    """Changes a savepoint before it is written; ``write`` finishes it. Each other method returns the writer.

    Args:
        target: the folder.
        record: of the epoch that the savepoint is made from.
        store: the store at the folder of the job that has its files; None where there are none.
        spark: the session to write with.
        clock: for the savepoint's time.
    """

    def __init__(self, target: JobStore, record: EpochRecord, store: JobStore | None, *, spark: SparkSession, clock: Clock) -> None:
        self._target = target
        self._record = record
        self._store = store
        self._spark = spark
        self._clock = clock
        self._operators = {uid: _Operator(state, store) for uid, state in record.operators.items()}

    def bootstrap(
        self, job: Job, uid: str, history: DataFrame | Mapping[str, DataFrame], *, time: str, watermark: int = MIN_WATERMARK
    ) -> SavepointWriter:
        """Create the state that an operator would have after a history, as after one epoch of it.

        Windows that the watermark has passed count as fired, and so do timers: their results, and what functions emit for the history, are
        assumed to exist. Windows that may still change, or have not fired, are kept, as are the states of functions.

        Args:
            job: has the operator.
            uid: of the operator, which has no state yet.
            history: rows with the columns of the operator's input; of an input that is a changelog its content, one row for each key. Of
                an operator with several inputs, rows by the name of the input, such as ``first`` and ``second`` of connected streams,
                ``elements`` and ``broadcast``, ``left`` and ``right`` of a join.
            time: SQL of a row's event time: a TIMESTAMP, or a BIGINT of milliseconds.
            watermark: the operator's after the history, milliseconds. By default the least: nothing has fired.

        Raises:
            DefinitionError: the job has no such operator, or one of several inputs; or the savepoint has state of it already; or the
                history lacks a column, or has a key of a changelog twice.
        """
        node = _node(job, uid)
        if uid in self._operators:
            raise DefinitionError(f"there is state of {uid!r} already", fix=f"remove it first: .remove({uid!r})", uid=uid)
        inputs = probe_inputs(self._spark, job, self._target)[uid].rows
        given = histories_of(node, history, {port: rows.schema for port, rows in inputs.items()}, time)
        definition = encode(node)
        context = OperatorContext(
            self._spark, self._target, uid, OperatorState(definition), definition, self._record.epoch, self._record.processing_time
        )
        run = runtime_of(node).begin(context)
        run.process_batch({port: _port(rows) for port, rows in given.items()})
        observation = Observation()
        results = run.emit(run.watermark_of(watermark), observation)
        if results is not None:
            rows_of(results, observation).write.format("noop").mode("overwrite").save()
            run.emitted(observation)
        compaction = run.compact()
        if compaction is not None:
            compaction()
        self._operators[uid] = _Operator(run.snapshot(), self._target)
        return self

    def filter(self, uid: str, condition: str) -> SavepointWriter:
        """Keep the keys of an operator for which a condition is true; the state of other keys is dropped.

        Args:
            uid: of the operator.
            condition: SQL over its keys.

        Raises:
            DefinitionError: there is no state of such an operator, or the condition is not valid over its keys.
        """
        held = self._held(uid)
        names = {key_column(key): key for key in _keys_of(held.state)}

        def kept(rows: DataFrame) -> DataFrame:
            stored = F.struct(*(F.col(quoted(name)) for name in rows.columns)).alias(META)
            shown = rows.select(*(F.col(quoted(column)).alias(key) for column, key in names.items()), stored)
            try:
                return shown.where(condition).select(f"{META}.*")
            except PySparkException as error:
                raise DefinitionError(
                    f"the condition {condition!r} cannot be used: {first_line(error)}",
                    fix=f"write SQL over the keys of {uid!r}: {', '.join(names.values()) or 'there are none'}",
                    uid=uid,
                ) from error

        # A broadcast map has entries for all keys.
        self._rewrite(uid, kept, {file.part for file in held.state.files} - {BROADCAST})
        self._count_keys(uid)
        return self

    def _count_keys(self, uid: str) -> None:
        """Count the keys and timers that a process function still has."""
        held = self._held(uid)
        if held.state.definition.get("kind") not in PROCESS_FUNCTIONS:
            return
        record = replace(self._record, operators={uid: held.state})
        tables = StoredState(held.store or self._target, record).tables(uid, self._spark)
        counted = {"keys": tables["keys"].count(), TIMERS_SET: tables["timers"].count()}
        self._operators[uid] = replace(held, state=replace(held.state, counters={**held.state.counters, **counted}))

    def map(self, uid: str, function: Callable[[DataFrame], DataFrame]) -> SavepointWriter:
        """Change the partials of an operator's windows, or its elements, row by row; rows of partials may also be left out.

        Args:
            uid: of the operator.
            function: gets a DataFrame with the keys, which it must not change, the partials as ``<aggregate>__<partial>`` or the
                columns of elements, and the column ``__tm_meta``, which it must keep. A row is what one epoch added to a key and window,
                so a window's partials may be in several rows; a row of sessions is a session after an epoch, and its older rows may
                still exist. A row of a process function is a key with its states (``<state>__value``) after an epoch, and the times from
                which their lifetimes count (``<state>__renewed``); those of a list that has not as many values begin again.

        Raises:
            DefinitionError: there is no state of such an operator.
            UserCodeError: the function failed, lost a column, or gave one another type.
            CorruptStoreError: it returned more rows, or left elements out, whose number is stored with each window, or keys of a process
                function, whose older rows would count again: use ``filter``.
        """
        definition = self._held(uid).state.definition
        keys = {key_column(key): key for key in _keys_of(self._held(uid).state)}

        def mapped(rows: DataFrame) -> DataFrame:
            fields = {field.name: field for field in rows.schema}
            shown = {name: element_name(name) or name for name in rows.columns if not name.startswith("__tm_") and name not in keys}
            hidden = [name for name in rows.columns if name not in shown]
            given = rows.select(
                *(F.col(quoted(column)).alias(key) for column, key in keys.items() if key not in shown.values()),
                *(F.col(quoted(column)).alias(name) for column, name in shown.items()),
                F.struct(*(F.col(quoted(name)) for name in hidden)).alias(META),
            )
            try:
                after = function(given)
            except Exception as error:
                what = f"the function failed: {type(error).__name__}: {first_line(error)}"
                raise UserCodeError(what, fix="correct it; nothing was changed", uid=uid) from error
            lost = [name for name in (*shown.values(), META) if name not in after.columns]
            if lost:
                raise UserCodeError(f"the function lost the column {lost[0]!r} of the state", fix="keep every column", uid=uid)
            for column, name in shown.items():
                kind, wanted = after.schema[name].dataType, fields[column].dataType
                if kind.simpleString() != wanted.simpleString():
                    raise UserCodeError(
                        f"the function made {name!r} a {kind.simpleString()}, and it is a {wanted.simpleString()}",
                        fix="cast it back to its type",
                        uid=uid,
                    )
            return _with_fitting_times(after, definition).select(
                *(F.col(quoted(name)).alias(column) for column, name in shown.items()),
                *(F.col(f"{META}.{quoted(name)}").alias(name) for name in hidden),
            )

        all_rows = ELEMENT_ORDER in stored_columns(definition.get("schema")) or definition.get("kind") in PROCESS_FUNCTIONS
        return self._rewrite(uid, mapped, WITH_PARTIALS, fewer=not all_rows)

    def remove(self, uid: str) -> SavepointWriter:
        """Remove the state of an operator.

        Raises:
            DefinitionError: there is no state of such an operator.
        """
        self._held(uid)
        del self._operators[uid]
        return self

    def rename(self, uid: str, new: str) -> SavepointWriter:
        """Give the state of an operator to another uid.

        Raises:
            DefinitionError: there is no state of such an operator, or there is state of the other one.
        """
        held = self._held(uid)
        if new in self._operators:
            raise DefinitionError(f"there is state of {new!r} already", fix="remove or rename that first", uid=new)
        self._operators[validate_name("uid", new)] = held
        del self._operators[uid]
        return self

    def write(self, name: str = "made") -> str:
        """Finish the savepoint and return its folder, which is not a savepoint before that.

        Args:
            name: of the savepoint.
        """
        validate_name("savepoint", name)
        copies: dict[tuple[str, str], tuple[JobStore, str, ExportedFile]] = {}
        operators = {}
        for uid, held in self._operators.items():
            files = [self._placed(file, held.store, copies) for file in held.state.files]
            operators[uid] = replace(held.state, files=tuple(files))
        logs = [file for log in self._record.source_logs.values() for file in log.files]
        if self._store is not None:
            copies |= {("", file.path): (self._store, file.path, ExportedFile(file.path, file.bytes, file.sha256)) for file in logs}
        copy_all(list(copies.values()), self._target, done=lambda _: None)
        record = replace(self._record, operators=operators, outputs={}, restored=None)
        finish_export(self._target, record, info_of(record), job=record.job, name=name, at=self._clock.now_ms())
        return str(self._target.location)

    def _placed(
        self, file: StateFile, store: JobStore | None, copies: dict[tuple[str, str], tuple[JobStore, str, ExportedFile]]
    ) -> StateFile:
        """Return a file as the savepoint names it; note that it has to be copied if it is in another store."""
        if store is None or store is self._target:
            return file
        # Files of two jobs may have one path.
        path = f"state/of-{file.owner}/{file.path.partition('/')[2]}" if file.owner else file.path
        copies[file.owner, file.path] = (owner_store(store, file), file.path, ExportedFile(path, file.bytes, ""))
        return replace(file, path=path, owner="")

    def _held(self, uid: str) -> _Operator:
        held = self._operators.get(uid)
        if held is None:
            known = ", ".join(sorted(self._operators)) or "none"
            raise DefinitionError(f"there is no state of {uid!r}", fix=f"name one of those there are: {known}", uid=uid)
        return held

    def _rewrite(
        self, uid: str, change: Callable[[DataFrame], DataFrame], parts: Collection[str], *, fewer: bool = True
    ) -> SavepointWriter:
        held = self._held(uid)
        store = held.store or self._target
        writer = Rewriting(self._spark, store, self._target, uid, self._record.epoch)
        # Prefixes and suffixes are computed from slices, and can be computed again.
        kept = [file for file in held.state.files if file.part not in {PREFIX, SUFFIX}]
        files: list[StateFile] = []
        for part in dict.fromkeys(file.part for file in kept):
            mine = [file for file in kept if file.part == part]
            files += writer.written(mine, change if part in parts else lambda rows: rows, fewer=fewer and part in parts)
        counters = {name: number for name, number in held.state.counters.items() if not depends_on_columns(name)}
        self._operators[uid] = _Operator(replace(held.state, files=tuple(files), counters=counters), self._target)
        return self


@dataclass(frozen=True)
class _Operator:
    """The state of an operator, and the store at the folder of its files."""

    state: OperatorState
    store: JobStore | None


def _port(rows: DataFrame) -> PortInput:
    return PortInput(lambda _: (rows, ()))


def _with_fitting_times(rows: DataFrame, definition: Mapping[str, object]) -> DataFrame:
    """Return rows of keys in which each list has a time for each of its values, or none: then all of them begin their lifetimes."""
    for state, entry in entries(definition, "states").items():
        times, values = renewed_column(state), value_column(state)
        if entry.get("kind") == "list" and times in rows.columns:
            same = f"size({quoted(times)}) = size({quoted(values)})"
            rows = rows.withColumn(times, F.expr(f"if({same}, {quoted(times)}, NULL)"))
    return rows


def _keys_of(state: OperatorState) -> list[str]:
    entries = state.definition.get("keys")
    return [str(entry["name"]) for entry in entries] if isinstance(entries, list) else []


def _node(job: Job, uid: str) -> StatefulNode:
    nodes = {node.uid: node for node in job.nodes if isinstance(node, StatefulNode) and node.uid and keeps_state(node)}
    if uid not in nodes:
        what = f"the job has no operator {uid!r} that keeps state"
        raise DefinitionError(what, fix=f"name one that it has: {', '.join(nodes) or 'none'}", job=job.name)
    return nodes[uid]


def _empty_folder(folder: str) -> JobStore:
    target = JobStore.open(folder)
    if read_index(target) is not None or target.list():
        raise DefinitionError(f"the folder {target.location} is not empty", fix="choose an empty folder for the savepoint")
    return target
