"""All keys of a task in one loop, for functions that are walked plainly; the rows that they emit are made by column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

from tidemark.errors import TidemarkError, UserCodeError
from tidemark.semantics.keyed_process.declarations import StateDeclaration
from tidemark.semantics.keyed_process.key_record import KeyRecord, count_timers
from tidemark.semantics.keyed_process.plain_walk import ROWS_HELD, EmittedRow, More, PlainWalk, then
from tidemark.semantics.keyed_process.walk import Walked
from tidemark.spark.columns.expressions import TIME
from tidemark.spark.operators.keyed.columns import OUTPUT, VERSION
from tidemark.spark.operators.keyed.key_state import EMPTY_VERSION, Version, origin_of, version_of
from tidemark.spark.operators.keyed.output_buffer import MAX_BATCHES, OutputBuffer
from tidemark.spark.operators.keyed.rows import BatchValues, MarkedRun, Place, table_of
from tidemark.spark.operators.keyed.task import KeysOfTask
from tidemark.spark.operators.keyed_process.stored_record import read_record

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


class OpenedFunction(Protocol):
    """The function of a task between ``open`` and ``close``; ``emptied`` are the keys that keep nothing any more."""

    states: Mapping[str, StateDeclaration]
    emptied: int

    @property
    def tags(self) -> Mapping[str, int]:
        """The tags of rows of side outputs, by their names."""
        ...

    @property
    def version_columns(self) -> tuple[str, ...]:
        """The columns of states and timers."""
        ...

    def version(self, record: KeyRecord, timers: int) -> Version:
        """Return the version of a key after the epoch, and count its timers, of which there were some before."""
        ...

    def described(self, error: Exception, row: Mapping[str, object] | None) -> UserCodeError:
        """Return the error of a call, with its element or timer, and the line of the user's code."""
        ...


@dataclass
class PlainKeys:
    """The keys of a task.

    Args:
        walk: of the function.
        walked: what all keys come to.
        columns: of elements by their names in the stream.
        function: writes versions, and describes errors.
        task: what is the same for all keys.
    """

    walk: PlainWalk
    walked: Walked
    columns: Mapping[str, str]
    function: OpenedFunction
    task: KeysOfTask

    _emitted: _EmittedRows = field(init=False)
    _following: Iterator[MarkedRun] = field(init=False)
    _ahead: MarkedRun | None = None

    def run(self, runs: Iterable[MarkedRun]) -> Iterator[pa.RecordBatch]:
        """Yield the output rows of all keys.

        Raises:
            UserCodeError: the function failed.
        """
        walk, out, place = self.walk, self.task.out, None
        seen: BatchValues | None = None
        keys: list[tuple[str, list[object]]] = []
        self._emitted = emitted = _EmittedRows(walk.emitted, out, self.function.tags)
        record = KeyRecord()
        self._following = iter(runs)
        self._ahead = next(self._following, None)
        while self._ahead is not None:
            mark, (batch, tag, start, _, values) = self._ahead
            place, before = Place(batch, start), EMPTY_VERSION
            if tag == VERSION:
                before = self._take_version(mark)
                if not self._has_elements(mark) and not before.is_due(self.task.clock):
                    self.task.stats.leave(before, place)
                    continue
            if values is not seen:
                seen, keys = values, self._keys_of(values)
            key = {name: column[start] for name, column in keys}
            try:
                # Most keys begin without state, and take turns with one record.
                kept = read_record(before.more, self.function.states, walk.times) if before.more else record
                timers = 0 if kept is record else count_timers(kept.timers)
                walk.begin(key, kept)
                more = self._walk(mark)
                while more is not None:
                    yield from emitted.taken(place, key)
                    more = more()
                emitted.end_key(place, key)
                if before.state is not None or not kept.is_empty:
                    self._end(before, self.function.version(kept, timers), place)
                    _clear(record)
            except Exception as error:  # noqa: BLE001  # it is raised again
                self._fail(error, key)
            if emitted.is_full or out.is_full:
                yield from self._full_batches()
        walk.end_keys()
        yield from emitted.batches()
        if place is not None:
            self.task.stats.leave(EMPTY_VERSION, place)
        self.task.stats.count(accepted=self.walked.elements, refused=0)

    def _full_batches(self) -> Iterator[pa.RecordBatch]:
        if self._emitted.is_full:
            yield from self._emitted.batches()
        yield from self.task.out.full_batches()

    def _take_version(self, mark: tuple[int, int]) -> Version:
        """Return the newest version of the key that is next, and go on to its elements, or the next key."""
        run, before = self._ahead, EMPTY_VERSION
        if run is not None:
            before = version_of(run[1], self.function.version_columns)
        while run is not None and run[0] == mark and run[1].tag == VERSION:
            run = self._ahead = next(self._following, None)
        return before

    def _has_elements(self, mark: tuple[int, int]) -> bool:
        """Return whether the rows that are next are of a key."""
        return self._ahead is not None and self._ahead[0] == mark

    def _walk(self, mark: tuple[int, int]) -> More | None:
        """Process the elements of a key, which are next, and its timers."""
        walk = self.walk
        while (ahead := self._ahead) is not None and ahead[0] == mark:
            # An error of reading elements is of none.
            walk.row = None
            self._ahead = next(self._following, None)
            _, _, start, stop, values = ahead[1]
            times: Any = values[TIME][start:stop]
            more = walk.process(values.rows(self.columns)[start:stop], times, self.walked)
            if more is not None:
                return partial(then, more, partial(self._walk, mark))
        return walk.finish(self.walked)

    def _end(self, before: Version, after: Version, place: Place) -> None:
        self.function.emptied += after.state is None
        self.task.stats.replace(before, after, self.task.clock.epoch, place)

    def _keys_of(self, values: BatchValues) -> list[tuple[str, list[object]]]:
        try:
            return [(name, values[column]) for name, column in self.task.keys.items()]
        except UserCodeError as error:
            raise UserCodeError(error.what, fix=error.fix, uid=self.task.errors.uid) from None

    def _fail(self, error: Exception, key: Mapping[str, object]) -> NoReturn:
        """Raise the error of a key; one of the engine's, of an operator, stays as it is."""
        if isinstance(error, TidemarkError) and error.uid is not None:
            raise error
        raise self.task.errors.of(self.function.described(error, self.walk.row), key) from error


class _Part(NamedTuple):
    """Consecutive rows of a key: its input row, its columns, their number, and that of the first among all of the key."""

    place: Place
    key: Mapping[str, object]
    size: int
    first: int


class _EmittedRows:
    """The rows that a walk has emitted, and which keys they are of.

    Args:
        rows: where the walk adds them.
        out: makes batches of them.
        tags: of side outputs, by their names.
    """

    def __init__(self, rows: list[EmittedRow], out: OutputBuffer, tags: Mapping[str, int]) -> None:
        self._rows = rows
        self._out = out
        self._tags: dict[str | None, int] = {None: OUTPUT, **dict(tags.items())}
        self._parts: list[_Part] = []
        self._ended = 0
        self._first = 0
        self._batches: set[int] = set()
        self._newest: pa.RecordBatch | None = None

    def end_key(self, place: Place, key: Mapping[str, object]) -> None:
        """Note whose rows those are that came last; none where there are none since the key before."""
        count = len(self._rows) - self._ended
        if count:
            self._parts.append(tuple.__new__(_Part, (place, key, count, self._first)))
            self._ended += count
            if place.batch is not self._newest:
                self._newest = place.batch
                self._batches.add(id(place.batch))
        self._first = 0

    @property
    def is_full(self) -> bool:
        """Whether there are enough rows, or input batches that they refer to."""
        return len(self._rows) >= ROWS_HELD or len(self._batches) >= MAX_BATCHES

    def taken(self, place: Place, key: Mapping[str, object]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that there are, while a key is processed that may have more."""
        first = self._first + len(self._rows) - self._ended
        self.end_key(place, key)
        yield from self.batches()
        self._first = first

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, those of each tag in a batch of at most ``ROWS_HELD``: one call may have added many to side outputs.

        Raises:
            UserCodeError: a row does not fit its columns.
        """
        import numpy as np

        if not self._rows:
            return
        held, parts, counts = list(self._rows), self._parts, np.array([part.size for part in self._parts])
        owners = np.repeat(np.arange(len(parts)), counts)
        numbers = np.arange(len(held)) - np.repeat(np.cumsum(counts) - counts - [part.first for part in parts], counts)
        self._rows.clear()
        self._parts, self._ended, self._batches, self._newest = [], 0, set(), None
        for start in range(0, len(held), ROWS_HELD):
            cut = slice(start, start + ROWS_HELD)
            yield from self._batches_of(held[cut], parts, owners[cut], numbers[cut])

    def _batches_of(
        self, emitted: Sequence[EmittedRow], parts: Sequence[_Part], owners: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]
    ) -> Iterator[pa.RecordBatch]:
        import numpy as np

        names, rows, times = zip(*emitted, strict=True)
        if set(names) == {None}:
            yield self._batch(OUTPUT, parts, owners, (times, numbers), rows)
            return
        tags = np.array([self._tags[name] for name in names])
        for tag in dict.fromkeys(tags.tolist()):
            at = np.flatnonzero(tags == tag)
            chosen = at.tolist()
            made = [times[number] for number in chosen], numbers[at]
            yield self._batch(tag, parts, owners[at], made, [rows[number] for number in chosen])

    def _batch(
        self, tag: int, parts: Sequence[_Part], owners: npt.NDArray[np.int64], made: Sequence[Any], rows: Sequence[Mapping[str, object]]
    ) -> pa.RecordBatch:
        def carried(columns: Mapping[str, str]) -> pa.Table:
            return table_of([part.place for part in parts], columns).take(owners)

        return self._out.batch_of(tag, carried, made, rows, _Origins(parts, owners))


class _Origins:
    """The keys of rows as errors show them, made when they are asked for, as often as they are."""

    def __init__(self, parts: Sequence[_Part], owners: npt.NDArray[np.int64]) -> None:
        self._parts = parts
        self._owners = owners

    def __iter__(self) -> Iterator[str]:
        return (origin_of(self._parts[number].key) for number in self._owners)


def _clear(record: KeyRecord) -> None:
    record.states.clear()
    for timers in record.timers.values():
        timers.clear()
