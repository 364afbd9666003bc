"""Reads a savepoint, or the newest epoch of a job, as tables: each operator's state, by key and window.

State is read as it was committed, with the rules of the operators that wrote it, and never changed. No code of the job runs, unless the
job is passed: then its Python functions merge and finish their partial results.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from tidemark.errors import DefinitionError, StateMismatchError
from tidemark.graph.job.job import Job
from tidemark.graph.model.nodes import StatefulNode
from tidemark.graph.operators.registry import definition_changes, encode, kind_of_definition
from tidemark.graph.operators.state_names import FUNCTION_PART
from tidemark.graph.operators.window.definition_decoder import functions_of
from tidemark.graph.operators.window.node import WindowNode
from tidemark.savepoints.compatibility.checking import HEAD, stored_epoch
from tidemark.savepoints.export.export_format import read_record, require_index
from tidemark.semantics.watermarks.source_state import SourceState
from tidemark.semantics.windows.assigners import CountWindows
from tidemark.spark.columns.aggregate_functions import register_functions
from tidemark.spark.columns.error_text import first_line
from tidemark.spark.columns.expressions import POSITION, START, TIME, quoted
from tidemark.spark.columns.schemas import no_rows, nullable
from tidemark.spark.operators.base.contract import OperatorContext, OperatorEpoch
from tidemark.spark.operators.base.partials import Partials
from tidemark.spark.operators.base.windows import WindowEpoch
from tidemark.spark.operators.process.buffered import KEYS, BufferedEpoch
from tidemark.spark.operators.registry.runtimes import runtime_of
from tidemark.spark.operators.window.open_windows import open_windows
from tidemark.spark.state_api.stored_keys import StoredKeys
from tidemark.spark.state_api.stored_operators import StoredOperator, described
from tidemark.state.log.offset_log import positions
from tidemark.state.log.records import EpochRecord, OperatorState
from tidemark.state.store.layout import job_folder
from tidemark.state.store.root_store import root_store
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NO_IDENTIFIER = re.compile(r"\W+")


def savepoint(job: str | Job, name: str = HEAD, *, store: str | JobStore | None = None) -> StoredState:
    """Open a savepoint for reading; starts no JVM.

    Args:
        job: the job, or its name; or the folder of an exported savepoint, recognized by a ``/``. Pass the job to read state that its
            Python functions merge.
        name: of the savepoint; by default the newest epoch.
        store: root of the job store.

    Raises:
        UnknownJobError: the store has no such job.
        UnknownSavepointError: it has no such savepoint.
        CorruptStoreError: the folder is no exported savepoint, or is damaged.
    """
    if isinstance(job, str) and "/" in job:
        folder = JobStore.open(job, make=False)
        return StoredState(folder, read_record(folder, require_index(folder)))
    declared = job if isinstance(job, Job) else None
    root = root_store(store, declared.store if declared is not None else None, make=False)
    called = declared.name if declared is not None else str(job)
    return StoredState(root.at(job_folder(called)), stored_epoch(root, called, name), declared)


class StoredState:
    """State and source positions after one epoch.

    Args:
        store: the store at the job's folder.
        record: the epoch.
        job: the job, where its functions are needed.

    Attributes:
        store: as given.
        record: as given.
    """

    def __init__(self, store: JobStore, record: EpochRecord, job: Job | None = None) -> None:
        self.store = store
        self.record = record
        self._job = job

    @property
    def job(self) -> str:
        """The job's name."""
        return self.record.job

    @property
    def epoch(self) -> int:
        """The epoch's number."""
        return self.record.epoch

    @property
    def lineage(self) -> str:
        """The lineage of that epoch."""
        return self.record.lineage

    @property
    def processing_time(self) -> int:
        """The processing time of that epoch, milliseconds."""
        return self.record.processing_time

    @property
    def offsets(self) -> Mapping[str, object]:
        """The offsets up to which each source was read, in the source's own form."""
        return positions(self.record.offsets)

    @property
    def sources(self) -> Mapping[str, SourceState]:
        """Each source's event-time state, by split."""
        return self.record.sources

    @property
    def watermarks(self) -> Mapping[str, int]:
        """The watermark of each operator by uid, milliseconds."""
        return {uid: state.watermark for uid, state in self.record.operators.items()}

    @cached_property
    def operators(self) -> Mapping[str, StoredOperator]:
        """A summary of each operator's state, by uid."""
        return {uid: described(uid, state) for uid, state in self.record.operators.items()}

    def operator(self, uid: str) -> StoredOperator:
        """Return the summary of one operator's state.

        Raises:
            StateMismatchError: there is no such operator.
        """
        self._state(uid)
        return self.operators[uid]

    def read_window(self, uid: str, spark: SparkSession) -> DataFrame:
        """Return a row per key and window that still takes elements.

        Columns: the keys; ``window_start`` and ``window_end`` (null where windows have no bounds); each aggregate's result so far; its
        partials as ``<aggregate>__<partial>``. A row of count windows is a slice of groups, from ``first_element`` on. Where elements are
        kept instead, there are counts: ``held`` elements and emitted ``panes``.

        Raises:
            StateMismatchError: there is no such operator, or only the job's Python functions can merge its state.
        """
        state = self._require_windows(uid)
        if self.operators[uid].keeps == "elements":
            return self._keys(uid, spark, KEYS).windows()
        node = self._window(uid)
        functions = functions_of(state.definition)
        if functions and not (self._job is not None and any(each is node for each in self._job.nodes)):
            raise StateMismatchError(
                f"only the job's Python functions can merge the state of {', '.join(functions)}",
                fix="pass the job with this operator: tm.savepoint(job, ...)",
                job=self.job,
                uid=uid,
            )
        register_functions(spark, [node])
        partials = Partials(node)
        run = self._run(uid, spark)
        found = open_windows(run) if isinstance(run, WindowEpoch) else None
        if found is None:
            return _no_windows(spark, node, state)
        return found.rows.selectExpr(
            *partials.key_results,
            f"{found.start} AS window_start",
            f"{found.end} AS window_end",
            *found.more,
            *partials.results,
            *map(quoted, partials.columns),
        )

    def tables(self, uid: str, spark: SparkSession) -> Mapping[str, DataFrame]:
        """Return an operator's whole state as tables by name, the main one first.

        For windows: ``windows``, and where elements are kept ``elements``, ``keys`` and ``timers``, as the methods for these return
        them; for other operators see their pages. Empty for an operator that keeps no state.

        Raises:
            StateMismatchError: there is no such operator, or only the job's Python functions can merge what it keeps.
        """
        if self._state(uid).definition.get("kind") != WindowNode.KIND:
            return self._run(uid, spark).stored_tables()
        found = {"windows": self.read_window(uid, spark)}
        if self.operators[uid].keeps == "elements":
            elements = self._elements(uid, spark)
            found |= {} if elements is None else {"elements": elements}
            found |= {"keys": self.read_keyed(uid, spark), "timers": self.timers(uid, spark)}
        return found

    def read_elements(self, uid: str, spark: SparkSession) -> DataFrame:
        """Return the elements that windows hold, where an operator keeps elements.

        Columns: the stream's columns that are kept; also ``event_time`` and ``position`` in the source, unless one of them has that name.

        Raises:
            StateMismatchError: there is no such operator, or it keeps partial results.
        """
        self._require_windows(uid)
        if self.operators[uid].keeps != "elements":
            raise self._wrong(uid, "keeps partial results of its windows and no elements", f"read_window({uid!r}, spark)")
        found = self._elements(uid, spark)
        if found is None:
            raise self._wrong(uid, "never had an element, so the columns of elements are not known", f"read_window({uid!r}, spark)")
        return found

    def _elements(self, uid: str, spark: SparkSession) -> DataFrame | None:
        run = self._run(uid, spark)
        found = run.held_elements() if isinstance(run, BufferedEpoch) else None
        if found is None:
            return None
        rows, layout = found
        named = (f"{quoted(column)} AS {quoted(name)}" for name, column in layout.elements.items())
        event_columns = {"event_time": f"timestamp_millis({TIME if TIME in rows.columns else START})", "position": POSITION}
        more = (
            f"{sql} AS {name}"
            for name, sql in event_columns.items()
            if name not in layout.elements and (sql != POSITION or sql in rows.columns)
        )
        keys = (f"{quoted(column)} AS {quoted(name)}" for name, column in layout.keys.items() if name not in layout.elements)
        return rows.selectExpr(*keys, *named, *more)

    def read_keyed(self, uid: str, spark: SparkSession) -> DataFrame:
        """Return a row per key for which a process function or a buffering operator keeps state.

        Columns: the keys; ``function_state``, JSON of the window function's state of the key; ``state``, JSON of the key's state
        without the elements; ``due`` and ``due_processing_time``, when the key is processed even without elements.

        Raises:
            StateMismatchError: there is no such operator, or it keeps no state by key.
        """
        state = self._require_windows(uid)
        parts = {file.part for file in state.files}
        buffered = self.operators[uid].keeps == "elements"
        if not (buffered or FUNCTION_PART in parts or "function" in state.definition):
            raise self._wrong(uid, "keeps nothing by key but its windows", f"read_window({uid!r}, spark)")
        return self._keys(uid, spark, KEYS if buffered else FUNCTION_PART).newest()

    def timers(self, uid: str, spark: SparkSession) -> DataFrame:
        """Return a row per timer of each key.

        Columns: the keys; ``domain``, which is ``event`` or ``processing``. Of a process function ``due``, the timer's time, and its
        ``name``; of windows that keep elements the window, and ``at``, the timer's time.

        Raises:
            StateMismatchError: there is no such operator, or it has no timers: its windows fire by rules over their bounds.
        """
        if self._state(uid).definition.get("kind") != WindowNode.KIND:
            found = self.tables(uid, spark).get("timers")
            if found is None:
                raise self._wrong(uid, "has no timers", f"tables({uid!r}, spark)")
            return found
        if self.operators[uid].keeps != "elements":
            raise self._wrong(uid, "has no timers: its windows fire by rules over their bounds", f"read_window({uid!r}, spark)")
        return self._keys(uid, spark, KEYS).timers()

    def register(self, spark: SparkSession, prefix: str = "state_") -> dict[str, str]:
        """Create a temporary view of each operator's main table (see ``tables``), for SQL; return the views' names by uid.

        Operators that keep no state have none.

        Raises:
            StateMismatchError: two uids would have a view of the same name.
        """
        names: dict[str, str] = {}
        for uid in (uid for uid, operator in self.operators.items() if operator.keeps != "nothing"):
            name = f"{prefix}{_NO_IDENTIFIER.sub('_', uid)}"
            if name in names.values():
                raise self._wrong(uid, f"would have a view {name!r}, as another operator has", "views of your own: read_window(...)")
            next(iter(self.tables(uid, spark).values())).createOrReplaceTempView(name)
            names[uid] = name
        return names

    def _require_windows(self, uid: str) -> OperatorState:
        """Return the state of an operator that has windows.

        Raises:
            StateMismatchError: it has no windows.
        """
        state = self._state(uid)
        if state.definition.get("kind") != WindowNode.KIND:
            raise self._wrong(uid, f"is a {state.definition.get('kind')} operator, and has no windows", f"tables({uid!r}, spark)")
        return state

    def _state(self, uid: str) -> OperatorState:
        state = self.record.operators.get(uid)
        if state is None:
            known = sorted(self.record.operators)
            near = difflib.get_close_matches(uid, known, n=1)
            fix = f"write {near[0]!r}" if near else f"name one of those there are: {', '.join(known) or 'none'}"
            raise StateMismatchError(f"there is no state of {uid!r}", fix=fix, job=self.job, uid=uid)
        return state

    def _window(self, uid: str) -> WindowNode:
        node = self._node(uid)
        if not isinstance(node, WindowNode):
            raise TypeError(type(node).__name__)
        return node

    def _node(self, uid: str) -> StatefulNode:
        """Return the operator that wrote the state: the job's own, if that is unchanged, else one made from the stored definition.

        Raises:
            StateMismatchError: the job's own has changed, and the functions that merge the state are not stored.
        """
        nodes = {node.uid: node for node in self._job.nodes if isinstance(node, StatefulNode)} if self._job is not None else {}
        definition = self._state(uid).definition
        if uid in nodes:
            old = {key: value for key, value in definition.items() if key != "schema"}
            changes = [change.what for change in definition_changes(old, encode(nodes[uid])) if change.effect != "none"]
            if not changes:
                return nodes[uid]
            if functions_of(definition):
                raise StateMismatchError(
                    f"the state of {uid!r} was written by other code than the job's: {'; '.join(changes)}",
                    fix="pass the job as it was when the savepoint was taken",
                    job=self.job,
                    uid=uid,
                    epoch=self.epoch,
                )
        node: StatefulNode = kind_of_definition(definition, uid).decode(definition, uid)
        return node

    def _run(self, uid: str, spark: SparkSession) -> OperatorEpoch:
        """Return the operator in the next epoch, before it has processed anything."""
        state = self._state(uid)
        kept = tuple(file for file in state.files if file.part != FUNCTION_PART)
        # The state of a function after aggregates is read separately; a function that gets elements is part of their operator.
        node = self._node(uid)
        node = dataclasses.replace(node, function=None) if isinstance(node, WindowNode) and node.aggregates else node
        context = OperatorContext(
            spark,
            self.store,
            uid,
            dataclasses.replace(state, files=kept),
            state.definition,
            self.epoch + 1,
            self.record.processing_time,
        )
        return runtime_of(node).begin(context)

    def _keys(self, uid: str, spark: SparkSession, part: str) -> StoredKeys:
        state = self._state(uid)
        names = [str(name) for name in self.operators[uid].keys]
        return StoredKeys(spark, self.store, state, part, names)

    def _wrong(self, uid: str, what: str, instead: str) -> StateMismatchError:
        return StateMismatchError(f"the operator {uid!r} {what}", fix=f"use {instead}", job=self.job, uid=uid, epoch=self.epoch)


def first_rows(rows: DataFrame, *, where: str | None = None, limit: int = 20) -> list[dict[str, object]]:
    """Return a few rows as Python values; instants have the time zone UTC, and maps are dicts where Python can look up their keys.

    Raises:
        DefinitionError: the condition is not valid over these columns.
    """
    try:
        chosen = rows if where is None else rows.where(where)
    except PySparkException as error:
        raise DefinitionError(
            f"the condition {where!r} cannot be used: {first_line(error)}",
            fix=f"write SQL over the columns {', '.join(rows.columns)}",
        ) from error
    table = chosen.limit(limit).toArrow()
    found: list[dict[str, object]]
    try:
        found = table.to_pylist(maps_as_pydicts="strict")
    except (TypeError, KeyError):
        # A key is a struct or a list.
        found = table.to_pylist()
    return found


def _no_windows(spark: SparkSession, node: WindowNode, state: OperatorState) -> DataFrame:
    """Return an empty frame with the columns of windows, as far as they are stored."""
    stored = state.definition.get("schema")
    fields = {field.name: field for field in StructType.fromJson(stored)} if isinstance(stored, dict) else {}
    partials = Partials(node)
    shown = {key: name for key, (name, _) in zip(partials.keys, node.keys, strict=True)}
    keys = [StructField(shown[key], fields[key].dataType) for key in partials.keys if key in fields]
    bounds = [StructField(name, TimestampType()) for name in ("window_start", "window_end")]
    more = [StructField("first_element", LongType())] if isinstance(node.assigner, CountWindows) else []
    if not all(name in fields for name in partials.columns):
        return no_rows(spark, StructType([*keys, *bounds, *more]))
    made = no_rows(spark, nullable(StructType([*keys, *bounds, *more, *(fields[name] for name in partials.columns)])))
    return made.selectExpr(*(quoted(field.name) for field in (*keys, *bounds, *more)), *partials.results, *map(quoted, partials.columns))
