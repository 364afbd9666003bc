"""One task over keys: reads what is kept of each, calls a function for those that need it, writes what is kept from now on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.spark.operators.keyed.columns import NEW
from tidemark.spark.operators.keyed.key_state import ErrorContext, TaskStats, Version, newest_version
from tidemark.spark.operators.keyed.output_buffer import OutputBuffer, Shape
from tidemark.spark.operators.keyed.rows import KeyRows, Place, keys_of

if TYPE_CHECKING:
    import pyarrow as pa


class KeyResult(NamedTuple):
    """What became of a key: what is kept of it, its rows that were taken and that were late.

    ``rest`` adds the rows that stay, once the version is written; no code of the user's runs in it.
    """

    version: Version
    accepted: int = 0
    refused: int = 0
    rest: Iterable[pa.RecordBatch] = ()


KeyRun = Generator["pa.RecordBatch", None, KeyResult]


class KeyCall(NamedTuple):
    """One key in one epoch: its values by name, what is kept of it, its rows, and where its results go."""

    key: Mapping[str, object]
    before: Version
    rows: KeyRows
    clock: OperatorClock
    out: OutputBuffer


class KeyFunction(ABC):
    """What an operator kind does with one key in one epoch. Immutable: it goes to the workers.

    With ``read_only`` it is called for every key, calls no code of the user's, and neither versions nor counts are written.
    """

    read_only: ClassVar[bool] = False

    @abstractmethod
    def run(self, call: KeyCall) -> KeyRun:
        """Add results, and yield what ``call.out.enough()`` gives; return what became of the key.

        It is called for a key with ``NEW`` rows, and for one of which a deadline is reached.
        """


@dataclass(frozen=True)
class KeyTask:
    """What a task does with the rows of its keys, which come sorted.

    Args:
        function: of the operator kind.
        clock: of the operator in the epoch.
        keys: key columns by the names of the keys.
        schema: of the rows that come out.
        shapes: of these rows, by tag.
        errors: names what failed; its ``function`` is what gives results.
    """

    function: KeyFunction
    clock: OperatorClock
    keys: Mapping[str, str]
    schema: pa.Schema
    shapes: Mapping[int, Shape]
    errors: ErrorContext

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what becomes of the keys of a task; called by Spark in a worker."""
        out = OutputBuffer(self.schema, self.shapes, self.errors.uid, self.errors.function)
        stats = TaskStats(out)
        for rows in keys_of(batches):
            yield from self._run_key(rows, out, stats)
            yield from out.full_batches()
        if not self.function.read_only:
            stats.end()
        yield from out.remaining_batches()

    def _run_key(self, rows: KeyRows, out: OutputBuffer, stats: TaskStats) -> Iterator[pa.RecordBatch]:
        before, first, clock = newest_version(rows), rows.first, self.clock
        if not self.function.read_only and not rows.has(NEW) and not before.is_due(clock):
            stats.leave(before, first)
            return
        key = key_of(first, self.keys)
        try:
            result = yield from self.function.run(KeyCall(key, before, rows, clock, out))
        except Exception as error:
            if self.function.read_only:
                raise
            named = self.errors.of(error, key)
            if named is error:
                raise
            raise named from error
        if self.function.read_only:
            return
        opened = stats.replace(before, result.version, clock.epoch, first)
        yield from result.rest
        stats.key(first, accepted=result.accepted, refused=result.refused, opened=opened)


def key_of(place: Place, keys: Mapping[str, str]) -> dict[str, object]:
    """Return a key's values by the names of the keys."""
    return {name: place.batch.column(column)[place.number].as_py() for name, column in keys.items()}
