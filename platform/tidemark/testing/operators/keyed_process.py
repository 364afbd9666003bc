"""Keyed process functions in plain Python: the walk that the engine's tasks make."""

from __future__ import annotations

import copy
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemark.errors import StateMismatchError, TidemarkError, UserCodeError
from tidemark.graph.checks.schema_inference import schema_of
from tidemark.graph.operators.emitting import FAILED, emitted_counter
from tidemark.graph.operators.keyed_process.descriptors import StateDescriptor
from tidemark.graph.operators.keyed_process.function import BoundFunction
from tidemark.graph.operators.keyed_process.node import BroadcastProcessNode, KeyedProcessNode
from tidemark.semantics.closing import closing
from tidemark.semantics.keyed_process.batch_walk import BatchWalk
from tidemark.semantics.keyed_process.broadcast_maps import NO_MAPS
from tidemark.semantics.keyed_process.declarations import StateDeclaration, StateTtl
from tidemark.semantics.keyed_process.element_batches import ElementBatch
from tidemark.semantics.keyed_process.key_record import KeyRecord, Stored, as_declared
from tidemark.semantics.keyed_process.states import STATES, begin_lifetimes
from tidemark.semantics.keyed_process.times import EpochTimes, Now
from tidemark.semantics.keyed_process.walk import ElementWalk, Failed, Output, OutputBatch, Walked
from tidemark.semantics.user_lines import raised_at
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK
from tidemark.spark.columns.user_values import MisfitError, coerce_batch
from tidemark.spark.operators.keyed.python_values import python_rows
from tidemark.spark.operators.keyed_process.conversions import declarations, typed_emission
from tidemark.testing.arrow_types import arrow_schema, arrow_type
from tidemark.testing.operators.broadcast import written_map
from tidemark.testing.operators.contract import Arrived, Emitted, Folds, instant, value_of

if TYPE_CHECKING:
    from tidemark.semantics.windows.windows import TimeDomain

Key = tuple[object, ...]


@dataclass
class _Kept:
    """What an operator keeps: a record by key, a broadcast map, and the watermark of the epoch before.

    ``declared`` are the kind and the lifetime of each state. ``unread`` are the states of keys that were restored without a time for their
    lifetimes, which begin when the key is processed next.
    """

    keys: dict[Key, KeyRecord] = field(default_factory=dict)
    broadcast: dict[object, dict[str, object]] = field(default_factory=dict)
    watermark: int = MIN_WATERMARK
    declared: Mapping[str, tuple[str, StateTtl | None]] = field(default_factory=dict)
    unread: dict[Key, frozenset[str]] = field(default_factory=dict)


class PureKeyedProcess:
    """A process function.

    Args:
        node: its declaration.
        folds: not used.
    """

    def __init__(self, node: KeyedProcessNode, folds: Folds) -> None:
        del folds
        self._node = node
        self._names = [name for name, _ in node.keys]
        states = dict(node.states)
        self._states = declarations(states, {name: _types_of(each) for name, each in states.items()})
        self._results = arrow_schema(node.returns)
        self._sides = {tag.name: arrow_schema(ddl) for tag, ddl in node.side_outputs}
        self._bound = node.bound_ms
        self._declared = {name: (each.kind, each.ttl) for name, each in self._states.items()}
        self._kept = _Kept(declared=self._declared)
        self._processing_time = 0
        self._arrived: dict[Key, list[tuple[Mapping[str, object], int, int]]] = {}
        self._broadcasts: list[Mapping[str, object]] = []
        self._side: dict[str, list[dict[str, object]]] = {}
        self._failed = 0

    def begin_epoch(self, processing_time: int) -> None:
        """Fix the epoch's processing time, and forget what an epoch that failed has left."""
        self._processing_time = processing_time
        self._arrived, self._broadcasts, self._side, self._failed = {}, [], {}, 0

    def process(self, element: Arrived) -> str | None:
        """Take an element, whose turn comes when the watermark is known."""
        node, number = self._node, self._node.PORTS.index(element.port)
        if isinstance(node, BroadcastProcessNode) and number:
            self._broadcasts.append(element.row)
            return None
        keys = node.port_keys[number]
        key = tuple(value_of(expression, element.row, what=f"key {name!r}", node=node) for name, expression in keys)
        self._arrived.setdefault(key, []).append((element.row, element.time, number))
        return None

    def end_epoch(self, watermark: int) -> list[Emitted]:
        """Walk through the keys that have elements or are due; return the function's rows. If it fails, all is as before."""
        before = self._kept
        kept = replace(
            before,
            keys=dict(before.keys),
            broadcast=dict(before.broadcast),
            watermark=max(watermark, before.watermark),
            unread=dict(before.unread),
        )
        times = EpochTimes(before.watermark, kept.watermark, self._bound, self._processing_time)
        # As a task of the engine, which is sent the function as the job declares it.
        node = self._node
        function = BoundFunction(copy.deepcopy(node.function), fields=node.fields, methods=node.methods)
        forgives, broadcast = node.on_error is not None, NO_MAPS
        if isinstance(node, BroadcastProcessNode):
            broadcast = written_map(node, node.broadcast, kept.broadcast, self._broadcasts)
        make = BatchWalk if node.by_batch else ElementWalk
        walk = make(function, self._states, frozenset(self._sides), times, forgives=forgives, broadcast=broadcast)
        emitted: list[Emitted] = []
        due = [key for key, record in before.keys.items() if self._is_due(record, kept.watermark, unread=key in before.unread)]
        with self._naming(None), closing(function.close):
            function.open(walk.context)
            for key in dict.fromkeys((*self._arrived, *due)):
                with self._naming(key):
                    emitted += self._walk(walk, key, kept)
        self._kept = kept
        return emitted

    @contextmanager
    def _naming(self, key: Key | None) -> Iterator[None]:
        """Have errors of states, timers and outputs name the operator, the key and the line that used them, as in the engine."""
        try:
            yield
        except TidemarkError as error:
            if key is not None:
                error.what = f"{error.what}, for the key {dict(zip(self._names, key, strict=True))}"
            if error.uid is None:
                # Those about a row have it: they come behind the call.
                error.uid, error.place = self._node.uid, raised_at(error) or error.place
            error.args = (str(error),)
            raise

    def _is_due(self, record: KeyRecord, watermark: int, *, unread: bool) -> bool:
        event, processing = record.deadlines({} if unread else self._states)
        return (event is not None and event <= watermark) or (processing is not None and processing <= self._processing_time)

    def _walk(self, walk: ElementWalk | BatchWalk, key: Key, kept: _Kept) -> list[Emitted]:
        records = kept.keys
        record = records[key] = records[key].copy() if key in records else KeyRecord()
        _begin(record, kept.unread.pop(key, frozenset()), self._states, walk.times)
        emitted = []
        # Of elements of one time those of the first input come first.
        elements = sorted(self._arrived.get(key, ()), key=lambda each: (each[1], each[2]))
        columns, walked = dict(zip(self._names, key, strict=True)), Walked()
        if isinstance(walk, BatchWalk):
            found = walk.run(columns, record, self._in_batches(elements), walked)
        else:
            found = walk.run(columns, record, elements, walked)
        for each in found:
            if isinstance(each, Failed):
                self._failed += each.row is not None
                self._side.setdefault(FAILED, []).append(self._failure(each))
                continue
            counter = next((emitted_counter(tag) for tag, _ in self._node.side_outputs if tag.name == each.tag), "")
            for row, time in self._rows_of(each, self._results if each.tag is None else self._sides[each.tag]):
                if each.tag is None:
                    emitted.append(Emitted(row, time))
                else:
                    self._side.setdefault(counter, []).append(row)
        if record.is_empty:
            del records[key]
        return emitted

    def _rows_of(self, emitted: Output | OutputBatch, schema: pa.Schema) -> list[tuple[dict[str, object], int]]:
        if isinstance(emitted, Output):
            return [(self._typed(emitted.row, schema), emitted.time)]
        rows = python_rows(typed_emission(emitted.rows, schema, self._node.function_name))
        times = [emitted.times] * len(rows) if isinstance(emitted.times, int) else emitted.times.to_pylist()
        return list(zip(rows, times, strict=True))

    def _in_batches(self, elements: Sequence[tuple[Mapping[str, object], int, int]]) -> list[ElementBatch]:
        """Return the elements of a key as one batch, with the types that the stream's columns are known to have."""
        if not elements:
            return []
        schema = schema_of(self._node.inputs[0])
        types = {} if schema is None else {each.name: arrow_type(each.type) for each in schema.columns if each.type is not None}
        arrays = {name: pa.array([row.get(name) for row, _, _ in elements], types.get(name)) for name in elements[0][0]}
        rows = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
        return [ElementBatch(rows, pa.array([time for _, time, _ in elements], pa.int64()), rows.nbytes)]

    def _failure(self, failed: Failed) -> dict[str, object]:
        if len(self._node.methods) == 1:
            return {**(failed.row or {}), "error": failed.error}
        name = ("first", "second")[failed.number]
        element = None if failed.row is None else json.dumps(dict(failed.row), default=str, ensure_ascii=False)
        return {"input": None if failed.row is None else name, "element": element, "error": failed.error}

    def _typed(self, row: Mapping[str, object], schema: pa.Schema) -> dict[str, object]:
        """Return a row with the values that its columns would hold."""
        name = self._node.function_name
        try:
            if unknown := [column for column in row if column not in schema.names]:
                raise MisfitError(dict(row), f"its columns {', '.join(schema.names)}: it has {unknown[0]!r}")
            return python_rows(coerce_batch([row], schema))[0]
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            what = f"{name} returned {' '.join(str(error).split())}"
            raise UserCodeError(
                what, fix="return values of the types in returns=..., or of the side output's columns", uid=self._node.uid
            ) from error

    def take_side_rows(self) -> tuple[dict[str, list[dict[str, object]]], dict[str, int]]:
        """Return the rows of side outputs since the last call, by counter, and how many of the elements each counter has."""
        found, counts = self._side, {FAILED: self._failed} if self._failed else {}
        self._side, self._failed = {}, 0
        return found, counts

    def state(self) -> list[dict[str, object]]:
        """Return a row per key, with what has not expired of each of its states."""
        kept = self._kept.watermark
        now, times = Now(kept, self._processing_time), EpochTimes(kept, kept, self._bound, self._processing_time)
        found = []
        for key, record in self._kept.keys.items():
            row = dict(zip(self._names, key, strict=True))
            seen = copy.deepcopy(record)
            _begin(seen, self._kept.unread.get(key, frozenset()), self._states, times)
            begin_lifetimes(seen, self._states, times)
            for name, declared in self._states.items():
                handle: Any = STATES[declared.kind](declared, now, None)
                handle.begin_key(seen)
                if declared.kind == "value":
                    row[name] = handle.value() if name in record.states else None
                else:
                    row[name] = dict(handle.items()) if declared.kind == "map" else handle.get()
            found.append(row)
        return found

    def timers(self) -> list[dict[str, object]]:
        """Return a row per timer: its key, ``domain``, when it is ``due``, and its ``name``."""
        domains: Sequence[TimeDomain] = ("event", "processing")
        return [
            {**dict(zip(self._names, key, strict=True)), "domain": domain, "due": _instant(due), "name": name or None}
            for key, record in self._kept.keys.items()
            for domain in domains
            for due, name in sorted(record.timers[domain])
        ]

    def snapshot(self) -> object:
        """Return a copy of all that is kept."""
        return copy.deepcopy(self._kept)

    def restore(self, snapshot: object) -> None:
        """Resume from what ``snapshot`` returned."""
        if not isinstance(snapshot, _Kept):
            raise TypeError(f"{type(snapshot).__name__} is no snapshot of a process function")
        kept = copy.deepcopy(snapshot)
        begins = set()
        for name, (kind, ttl) in self._declared.items():
            before, lived = kept.declared.get(name, (kind, None))
            if before != kind:
                what = f"the state {name!r} was a {before} state and is now a {kind} state"
                raise StateMismatchError(what, fix="keep the state as it was, and add another beside it", uid=self._node.uid)
            if ttl is not None and (lived is None or lived.domain != ttl.domain):
                begins.add(name)
        for key, record in kept.keys.items():
            record.states = {name: self._as_declared(name, stored) for name, stored in record.states.items() if name in self._declared}
            if begun := (begins | kept.unread.get(key, frozenset())) & record.states.keys():
                kept.unread[key] = frozenset(begun)
        self._kept = replace(kept, keys={key: each for key, each in kept.keys.items() if not each.is_empty}, declared=self._declared)

    def _as_declared(self, name: str, stored: Stored) -> Stored:
        """Return entries of a state with values of the type that it has now."""
        try:
            return as_declared(stored, self._states[name])
        except UserCodeError as error:
            what = f"values of the state {name!r} in the snapshot do not fit the type that it has now: {error.what}"
            raise StateMismatchError(what, fix="keep the type, or declare a wider one", uid=self._node.uid) from error


def _begin(record: KeyRecord, names: Collection[str], states: Mapping[str, StateDeclaration], times: EpochTimes) -> None:
    """Have states of a key live from the epoch on."""
    for name in names:
        ttl, stored = states[name].ttl, record.states[name]
        begun = times.before if ttl is not None and ttl.domain == "event" else times.processing_time
        if isinstance(stored, tuple):
            record.states[name] = stored[0], begun
        elif isinstance(stored, dict):
            record.states[name] = {key: (value, begun) for key, (value, _) in stored.items()}
        else:
            record.states[name] = [(value, begun) for value, _ in stored]


def _types_of(descriptor: StateDescriptor) -> tuple[pa.DataType, pa.DataType | None]:
    return arrow_type(descriptor.type), None if descriptor.key_type is None else arrow_type(descriptor.key_type)


def _instant(time: int) -> object:
    return instant(time) if abs(time) < MAX_WATERMARK // 1_000_000 else time
