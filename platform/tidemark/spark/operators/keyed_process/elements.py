"""The new elements of a key, as the walk takes them: one after the other, or in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidemark.semantics.keyed_process.batch_walk import BatchWalk, ElementBatch
from tidemark.semantics.keyed_process.context import Row
from tidemark.spark.columns.expressions import TIME
from tidemark.spark.operators.keyed.columns import NEW
from tidemark.spark.operators.keyed.rows import KeyRows, Place, Run
from tidemark.spark.operators.keyed_process.columns import INPUT
from tidemark.spark.operators.keyed_process.layout import Elements


class ElementRows:
    """The elements with their times and inputs; knows the newest one that was taken, and counts them by input."""

    def __init__(self, rows: KeyRows, columns: Elements) -> None:
        self._rows = rows
        self._columns = columns
        self.taken = [0] * len(columns)
        self.failed = [0] * len(columns)
        self.row: Row | None = None
        self.number = 0
        self._run: Run | None = None
        self._nth = 0

    def __iter__(self) -> Iterator[tuple[Row, int, int]]:
        for run in self._rows.of(NEW):
            if len(self._columns) > 1:
                yield from self._of_both(run)
                continue
            self._run = run
            self.taken[0] += run.stop - run.start
            for nth, (row, time) in enumerate(zip(run.rows(self._columns[0]), run.values(TIME), strict=True)):
                self.row, self._nth = row, nth
                yield row, time, 0  # type: ignore[misc]

    def _of_both(self, run: Run) -> Iterator[tuple[Row, int, int]]:
        columns = [[(name, run.values(stored)) for name, stored in each.items()] for each in self._columns]
        for nth, (number, time) in enumerate(zip(run.values(INPUT), run.values(TIME), strict=True)):
            row = {name: values[nth] for name, values in columns[number]}  # type: ignore[call-overload]
            self.row, self._run, self._nth, self.number = row, run, nth, number  # type: ignore[assignment]
            self.taken[self.number] += 1
            yield row, time, number  # type: ignore[misc]

    def fail(self) -> None:
        """Count the newest element as one that failed."""
        self.failed[self.number] += 1

    @property
    def accepted(self) -> list[int]:
        """The elements that did not fail, by input."""
        return [taken - failed for taken, failed in zip(self.taken, self.failed, strict=True)]

    @property
    def place(self) -> Place:
        """The place of the newest element."""
        if self._run is None:
            raise ValueError("no element was taken")
        return Place(self._run.batch, self._run.start + self._nth)


class ElementBatches:
    """The elements in batches, as Arrow passes them to the task.

    Args:
        rows: of the key.
        columns: of elements by their names in the stream.
        walk: which knows the number of the element that is processed in its batch.
    """

    def __init__(self, rows: KeyRows, columns: Mapping[str, str], walk: BatchWalk) -> None:
        self._rows = rows
        self._columns = columns
        self._walk = walk
        self._run: Run | None = None
        self.taken = [0]
        self.failed = [0]

    def __iter__(self) -> Iterator[ElementBatch]:
        for run in self._rows.of(NEW):
            self._run = run
            self.taken[0] += run.stop - run.start
            yield ElementBatch(run.batch_of(self._columns), run.batch.column(TIME).slice(run.start, run.stop - run.start))

    def fail(self) -> None:
        """Count an element that failed."""
        self.failed[0] += 1

    @property
    def accepted(self) -> list[int]:
        """The number of elements that did not fail."""
        return [self.taken[0] - self.failed[0]]

    @property
    def row(self) -> Row | None:
        """The first element of the call, None before any."""
        if self._run is None:
            return None
        found: list[dict[str, object]] = self._run.batch_of(self._columns).slice(self._walk.start, 1).to_pylist()
        return found[0]

    @property
    def place(self) -> Place:
        """The place of the first element of the call."""
        if self._run is None:
            raise ValueError("no element was taken")
        return Place(self._run.batch, self._run.start + self._walk.start)
