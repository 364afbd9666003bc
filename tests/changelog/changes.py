"""Random changes of tables for tests: explicit operations, cut into epochs, and the content that they leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import tidemark as tm
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = 1_700_000_000_000
Row = dict[str, Any]
Key = tuple[object, ...]


@dataclass
class Table:
    """A table that changes: its content by key, and the changes so far as rows with their operation."""

    key: Sequence[str]
    content: dict[Key, Row] = field(default_factory=dict)
    changes: list[Row] = field(default_factory=list)

    def put(self, row: Row) -> None:
        """Insert a row, or have it replace the one with its key."""
        key = tuple(row[name] for name in self.key)
        if key in self.content:
            self._note(self.content[key], "update_before")
            self._note(row, "update_after")
        else:
            self._note(row, "insert")
        self.content[key] = row

    def delete(self, key: Key) -> None:
        """Delete a row."""
        self._note(self.content.pop(key), "delete")

    def _note(self, row: Row, operation: str) -> None:
        self.changes.append({**row, "op": operation})

    def take(self) -> list[Row]:
        """Return the changes since the last call."""
        found, self.changes = self.changes, []
        return found


def random_changes(
    seed: int, key: Sequence[str], row: Callable[[Random], Row], *, epochs: int, each: int
) -> tuple[list[list[Row]], list[list[Row]]]:
    """Return changes by epoch, and the content after each.

    Args:
        seed: of the random numbers.
        key: the columns of the key.
        row: makes a row; its key is one of few.
        epochs: how many.
        each: about how many changes in an epoch; some have one.
    """
    random, table = Random(seed), Table(key)
    changes: list[list[Row]] = []
    contents: list[list[Row]] = []
    for _ in range(epochs):
        for _ in range(random.choice([1, 1, each, each, 2 * each])):
            if table.content and random.random() < 0.35:
                table.delete(random.choice(list(table.content)))
            else:
                table.put(row(random))
        changes.append(table.take())
        contents.append(list(table.content.values()))
    return changes, contents


def stream_of(epochs: Sequence[Iterable[Row]], schema: str, *, name: str = "changes") -> tm.Stream:
    """Return a stream of rows in the order given: its time is the number of a row, in the column ``n``, which is added.

    Args:
        epochs: rows by epoch.
        schema: the DDL of the rows' columns.
        name: of the source.
    """
    names = [part.strip().split()[0] for part in schema.split(",")]
    number, numbered = 0, []
    for epoch in epochs:
        rows = []
        for row in epoch:
            number += 1
            rows.append((number, *(row[column] for column in names)))
        numbered.append(rows)
    given = tm.from_elements(epochs=numbered, schema=f"n BIGINT, {schema}")
    return tm.source(name, given, watermarks=tm.ascending(timestamp="n"))


class Histories:
    """Runs streams of changelogs and folds what an appending sink writes, epoch by epoch.

    Args:
        spark: the session.
        folder: of the store.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def run(
        self, streams: Mapping[str, tm.Stream], *, name: str = "job", parallelism: int | None = None, **settings: Any
    ) -> dict[str, list[list[Row]]]:
        """Return the history rows of each stream, by epoch."""
        outputs = {output: tm.memory(stream, f"{self._folder}/{name}/{output}") for output, stream in streams.items()}
        job = tm.Job(name, outputs=outputs, store=str(self._folder / f"store-{name}"), parallelism=parallelism)
        found: dict[str, list[list[Row]]] = {output: [] for output in streams}

        def after(epoch: object) -> None:
            del epoch
            for output in streams:
                table = tm.memory_table(f"{self._folder}/{name}/{output}")
                found[output].append([] if table is None else table.to_pylist())
                tm.clear_memory(f"{self._folder}/{name}/{output}")

        self.result = tm.run(job, spark=self._spark, clock=ManualClock(NOW), on_epoch=after, handle_signals=False, **settings)
        return found


def contents_of(history: Iterable[Sequence[Row]], key: Sequence[str], *, leave_out: Sequence[str] = ()) -> list[list[Row]]:
    """Return the content after each epoch, as text that can be compared; also that each change fits the content before.

    Args:
        history: rows with ``operation``, by epoch.
        key: the columns of the key.
        leave_out: columns that are not compared.
    """
    content: dict[Key, Row] = {}
    found = []
    for rows in history:
        seen: set[Key] = set()
        for row in rows:
            known = plain_key(row, key)
            assert known not in seen, f"two net changes of {known}"
            seen.add(known)
            shown = {name: value for name, value in row.items() if name not in ("operation", "epoch", *leave_out)}
            assert (row["operation"] == "insert") == (known not in content), row
            if row["operation"] == "delete":
                assert content.pop(known) == shown, f"{row} is not what was there"
            else:
                assert content.get(known) != shown, f"{row} changes nothing"
                content[known] = shown
        found.append(sorted_rows(content.values()))
    return found


def plain_key(row: Row, key: Sequence[str]) -> Key:
    """Return the key of a row, as text: NaN is one key."""
    return tuple(repr(row[name]) for name in key)


def sorted_rows(rows: Iterable[Row]) -> list[Row]:
    """Return rows in an order that depends on them alone."""
    return sorted(rows, key=repr)
