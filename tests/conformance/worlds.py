"""Runs of the conformance suite: all cases in one job, epoch by epoch, and the same by the harness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

import tidemark as tm
from tests.conformance.cases import BOUND_MS, Case, Element, source
from tidemark.graph.checks.changelogs import changelog_keys
from tidemark.state.log.progress import EpochProgress, OperatorProgress
from tidemark.testing import ManualClock, OperatorHarness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = 1_800_000_000_000

Rows = Counter[str]
"""Rows as texts, with how often each is there."""


@dataclass(frozen=True)
class Seen:
    """What one epoch did to one operator: its results, the rows of its side outputs by counter, and its counts."""

    results: Rows
    sides: Mapping[str, Rows]
    counts: Mapping[str, int]


def texts(rows: Iterable[Mapping[str, Any]]) -> Rows:
    """Return rows as texts that do not depend on who made them; the epoch of a change is left out, which each run counts for itself."""
    return Counter(str({name: plain(value) for name, value in row.items() if name != "epoch"}) for row in rows)


def plain(value: object) -> object:
    """Return structs and tuples as lists of their values, and instants in milliseconds."""
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, Mapping):
        return [plain(item) for item in value.values()]
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


class World:
    """A job with all cases, run in a session.

    Args:
        spark: the session.
        folder: of the job's store.
        cases: what it has.
        epochs: its input.
        name: of the job.
        parallelism: of the job.
    """

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        cases: Mapping[str, Case],
        epochs: Sequence[Sequence[Element]],
        *,
        name: str = "conformance",
        parallelism: int | None = None,
    ) -> None:
        self.spark = spark
        self.cases = cases
        self.store = str(folder / "store")
        self._prefix = f"{folder}/{name}"
        stream = source(epochs)
        outputs, self._sides = {}, dict[str, dict[str, str]]()
        for case in cases.values():
            made = case.stream(stream)
            # Of a changelog all changes are compared, also the rows before updates.
            shown = made if changelog_keys(made.node) is None else made.as_elements()
            outputs[case.name] = tm.memory(shown, self._table(case.name))
            self._sides[case.name] = {counter: f"{case.name}-{counter}" for counter in case.tags}
            for counter, tag in case.tags.items():
                output = self._sides[case.name][counter]
                outputs[output] = tm.memory(made.side_output(tag), self._table(output))
        self.job = tm.Job(name, outputs=outputs, store=self.store, parallelism=parallelism)

    def kept(self) -> dict[str, int]:
        """Return how many rows the main table of each operator's state has; none for one that keeps no state."""
        stored = tm.savepoint(self.job, store=self.store)
        tables = {name: [*stored.tables(name, self.spark).values()] for name in self.cases}
        named = [found[0].selectExpr(f"'{name}' AS name") for name, found in tables.items() if found]
        counts = Counter(row["name"] for row in reduce(DataFrame.unionAll, named).collect())
        return {name: counts[name] for name in self.cases}

    def run(self, **settings: Any) -> list[dict[str, Seen]]:
        """Run it; return what each epoch did, by case."""
        found: list[dict[str, Seen]] = []

        def after(epoch: EpochProgress) -> None:
            found.append({name: self._seen(name, epoch.operators[name]) for name in self.cases})

        tm.run(self.job, spark=self.spark, clock=ManualClock(NOW), on_epoch=after, handle_signals=False, **settings)
        return found

    def _seen(self, name: str, progress: OperatorProgress) -> Seen:
        counts = {"in": progress.rows_in, "accepted": progress.rows_accepted, "late": progress.rows_late, **progress.counters}
        return Seen(
            texts(self._taken(name)),
            {counter: texts(self._taken(output)) for counter, output in self._sides[name].items()},
            {counter: rows for counter, rows in counts.items() if rows},
        )

    def _table(self, output: str) -> str:
        return f"{self._prefix}/{output}"

    def _taken(self, output: str) -> list[dict[str, Any]]:
        """Return the rows that came since the last call."""
        table = tm.memory_table(self._table(output))
        rows = [] if table is None else table.to_pylist()
        tm.clear_memory(self._table(output))
        # The harness gives changes of a changelog without the number of their epoch.
        return [{name: value for name, value in row.items() if name != "epoch" or "operation" not in row} for row in rows]


def by_harness(case: Case, epochs: Sequence[Sequence[Element]]) -> list[Seen]:
    """Return what the operator's contract says that each epoch does, the end of input after the last."""
    return run_harness(OperatorHarness(case.stream(source(epochs))), case, [*epochs, []], to_the_end=True)


def kept_by_harness(case: Case, epochs: Sequence[Sequence[Element]]) -> int:
    """Return how many rows of state the contract says that there are after some epochs."""
    harness = OperatorHarness(case.stream(source(epochs)))
    run_harness(harness, case, epochs, to_the_end=False)
    return len(harness.state())


def run_harness(harness: OperatorHarness, case: Case, epochs: Sequence[Sequence[Element]], *, to_the_end: bool) -> list[Seen]:
    """Give epochs to a harness; the last is the end of input, where that is asked for."""
    found: list[Seen] = []
    newest = None
    for number, epoch in enumerate(epochs):
        before = (harness.counts, {counter: len(harness.side_output(tag)) for counter, tag in case.tags.items()})
        for when, key, value in epoch:
            port, row = case.arrives({"at": when, "k": key, "v": value})
            harness.process(row, at=when, port=port)
            newest = max(newest or when, when)
        last = to_the_end and number == len(epochs) - 1
        rows = harness.end_input() if last or newest is None else harness.advance_watermark(round(newest.timestamp() * 1000) - BOUND_MS - 1)
        counts = {counter: rows_now - before[0].get(counter, 0) for counter, rows_now in harness.counts.items()}
        found.append(
            Seen(
                texts(rows),
                {counter: texts(harness.side_output(tag)[before[1][counter] :]) for counter, tag in case.tags.items()},
                {counter: count for counter, count in counts.items() if count},
            )
        )
    return found
