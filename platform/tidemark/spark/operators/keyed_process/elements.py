"""The new elements of a key, as the walk takes them: one after the other, or in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, repeat
from typing import TYPE_CHECKING

from tidemark.semantics.keyed_process.batch_walk import BatchWalk, first_row
from tidemark.semantics.keyed_process.context import Row
from tidemark.semantics.keyed_process.element_batches import ElementBatch
from tidemark.semantics.keyed_process.walk import Walked
from tidemark.spark.columns.expressions import TIME
from tidemark.spark.operators.keyed.columns import NEW
from tidemark.spark.operators.keyed.rows import KeyRows, Place, Run
from tidemark.spark.operators.keyed_process.columns import INPUT

if TYPE_CHECKING:
    # Only here: with the layout come all kinds of operators, which a worker does not need.
    from tidemark.spark.operators.keyed_process.layout import Elements


class ElementRows:
    """The elements with their times and inputs; counts them by input, and knows the newest one.

    Args:
        rows: of the key.
        columns: of elements by their names in the stream, for each input.
        walked: counts the elements whose processing has begun.
    """

    def __init__(self, rows: KeyRows, columns: Elements, walked: Walked) -> None:
        self._rows = rows
        self._columns = columns
        self._walked = walked
        self.taken = [0] * len(columns)
        self.failed = [0] * len(columns)
        self._run: Run | None = None
        self._walked_before = 0

    def __iter__(self) -> Iterator[tuple[Row, int, int]]:
        # Without a step of Python for each element.
        return chain.from_iterable(map(self._of_run, self._rows.of(NEW)))

    def _of_run(self, run: Run) -> Iterator[tuple[Row, int, int]]:
        self._run, self._walked_before = run, self._walked.elements
        if len(self._columns) > 1:
            return self._of_both(run)
        self.taken[0] += run.stop - run.start
        return zip(run.rows(self._columns[0]), run.values(TIME), repeat(0))  # type: ignore[arg-type]

    def _of_both(self, run: Run) -> Iterator[tuple[Row, int, int]]:
        for nth, (number, time) in enumerate(zip(run.values(INPUT), run.values(TIME), strict=True)):
            self.taken[number] += 1  # type: ignore[call-overload]
            yield self._row_of(run, nth), time, number  # type: ignore[misc]

    def _row_of(self, run: Run, nth: int) -> Row:
        at = run.start + nth
        if len(self._columns) == 1:
            return run.all.rows(self._columns[0])[at]
        number = run.all[INPUT][at]
        return {name: run.all[stored][at] for name, stored in self._columns[number].items()}  # type: ignore[call-overload]

    def fail(self) -> None:
        """Count the newest element as one that failed."""
        place = self.place
        number = 0 if len(self._columns) == 1 or self._run is None else self._run.all[INPUT][place.number]
        self.failed[number] += 1  # type: ignore[call-overload]

    @property
    def accepted(self) -> list[int]:
        """The elements that did not fail, by input."""
        if len(self.taken) == 1:
            return [self.taken[0] - self.failed[0]]
        return [taken - failed for taken, failed in zip(self.taken, self.failed, strict=True)]

    @property
    def row(self) -> Row | None:
        """The newest element, None before any."""
        nth = self._walked.elements - self._walked_before - 1
        return None if self._run is None or nth < 0 else self._row_of(self._run, nth)

    @property
    def place(self) -> Place:
        """The place of the newest element."""
        if self._run is None:
            raise ValueError("no element was taken")
        return Place(self._run.batch, self._run.start + self._walked.elements - self._walked_before - 1)


class ElementBatches:
    """The elements in batches, as they come to the task.

    Args:
        rows: of the key.
        columns: of elements by their names in the stream.
        walk: which knows the number of the element that is processed among those of the key.
    """

    def __init__(self, rows: KeyRows, columns: Mapping[str, str], walk: BatchWalk) -> None:
        self._rows = rows
        self._columns = columns
        self._walk = walk
        self._runs: list[tuple[int, Run]] = []
        self.taken = [0]
        self.failed = [0]

    def __iter__(self) -> Iterator[ElementBatch]:
        for run in self._rows.of(NEW):
            # Nobody asks for elements before the call that runs.
            while len(self._runs) > 1 and self._runs[1][0] <= self._walk.start:
                self._runs.pop(0)
            self._runs.append((self.taken[0], run))
            self.taken[0] += run.stop - run.start
            times = run.batch.column(TIME).slice(run.start, run.stop - run.start)
            yield ElementBatch(run.batch_of(self._columns), times, run.all.nbytes)

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
        if not self._runs:
            return None
        run, number = self._newest()
        return first_row(run.batch_of(self._columns).slice(number, 1))

    @property
    def place(self) -> Place:
        """The place of the first element of the call."""
        run, number = self._newest()
        return Place(run.batch, run.start + number)

    def _newest(self) -> tuple[Run, int]:
        """Return the first element of the call: its run, and its number there."""
        start = self._walk.start
        found = [(run, start - first) for first, run in self._runs if first <= start]
        if not found:
            raise ValueError("no element was taken")
        return found[-1]
