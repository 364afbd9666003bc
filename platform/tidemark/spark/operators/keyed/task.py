"""One task over keys: reads the state of each, calls a function for those that need it, writes the new state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from tidemark.errors import UserCodeError
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.spark.operators.keyed.columns import NEW
from tidemark.spark.operators.keyed.key_state import ErrorContext, TaskStats, Version, newest_version
from tidemark.spark.operators.keyed.output_buffer import OutputBuffer, Shape
from tidemark.spark.operators.keyed.rows import BatchValues, KeyRows, MarkedRun, Place, keys_of, runs_of

if TYPE_CHECKING:
    import pyarrow as pa


class KeyResult(NamedTuple):
    """The result of a key's call: its next version, the numbers of accepted and late rows.

    ``rest`` adds the rows to keep, once the version is written; it runs no user code.
    """

    version: Version
    accepted: int = 0
    refused: int = 0
    rest: Iterable[pa.RecordBatch] = ()


KeyRun = Generator["pa.RecordBatch", None, KeyResult]


class KeyCall(NamedTuple):
    """One key in one epoch: its values by name, its version, its rows, and the buffer for its results."""

    key: Mapping[str, object]
    before: Version
    rows: KeyRows
    clock: OperatorClock
    out: OutputBuffer


class KeysOfTask(NamedTuple):
    """What is the same for all keys of a task: the columns of keys by their names, the buffer for results, counts, and for errors.

    The function adds to ``stats`` what ``KeyTask`` adds for each key where it processes one after the other.
    """

    keys: Mapping[str, str]
    clock: OperatorClock
    out: OutputBuffer
    stats: TaskStats
    errors: ErrorContext


class TaskFunction(ABC):
    """Makes the function for the keys of one task. Immutable: it is sent to the workers.

    With ``read_only`` the function is called for every key and calls no user code, and neither versions nor counts are written.
    """

    read_only: ClassVar[bool] = False

    @abstractmethod
    def begin(self, clock: OperatorClock) -> AbstractContextManager[KeyFunction]:
        """Return the function of one task, begun before its first key and ended after its last, or where it fails."""


class KeyFunction(TaskFunction):
    """An operator kind's function for one key in one epoch; where it needs no beginning of its own, it is that of every task."""

    @property
    def version_columns(self) -> tuple[str, ...]:
        """The columns of its kind in a key's version."""
        return ()

    def begin(self, clock: OperatorClock) -> AbstractContextManager[KeyFunction]:
        """Return the same for each task."""
        del clock
        return nullcontext(self)

    def end(self, out: OutputBuffer, place: Place) -> None:
        """Add rows at the end of a task; ``place`` is one of its rows."""

    def run_all(self, runs: Iterable[MarkedRun], task: KeysOfTask) -> Iterator[pa.RecordBatch] | None:
        """Process all keys of a task at once, as ``run`` does one, and yield batches that are full; None where that is left to ``run``."""
        del runs, task
        return None

    @abstractmethod
    def run(self, call: KeyCall) -> KeyRun:
        """Add results, and yield the batches of ``call.out.full_batches()``; return the key's result.

        Called for a key with ``NEW`` rows, and for one with a reached deadline.
        """


@dataclass(frozen=True)
class KeyTask:
    """Processes the rows of a task's keys, which come sorted, or packed (``PackedKeyTask``).

    Args:
        function: of the operator kind.
        clock: of the operator in the epoch.
        keys: key columns by the names of the keys.
        schema: of the rows that come out.
        shapes: of these rows, by tag.
        errors: the context for errors; its ``function`` names the function that returns results.
    """

    function: TaskFunction
    clock: OperatorClock
    keys: Mapping[str, str]
    schema: pa.Schema
    shapes: Mapping[int, Shape]
    errors: ErrorContext

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the output rows of a task's keys; called by Spark in a worker."""
        return self.process(lambda _: runs_of(batches))

    def process(self, runs: Callable[[TaskStats], Iterator[MarkedRun]]) -> Iterator[pa.RecordBatch]:
        """Yield the output rows of keys, of which ``runs`` returns the rows; it may count keys that do not change, instead."""
        out = OutputBuffer(self.schema, self.shapes, self.errors.uid, self.errors.function)
        stats = TaskStats(out)
        with ExitStack() as task:
            function: KeyFunction | None = None
            found = runs(stats)
            first = next(found, None)
            if first is not None:
                function = task.enter_context(self.function.begin(self.clock))
                all_runs = chain((first,), found)
                at_once = function.run_all(all_runs, KeysOfTask(self.keys, self.clock, out, stats, self.errors))
                yield from self._run_keys(function, all_runs, out, stats) if at_once is None else at_once
            if stats.place is not None and function is not None:
                function.end(out, stats.place)
        if not self.function.read_only:
            stats.end()
        yield from out.remaining_batches()

    def _run_keys(self, function: KeyFunction, runs: Iterable[MarkedRun], out: OutputBuffer, stats: TaskStats) -> Iterator[pa.RecordBatch]:
        for rows in keys_of(runs):
            yield from self._run_key(function, rows, out, stats)
            if out.is_full:
                yield from out.remaining_batches()

    def _run_key(self, function: KeyFunction, rows: KeyRows, out: OutputBuffer, stats: TaskStats) -> Iterator[pa.RecordBatch]:
        before, first, clock = newest_version(rows, function.version_columns), rows.first, self.clock
        if not function.read_only and not rows.has(NEW) and not before.is_due(clock):
            stats.leave(before, first)
            return
        try:
            key = key_of(rows.values, first.number, self.keys)
        except UserCodeError as error:
            raise UserCodeError(error.what, fix=error.fix, uid=self.errors.uid) from None
        try:
            # This is ``KeyCall(...)``, in half the time.
            result = yield from function.run(tuple.__new__(KeyCall, (key, before, rows, clock, out)))
        except Exception as error:
            if function.read_only:
                raise
            named = self.errors.of(error, key)
            if named is error:
                raise
            raise named from error
        if function.read_only:
            return
        stats.replace(before, result.version, clock.epoch, first)
        yield from result.rest
        stats.count(accepted=result.accepted, refused=result.refused)


def key_of(values: BatchValues, number: int, keys: Mapping[str, str]) -> dict[str, object]:
    """Return a key's values by the names of the keys, from one of its rows."""
    return {name: values[column][number] for name, column in keys.items()}
