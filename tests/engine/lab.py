"""Small jobs over a few elements: defined in a line, run to the end of input, and read back with their counts held against their rows."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidemark as tm
from tidemark.state.log.progress import EpochProgress
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemark.semantics.watermarks.watermarks import WatermarkStrategy

MINUTE = 60_000
NOW = 1_700_000_000_000
IN_ORDER = tm.bounded_out_of_orderness("0 ms", timestamp="t")


@dataclass(frozen=True)
class Ran:
    """What a run left: its epochs, and the rows of each memory output without the columns that tell the pane."""

    result: tm.RunResult
    rows: Mapping[str, list[dict[str, Any]]]

    @property
    def epochs(self) -> tuple[EpochProgress, ...]:
        """The epochs, oldest first."""
        return self.result.epochs

    def of(self, output: str, *columns: str) -> list[Any]:
        """Return the values of columns in an output's rows, sorted as text; one column gives bare values."""
        rows = [tuple(row[column] for column in columns) for row in self.rows[output]]
        return sorted((row[0] if len(columns) == 1 else row for row in rows), key=str)


class Lab:
    """Where jobs are run: a session and a folder. ``clock`` stands still at ``NOW``."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.clock = ManualClock(NOW)

    def run(self, streams: Mapping[str, tm.Stream], *, job: str = "job", end_of_input: bool = True) -> Ran:
        """Run a job with these streams bound to memory sinks, and check that no row was lost or made on the way."""
        tables = {name: f"{self.folder}/{job}/{name}" for name in streams}
        outputs = {name: tm.memory(stream, tables[name]) for name, stream in streams.items()}
        return self.run_job(tm.Job(job, outputs=outputs, store=str(self.folder / "store")), tables, end_of_input=end_of_input)

    def run_job(self, job: tm.Job, tables: Mapping[str, str], *, end_of_input: bool = True) -> Ran:
        """Run a job; ``tables`` are the names of its memory sinks by output."""
        result = tm.run(job, spark=self.spark, clock=self.clock, end_of_input=end_of_input, handle_signals=False)
        rows = {}
        for name, table in tables.items():
            found = tm.memory_table(table)
            rows[name] = [] if found is None else found.to_pylist()
            tm.clear_memory(table)
        for epoch in result.epochs:
            require_conservation(epoch)
        for name, found_rows in rows.items():
            assert sum(epoch.outputs[name].rows for epoch in result.epochs) == len(found_rows), name
        return Ran(result, rows)


def run_on(panes: tm.Stream, spark: SparkSession, folder: Path, *, waits: Sequence[int], name: str = "job") -> list[EpochProgress]:
    """Run a job without an end: after each epoch the clock goes on by the next of ``waits``; after the last of them it stops."""
    clock, stop, seen = ManualClock(NOW), threading.Event(), list[EpochProgress]()

    def after(epoch: EpochProgress) -> None:
        seen.append(epoch)
        if len(seen) > len(waits):
            stop.set()
        else:
            clock.advance(waits[len(seen) - 1])

    job = tm.Job(name, outputs={"panes": tm.memory(panes, f"{folder}/{name}")}, store=str(folder / "store"))
    tm.run(job, spark=spark, trigger="50 milliseconds", clock=clock, stop=stop, on_epoch=after, handle_signals=False)
    for epoch in seen:
        require_conservation(epoch)
    return seen


def elements(*epochs: Sequence[tuple[object, ...]], schema: str, name: str = "e", **settings: Any) -> tm.Stream:
    """Return a stream of elements; ``watermarks`` and ``malformed_to`` as for ``tm.source``."""
    watermarks: WatermarkStrategy = settings.pop("watermarks", IN_ORDER)
    return tm.source(name, tm.from_elements(epochs=epochs, schema=schema), watermarks=watermarks, **settings)


def require_conservation(epoch: EpochProgress) -> None:
    """Check what must hold of the counts of every epoch."""
    for source in epoch.sources.values():
        assert source.rows_read == source.rows_passed + source.rows_malformed
        assert source.rows_passed == sum(split.rows for split in source.splits.values())
    for passed in epoch.filters.values():
        assert passed.rows_in == passed.rows_passed + passed.rows_rejected
    for operator in epoch.operators.values():
        assert operator.rows_in == operator.rows_accepted + operator.rows_late + sum(operator.counters.values())
    assert epoch.rows_in == sum(source.rows_read for source in epoch.sources.values())
    assert epoch.rows_out == sum(output.rows for output in epoch.outputs.values())
