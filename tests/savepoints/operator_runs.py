"""Runs the job with every operator, drained to the end of its input, and says which rows each epoch gave each output."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable

import tidemark as tm
from tests.engine.drive import Memory
from tests.savepoints.every_operator import names_beside, streams_of
from tests.savepoints.joined_streams import write_names
from tidemark.graph.model.nodes import StatefulNode, walk
from tidemark.spark.operators.registry.runtimes import runtime_of
from tidemark.state.log.progress import EpochProgress
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = 1_700_000_000_000
CLOCK = (0, 700, 1_500, 3_900)
"""Processing time of each epoch, from ``NOW`` on: windows of a second close at some of them."""

TABLES: Mapping[str, str] = {"tumbling": "upsert", "sessions": "upsert", "whole": "append"}
"""Outputs that are Delta tables; the others are kept in memory."""

Rows = Mapping[str, list[str]]
"""Rows of each output as sorted texts."""


@dataclass(frozen=True)
class Ran:
    """A run: its lineage, and the rows that each of its epochs gave to the outputs in memory."""

    lineage: str
    epochs: list[Rows]


@dataclass(frozen=True)
class OperatorRuns:
    """Runs jobs on the files in ``landing``; ``store`` and tables lie below ``folder``. Other outputs than these are left out.

    ``clock`` is the processing time of each epoch, from ``NOW`` on.
    """

    spark: SparkSession
    folder: Path
    outputs: Collection[str] | None = None
    clock: Sequence[int] = CLOCK

    @property
    def landing(self) -> Path:
        """Where the sources' files are."""
        return self.folder / "landing"

    @property
    def store(self) -> str:
        """Root of the job store."""
        return str(self.folder / "store")

    def job(self, name: str) -> tuple[tm.Job, Memory]:
        """Return the job under a name, and its outputs in memory."""
        memory = Memory(f"{self.folder}/{name}")
        write_names(names_beside(self.landing))
        outputs = {
            output: self._table(stream, name, output) if output in TABLES else memory.sink(stream, output)
            for output, stream in streams_of(self.landing).items()
            if self.outputs is None or output in self.outputs
        }
        return tm.Job(name, outputs=outputs, store=self.store), memory

    def _table(self, stream: tm.Stream, name: str, output: str) -> tm.Output:
        mode = TABLES[output]
        path = str(self.folder / name / output)
        return tm.delta(stream, path, mode="upsert") if mode == "upsert" else tm.delta(stream, path)

    def run(
        self,
        name: str = "job",
        *,
        first: int = 0,
        turns: Sequence[int] = (2,),
        restore: tm.Restore | None = None,
        max_epochs: int | None = None,
    ) -> Ran:
        """Run a job to the end of its input.

        Args:
            name: its name.
            first: the epoch that it begins with.
            turns: numbers of partitions, one epoch after the other.
            restore: from which savepoint.
            max_epochs: stop after so many epochs.
        """
        job, memory = self.job(name)
        clock = ManualClock(NOW + self.clock[first])
        seen: list[Rows] = []
        partitions = cycle(turns)

        def after(progress: EpochProgress) -> None:
            seen.append(rows_of_epoch(memory, progress))
            clock.set(NOW + self.clock[min(first + len(seen), len(self.clock) - 1)])

        result = tm.run(
            job,
            spark=self.spark,
            clock=clock,
            on_epoch=after,
            end_of_input=True,
            handle_signals=False,
            restore=restore,
            parallelism=lambda: next(partitions),
            max_epochs=max_epochs,
        )
        return Ran(result.lineage, seen)

    def rows_of_tables(self, name: str, versions: Mapping[str, int] | None = None) -> Rows:
        """Return the rows of a job's tables, in some versions or as they are; a table that had no rows yet is not there."""
        found = {}
        for output in TABLES:
            path = str(self.folder / name / output)
            there = DeltaTable.is_deltatable(path) if versions is None else output in versions
            version = None if versions is None else versions.get(output)
            found[output] = as_texts(DeltaTable(path, version=version).to_pyarrow_table().to_pylist()) if there else []
        return found


def rows_of_epoch(memory: Memory, progress: EpochProgress) -> Rows:
    """Return what an epoch put into memory sinks, and forget it.

    Sinks without rows are not read: for each that has never had any, its job's columns would be found.
    """
    shown = [name for name in memory.names if progress.outputs[name].rows]
    taken = Memory(memory.prefix, shown).take()
    return {name: as_texts(taken.get(name, [])) for name in memory.names}


def ways_of(stream: tm.Stream) -> set[tuple[str, type]]:
    """Return the kinds of the operators that a stream comes from, each with what runs it."""
    return {(node.KIND, type(runtime_of(node))) for node in operators_of(stream)}


def covering(streams: Mapping[str, tm.Stream], first: Collection[str]) -> list[str]:
    """Return few outputs, the ``first`` ones among them, that together have each kind of operator, run in each way that it is run."""
    shown = {output: ways_of(streams[output]) for output in first}
    for output, stream in streams.items():
        if not ways_of(stream) <= set().union(*shown.values()):
            shown[output] = ways_of(stream)
    for output in [*shown]:
        # What was taken first may be part of what came later.
        if output not in first and shown[output] <= set().union(*(ways for name, ways in shown.items() if name != output)):
            del shown[output]
    return [*shown]


def operators_of(stream: tm.Stream) -> list[StatefulNode]:
    """Return the operators that a stream comes from."""
    return [node for node in walk([stream.node]) if isinstance(node, StatefulNode)]


def require_rest(found: Rows, before: Rows, golden: Rows) -> None:
    """Make sure that tables begun at a savepoint have all that changed since, and nothing that is not in the end."""
    for output, rows in golden.items():
        assert set(rows) - set(before[output]) <= set(found[output]) <= set(rows), output
        assert len(found[output]) == len(set(found[output]))


def as_texts(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Return rows as sorted texts: instants as milliseconds, fractions to six digits, since the order of a sum is not fixed."""
    return sorted(json.dumps(_rounded(row), default=_plain, sort_keys=True) for row in rows)


def _plain(value: object) -> object:
    return round(value.timestamp() * 1000) if isinstance(value, datetime) else str(value)


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, Mapping):
        return {name: _rounded(item) for name, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value
