"""One key's past epoch, run again: its elements, its state before, and each call of the function."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tidemark.errors import UserCodeError
from tidemark.graph.operators.keyed_process.function import BoundFunction
from tidemark.graph.operators.keyed_process.node import KeyedProcessNode
from tidemark.semantics.closing import closing
from tidemark.semantics.keyed_process.batch_walk import BatchWalk
from tidemark.semantics.keyed_process.broadcast_maps import read_only
from tidemark.semantics.keyed_process.context import ProcessContext
from tidemark.semantics.keyed_process.key_record import KeyRecord, as_declared, entries_of
from tidemark.semantics.keyed_process.times import EpochTimes
from tidemark.semantics.keyed_process.walk import ElementWalk, Emitted, Failed, OutputBatch, Walked
from tidemark.semantics.user_rows import name_of
from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK
from tidemark.spark.operators.keyed.python_values import python_rows
from tidemark.spark.operators.keyed_process.conversions import declarations
from tidemark.spark.operators.keyed_process.layout import state_types
from tidemark.spark.replay.job_line import PastNames
from tidemark.spark.replay.key_elements import KeyElements
from tidemark.spark.replay.past_states import StoredStates
from tidemark.spark.replay.replay_input import PastEpoch
from tidemark.spark.replay.replayed import ReplayedCall, ReplayedEpoch, Timers, as_dicts, differences
from tidemark.spark.replay.replayed_key import ReplayedKey
from tidemark.state.log.records import EpochRecord, OperatorState


class KeyReplay:
    """The replay of one epoch of a key.

    Args:
        past: the epoch.
        node: the operator, with nothing stateful before it.
        key: the values of the key's columns by name.
        names: that the operator, its states and its keys had in the epoch.
    """

    def __init__(self, past: PastEpoch, node: KeyedProcessNode, key: Mapping[str, object], names: PastNames) -> None:
        self._past, self._node, self._names = past, node, names
        self._key = ReplayedKey(past.job.name, node, key)
        self._types = state_types(node)
        self._declared = declarations(dict(node.states), self._types)

    def run(self) -> ReplayedEpoch:
        """Return what the function did.

        Raises:
            ColumnError: a value of the key is none of its column's type.
            EngineError: the input cannot be read any more.
        """
        before, record, uid = self._past.before, self._past.record, self._names.uid
        states = (None if before is None else before.operators.get(uid)), record.operators[uid]
        watermarks = (MIN_WATERMARK if states[0] is None else states[0].watermark), states[1].watermark
        times = EpochTimes(*watermarks, self._node.bound_ms, record.processing_time)
        replayed = KeyRecord() if states[0] is None or before is None else self._record(self._stored(before, states[0]), times)
        at_end = self._stored(record, states[1])
        committed = self._record(at_end, dataclasses.replace(times, before=times.watermark))
        elements = KeyElements.read(self._past, self._node, self._key)
        first = copy.deepcopy(replayed)
        calls = self._walk(elements, replayed, times, at_end.epoch.broadcast_entries())
        return ReplayedEpoch(
            epoch=record.epoch,
            key=elements.key,
            watermark_before=times.before,
            watermark=times.watermark,
            processing_time=times.processing_time,
            calls=tuple(calls),
            states_before=self._values(first),
            states=self._values(replayed),
            timers_before=_timers(first),
            timers=_timers(replayed),
            differences=tuple(self._differences(replayed, committed)),
        )

    def _stored(self, record: EpochRecord, state: OperatorState) -> StoredStates:
        return StoredStates.of(self._past, self._node, self._names, record, state)

    def _record(self, stored: StoredStates, times: EpochTimes) -> KeyRecord:
        """Return what was kept of the key, with values of the types that the function has now, as far as they fit."""
        record = stored.key_record(self._key, times)
        for name, entries in record.states.items():
            with suppress(UserCodeError):
                record.states[name] = as_declared(entries, self._declared[name])
        return record

    def _walk(
        self, elements: KeyElements, record: KeyRecord, times: EpochTimes, broadcast: Mapping[str, Mapping[Any, Any]]
    ) -> list[ReplayedCall]:
        node = self._node
        function = TracedFunction(copy.deepcopy(node.function), fields=node.fields, methods=node.methods)
        settings = {"forgives": node.on_error is not None, "broadcast": read_only(broadcast)}
        tags = frozenset(tag.name for tag, _ in node.side_outputs)
        walked = Walked()
        emitted: Iterator[Emitted]
        if node.by_batch:
            batches = BatchWalk(function, self._declared, tags, times, **settings)  # type: ignore[arg-type]
            context, emitted = batches.context, batches.run(elements.key, record, elements.batches(), walked)
        else:
            rows = ElementWalk(function, self._declared, tags, times, **settings)  # type: ignore[arg-type]
            context, emitted = rows.context, rows.run(elements.key, record, elements.rows(), walked)
        with closing(function.close):
            function.open(context)
            for each in emitted:
                function.take(each)
        return function.calls

    def _values(self, record: KeyRecord) -> dict[str, object]:
        """Return the values of states as people read them."""
        found: dict[str, object] = {}
        for name, stored in record.states.items():
            if isinstance(stored, dict):
                found[name] = {key: value for key, (value, _) in stored.items()}
                continue
            values = [as_dicts(value, self._types[name][0]) for value, _ in entries_of(stored)]
            found[name] = values if isinstance(stored, list) else values[0]
        return found

    def _differences(self, replayed: KeyRecord, committed: KeyRecord) -> Iterator[str]:
        """Yield where the state of a key differs from the committed one."""
        now, then = self._values(replayed), self._values(committed)
        yield from differences(now, then, _timers(replayed), _timers(committed))
        for name in sorted(now):
            if now[name] == then.get(name) and replayed.states.get(name) != committed.states.get(name):
                yield f"the state {name!r} was last written at another time"


class TracedFunction(BoundFunction):
    """A function whose calls are noted, with what they emit."""

    def __init__(self, function: object, *, fields: bool, methods: Sequence[str]) -> None:
        super().__init__(function, fields=fields, methods=methods)
        self.calls: list[ReplayedCall] = []
        self.inputs = tuple(map(self._noted, self.inputs))
        self.on_timer = self._noted_timer(self.on_timer)

    def _noted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        name = name_of(method)

        def noted(element: Any, ctx: ProcessContext) -> object:  # noqa: ANN401 - a row, or a batch
            shown = element.to_pylist() if hasattr(element, "to_pylist") else dict(element)
            self.calls.append(ReplayedCall(name, ctx.timestamp, ctx.current_watermark(), shown))
            return method(element, ctx)

        noted.__name__ = name
        return noted

    def _noted_timer(self, on_timer: Callable[..., Any]) -> Callable[..., Any]:
        def noted(timestamp: int, ctx: ProcessContext) -> object:
            self.calls.append(ReplayedCall("on_timer", timestamp, ctx.current_watermark(), timer_name=ctx.timer_name))
            return on_timer(timestamp, ctx)

        return noted

    def take(self, emitted: Emitted) -> None:
        """Note what the newest call emitted."""
        call = self.calls[-1]
        if isinstance(emitted, Failed):
            call.error = emitted.error
        elif isinstance(emitted, OutputBatch):
            call.emitted += [(emitted.tag, row) for row in python_rows(emitted.rows)]
        else:
            call.emitted.append((emitted.tag, emitted.row))


def _timers(record: KeyRecord) -> Timers:
    found = [(domain, time, name or None) for domain, timers in record.timers.items() for time, name in timers]
    return tuple(sorted(found, key=lambda each: (each[1], each[0], each[2] or "")))
