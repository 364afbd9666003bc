"""Random changes of two tables, the join of two tables by nested loops, and the content that a history of changes leads to."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidemark as tm
from tests.engine.lab import NOW, require_conservation
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
Table = dict[tuple[Any, ...], Row]
Change = tuple[str, Row]


@dataclass(frozen=True)
class Program:
    """Changes of a table by epoch, and its content after each."""

    epochs: list[list[Change]]
    contents: list[Table]


def random_program(
    drawn: random.Random, keys: Sequence[str], row: Callable[[], Row], others: Callable[[Row], Row], *, epochs: int, steps: int
) -> Program:
    """Return random inserts, updates and deletes.

    Args:
        drawn: the source of chance.
        keys: the columns that identify a row.
        row: makes a new row.
        others: makes another row with the same key.
        epochs: how many.
        steps: how many changes an epoch has at most.
    """
    table: Table = {}
    made, contents = list[list[Change]](), list[Table]()
    for _ in range(epochs):
        changes: list[Change] = []
        for _ in range(drawn.choice([0, 1, steps // 2, steps])):
            fresh = row()
            key = tuple(fresh[name] for name in keys)
            before = table.get(key)
            if before is None:
                changes.append(("insert", fresh))
                table[key] = fresh
            elif drawn.random() < 0.4:
                changes.append(("delete", before))
                del table[key]
            else:
                after = others(before)
                changes += [("update_before", before), ("update_after", after)]
                table[key] = after
        made.append(changes)
        contents.append(dict(table))
    return Program(made, contents)


def changelog(name: str, program: Program, schema: str, keys: Sequence[str]) -> tm.Stream:
    """Return a changelog of explicit changes."""
    columns = [part.split()[0] for part in schema.split(", ")]
    time, epochs = 0, list[list[tuple[Any, ...]]]()
    for changes in program.epochs:
        rows = []
        for operation, row in changes:
            time += 1
            rows.append((time, operation, *(row[column] for column in columns)))
        epochs.append(rows)
    given = tm.from_elements(epochs=epochs, schema=f"t BIGINT, operation STRING, {schema}")
    return tm.source(name, given, watermarks=tm.ascending(timestamp="t")).as_changelog(key=keys, operation="operation").select(*columns)


def joined(left: Iterable[Row], right: Iterable[Row], on: Sequence[tuple[str, str]], how: str) -> list[Row]:
    """Return the join of two tables by nested loops, with all columns of both; compared columns of one name are there once."""
    lefts, rights = list(left), list(right)

    def equal(one: Row, other: Row) -> bool:
        return all(one[mine] is not None and one[mine] == other[theirs] for mine, theirs in on)

    if how in {"semi", "anti"}:
        return [one for one in lefts if any(equal(one, other) for other in rights) == (how == "semi")]
    found = [{**other, **one} for one in lefts for other in rights if equal(one, other)]
    if how in {"left", "full"}:
        found += [dict(one) for one in lefts if not any(equal(one, other) for other in rights)]
    if how in {"right", "full"}:
        found += [dict(other) for other in rights if not any(equal(one, other) for one in lefts)]
    return found


def keyed(rows: Iterable[Mapping[str, Any]], keys: Sequence[str], columns: Sequence[str]) -> Table:
    """Return rows by key, with all columns; a key may not come twice."""
    found: Table = {}
    for row in rows:
        key = tuple(row.get(name) for name in keys)
        assert key not in found, key
        found[key] = {name: row.get(name) for name in columns}
    return found


def contents_of(history: Iterable[Mapping[str, Any]], keys: Sequence[str], epochs: int) -> list[Table]:
    """Return the content after each epoch that a history of net changes leads to."""
    by_epoch: dict[int, list[Row]] = {}
    for change in history:
        by_epoch.setdefault(change["epoch"], []).append(dict(change))
    table: Table = {}
    found = []
    for epoch in range(epochs):
        seen = set()
        for change in by_epoch.get(epoch, []):
            operation = change.pop("operation")
            del change["epoch"]
            key = tuple(change[name] for name in keys)
            assert key not in seen, f"two changes of {key} in epoch {epoch}"
            seen.add(key)
            assert (key in table) == (operation != "insert"), (operation, key, epoch)
            if operation == "delete":
                assert table.pop(key) == change, "the row that was there"
                continue
            assert table.get(key) != change, "a change that changes nothing"
            table[key] = change
        found.append(dict(table))
    return found


def run_history(
    spark: SparkSession, folder: Path, streams: Mapping[str, tm.Stream], *, parallelism: int | None = None
) -> dict[str, list[Row]]:
    """Run a job with these changelogs; return the history of each, and check the counts of each epoch."""
    tables = {name: f"{folder}/{name}" for name in streams}
    outputs = {name: tm.memory(stream, tables[name]) for name, stream in streams.items()}
    job = tm.Job("joins", outputs=outputs, store=str(folder / "store"), parallelism=parallelism)
    ran = tm.run(job, spark=spark, clock=ManualClock(NOW), end_of_input=True, handle_signals=False)
    for epoch in ran.epochs:
        require_conservation(epoch)
    found = {}
    for name, table in tables.items():
        rows = tm.memory_table(table)
        found[name] = [] if rows is None else rows.to_pylist()
        tm.clear_memory(table)
    return found
