"""The process function of a task: walks through the epoch of one key after the other."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidemark.errors import TidemarkError, UserCodeError
from tidemark.graph.expressions.expression_text import shortened
from tidemark.graph.operators.keyed_process.descriptors import StateDescriptor
from tidemark.graph.operators.keyed_process.function import BoundFunction
from tidemark.semantics.closing import closing
from tidemark.semantics.keyed_process.batch_walk import BatchWalk
from tidemark.semantics.keyed_process.broadcast_maps import read_only
from tidemark.semantics.keyed_process.declarations import StateDeclaration
from tidemark.semantics.keyed_process.key_record import KeyRecord, count_timers
from tidemark.semantics.keyed_process.plain_walk import PlainWalk
from tidemark.semantics.keyed_process.times import EpochTimes
from tidemark.semantics.keyed_process.walk import ElementWalk, Emitted, Failed, Output, OutputBatch, Walked
from tidemark.semantics.user_lines import raised_at, source_of
from tidemark.semantics.user_mistakes import fix_of_call
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.spark.operators.keyed.columns import OUTPUT
from tidemark.spark.operators.keyed.key_state import EMPTY_VERSION, Version, one_line, origin_of
from tidemark.spark.operators.keyed.output_buffer import Block, OutputBuffer
from tidemark.spark.operators.keyed.rows import MarkedRun, Place
from tidemark.spark.operators.keyed.task import KeyCall, KeyFunction, KeyResult, KeyRun, KeysOfTask, TaskFunction
from tidemark.spark.operators.keyed_process.columns import FAILED_ROW, FAILED_TIMER, KEY_NOTE
from tidemark.spark.operators.keyed_process.conversions import declarations, typed_emission
from tidemark.spark.operators.keyed_process.elements import ElementBatches, ElementRows
from tidemark.spark.operators.keyed_process.plain_keys import PlainKeys
from tidemark.spark.operators.keyed_process.stored_record import read_record, write_record
from tidemark.spark.operators.keyed_process.user_output import named_output

if TYPE_CHECKING:
    import pyarrow as pa

    # Only here: with the layout come all kinds of operators, which a worker does not need.
    from tidemark.spark.operators.keyed_process.layout import Elements

LIVE = ""
"""The text of the state of a key that keeps anything."""


@dataclass(frozen=True)
class ProcessKeys(TaskFunction):
    """Opens a process function for the keys of a task. Immutable: it is sent to the workers.

    Args:
        job: the job's name.
        uid: of the operator.
        name: of the function.
        function: the user's.
        fields: whether its states are those of a dataclass.
        states: by name.
        types: of their values, and of a map's keys, by name.
        stored: the columns of a key's version.
        elements: columns of elements by their names in the stream, for each input.
        methods: of the function, for an element of each input.
        by_batch: whether its one method takes elements in batches.
        tags: of rows of side outputs, by their names.
        bound: the greatest out-of-orderness bound of its sources, milliseconds.
        forgives: whether a call that fails is undone, and its element put aside.
        broadcast: maps that it reads, by name.
    """

    job: str
    uid: str
    name: str
    function: object
    fields: bool
    states: Mapping[str, StateDescriptor]
    types: Mapping[str, tuple[pa.DataType, pa.DataType | None]]
    stored: tuple[str, ...]
    elements: Elements
    methods: tuple[str, ...]
    by_batch: bool
    tags: Mapping[str, int]
    bound: int
    forgives: bool
    broadcast: Mapping[str, Mapping[Any, Any]]

    @property
    def walks_plainly(self) -> bool:
        """Whether calls need not be undone, no state expires, and there is one input: all keys of a task are then processed at once."""
        lasting = all(each.ttl is None for each in self.states.values())
        return lasting and not self.by_batch and not self.forgives and len(self.methods) == 1

    @contextmanager
    def begin(self, clock: OperatorClock) -> Iterator[KeyFunction]:
        """Open the function, and close it at the end."""
        times = EpochTimes(clock.before, clock.watermark, self.bound, clock.processing_time)
        bound = BoundFunction(self.function, fields=self.fields, methods=self.methods)
        declared = declarations(self.states, self.types)
        make = BatchWalk if self.by_batch else PlainWalk if self.walks_plainly else ElementWalk
        walk = make(bound, declared, frozenset(self.tags), times, forgives=self.forgives, broadcast=read_only(self.broadcast))
        # As a decorator ``_named`` names the errors of a call.
        with named_output(f"{self.job} {self.uid}", walk.context), closing(self._named("close")(bound.close)):
            with self._named("open"):
                bound.open(walk.context)
            yield _OpenFunction(self, walk, declared)

    @contextmanager
    def _named(self, method: str) -> Iterator[None]:
        try:
            yield
        except TidemarkError as error:
            if error.uid is not None:
                raise
            raise UserCodeError(error.what, fix=error.fix, uid=self.uid, place=error.place) from error
        except Exception as error:
            what = f"{method} of {self.name} failed: {type(error).__name__}: {one_line(str(error))}"
            raise UserCodeError(what, fix="correct the function", uid=self.uid, place=raised_at(error)) from error


@dataclass
class _OpenFunction(KeyFunction):
    """The function between ``open`` and ``close``."""

    declared: ProcessKeys
    walk: ElementWalk | BatchWalk
    states: Mapping[str, StateDeclaration]
    _walked: Walked = field(default_factory=Walked)
    emptied: int = 0
    _expired: int = 0
    _timers: int = 0
    _second: list[int] = field(default_factory=lambda: [0, 0])

    @property
    def tags(self) -> Mapping[str, int]:
        """The tags of rows of side outputs, by their names."""
        return self.declared.tags

    @property
    def version_columns(self) -> tuple[str, ...]:
        """The columns of states and timers."""
        return self.declared.stored

    def run_all(self, runs: Iterable[MarkedRun], task: KeysOfTask) -> Iterator[pa.RecordBatch] | None:
        """Process all keys of a task at once, where the function's walk does."""
        if not isinstance(self.walk, PlainWalk):
            return None
        columns = self.declared.elements[0] if self.declared.elements else {}
        return PlainKeys(self.walk, self._walked, columns, self, task).run(runs)

    def run(self, call: KeyCall) -> KeyRun:
        """Add the rows that the function emits for a key, and elements that failed; return the key's next version."""
        walked = self._walked
        record = read_record(call.before.more, self.states, self.walk.times)
        timers, expired = count_timers(record.timers), walked.expired
        elements, emitted = self._walk(call, record)
        try:
            yield from self._add(emitted, elements, call)
        except Exception as error:
            # Rows of other keys may not fit their columns, whose error says so.
            if isinstance(error, TidemarkError) and error.uid is not None:
                raise
            raise self.described(error, elements.row) from error
        after = self.version(record, timers)
        if after.state is None and call.before.state is not None:
            if walked.expired > expired:
                self._expired += 1
            else:
                self.emptied += 1
        accepted, failed = elements.accepted, elements.failed
        if len(failed) == 1:
            return KeyResult(after, accepted[0], failed[0])
        for number, counted in enumerate((accepted, failed)):
            self._second[number] += sum(counted[1:])
        return KeyResult(after, accepted=sum(accepted), refused=sum(failed))

    def _add(self, emitted: Iterator[Emitted], elements: ElementRows | ElementBatches, call: KeyCall) -> Iterator[pa.RecordBatch]:
        """Add what the walk through a key emits, and yield the batches that are full."""
        out, first, tags, number = call.out, call.rows.first, self.declared.tags, 0
        origin = _Origin(call.key)
        for each in emitted:
            if type(each) is Output:
                name, row, time = each
                out.add(OUTPUT if name is None else tags[name], first, (time, number), row, origin)
                number += 1
            elif isinstance(each, Failed):
                self._put_aside(each, elements, out, first)
            elif isinstance(each, OutputBatch):
                tag = OUTPUT if each.tag is None else tags[each.tag]
                out.add_block(tag, self._block(each, first, number, out.result_schema(tag)))
                number += each.rows.num_rows
            if out.is_full:
                yield from out.remaining_batches()

    def version(self, record: KeyRecord, timers: int) -> Version:
        """Return the version of a key after the epoch, and count its timers, of which there were some before."""
        if record.is_empty:
            self._timers -= timers
            return EMPTY_VERSION
        self._timers += count_timers(record.timers) - timers
        due, timer = record.deadlines(self.states)
        return Version(LIVE, due, timer, None, write_record(record, self.states))

    def _walk(self, call: KeyCall, record: KeyRecord) -> tuple[ElementRows | ElementBatches, Iterator[Emitted]]:
        """Return a key's elements, and what the walk through them emits."""
        walk, columns = self.walk, self.declared.elements
        # To ask for the class of a walk, which is abstract, takes as long as to make its rows.
        if self.declared.by_batch and isinstance(walk, BatchWalk):
            batches = ElementBatches(call.rows, columns[0] if columns else {}, walk)
            return batches, walk.run(call.key, record, batches, self._walked)
        rows = ElementRows(call.rows, columns, self._walked)
        return rows, walk.run(call.key, record, rows, self._walked)  # type: ignore[arg-type]

    def _block(self, emitted: OutputBatch, place: Place, number: int, schema: pa.Schema) -> Block:
        """Return the rows that were emitted at once; ``number`` is that of the first among those of the key."""
        import pyarrow as pa

        rows = typed_emission(emitted.rows, schema, self.declared.name)
        times = pa.array([emitted.times] * rows.num_rows, pa.int64()) if isinstance(emitted.times, int) else emitted.times
        return Block(place, rows.num_rows, (times, pa.array(range(number, number + rows.num_rows), pa.int64())), rows)

    def _put_aside(self, failed: Failed, elements: ElementRows | ElementBatches, out: OutputBuffer, first: Place) -> None:
        if failed.row is None:
            error = f"timer at {failed.time} {origin_of(self.walk.context.current_key)}: {failed.error}"
            out.add(FAILED_TIMER, first, (error, failed.time))
        else:
            elements.fail()
            one = len(self.declared.methods) == 1
            made = (failed.error,) if one else (failed.error, ("first", "second")[failed.number], _as_json(failed.row))
            out.add(FAILED_ROW, elements.place, made)

    def described(self, error: Exception, row: Mapping[str, object] | None) -> UserCodeError:
        """Return the error of a call, with its element or timer, and the line of the user's code."""
        name, timer = self.declared.name, self.walk.timer
        about = f"element {shortened(repr(dict(row)), 300)}" if timer is None and row is not None else "no element"
        about = about if timer is None else f"timer at {timer}"
        place = raised_at(error)
        line = source_of(place)
        shown = f" in `{line}`" if line else ""
        if isinstance(error, TidemarkError):
            return UserCodeError(f"{name}: {one_line(error.what)}{shown}, {about}", fix=error.fix, place=place)
        what = f"{name} raised {type(error).__name__}: {one_line(str(error))}{shown}, {about}"
        return UserCodeError(what, fix=fix_of_call(error, line, row if timer is None else None), place=place)

    def end(self, out: OutputBuffer, place: Place) -> None:
        """Add the numbers of the task."""
        numbers = self._walked.fired, self._walked.expired, self.emptied, self._expired, self._timers
        out.add(KEY_NOTE, place, (*numbers, *self._second))


class _Origin:
    """A key, as errors of its results show it; made for each key, as what takes little time to make."""

    __slots__ = ("key",)

    def __init__(self, key: Mapping[str, object]) -> None:
        self.key = key

    def __str__(self) -> str:
        return origin_of(self.key)


def _as_json(row: Mapping[str, object]) -> str:
    return json.dumps(dict(row), default=str, ensure_ascii=False)
