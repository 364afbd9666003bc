"""Runs whose prepared passes are noted, and what is compared between a run with them and one without."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import tidemark as tm
from tests.engine.lab import NOW, require_conservation
from tests.seeds import PROFILE
from tidemark.spark.prepared.prepared_pass import PreparedPass
from tidemark.state.log.progress import EpochProgress
from tidemark.state.log.records import StateFile
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEVER = 10**9
"""After so many epochs no plan is made."""


class Passes:
    """The prepared passes that ran, and those that were refused with their reasons."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ran: list[str] = []
        self.refused: dict[str, str] = {}
        self._monkeypatch = monkeypatch
        for name in ("run", "rows"):
            monkeypatch.setattr(PreparedPass, name, self._noted(getattr(PreparedPass, name)))
        monkeypatch.setattr(PreparedPass, "COMPARED_ALWAYS", True)

    def _noted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def noted(prepared: PreparedPass, paths: Sequence[Sequence[str]], numbers: Sequence[int], build: Any, **more: bool) -> Any:
            rows = method(prepared, paths, numbers, build, **more)
            if rows is not None:
                self.ran.append(prepared.name)
            if prepared.refused is not None:
                self.refused[prepared.name] = prepared.refused
            return rows

        return noted

    def compare_once(self) -> None:
        """Have what a plan makes compared once only, in the long profile always: a run of DataFrames is compared with all that it makes."""
        self._monkeypatch.setattr(PreparedPass, "COMPARED_ALWAYS", PROFILE == "long")

    def after(self, epochs: int) -> None:
        """Have plans made after so many epochs."""
        self._monkeypatch.setattr(PreparedPass, "PREPARED_AFTER", epochs)


@contextmanager
def noted_passes(monkeypatch: pytest.MonkeyPatch, *, after: int) -> Iterator[Passes]:
    """Yield the prepared passes of the runs within: plans are made after so many epochs, and compared once, in the long profile in each.

    What they make is compared with what DataFrames make, anyway.
    """
    with monkeypatch.context() as patch:
        passes = Passes(patch)
        patch.setattr(PreparedPass, "COMPARED_ALWAYS", PROFILE == "long")
        passes.after(after)
        yield passes


def run_noted(
    spark: SparkSession,
    job: tm.Job,
    monkeypatch: pytest.MonkeyPatch,
    *,
    after: int,
    on_epoch: Callable[[EpochProgress], None] | None = None,
) -> tuple[tm.RunResult, list[str]]:
    """Run a job to its end, with plans made after so many epochs; return the prepared passes that ran, of which none was refused."""
    with noted_passes(monkeypatch, after=after) as passes:
        done = tm.run(job, spark=spark, clock=ManualClock(NOW), end_of_input=True, on_epoch=on_epoch)
    assert passes.refused == {}, passes.refused
    for epoch in done.epochs:
        require_conservation(epoch)
    return done, passes.ran


def counted(epochs: Sequence[EpochProgress]) -> set[str]:
    """Return what epochs counted, a text for each number, without what they took and what they wrote where."""
    return {text for epoch in epochs for text in _texts(asdict(epoch), f"{epoch.epoch}")}


def _texts(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            if name not in ("job", "lineage", "duration_ms", "stages", "spark_jobs", "state_bytes", "bytes", "location"):
                yield from _texts(item, f"{path} {name}")
    else:
        yield f"{path}: {value!r}"


def versions(place: Path) -> list[list[str]]:
    """Return the content of each version of a table."""
    newest = DeltaTable(str(place)).version()
    return [sorted(map(str, DeltaTable(str(place), version=each).to_pyarrow_table().to_pylist())) for each in range(newest + 1)]


def state_rows(name: str, uids: Iterable[str], store: Path) -> dict[str, list[tuple[str, int, list[str]]]]:
    """Return the table, the epoch and the rows of each state file of operators, without nulls: a file may lack columns that are null."""
    record = tm.savepoints_of(name, store=str(store)).take("compared").record
    return {uid: sorted(map(partial(_file_rows, store / name), record.operators[uid].files)) for uid in uids}


def _file_rows(folder: Path, file: StateFile) -> tuple[str, int, list[str]]:
    rows = pq.ParquetFile(folder / file.path).read().to_pylist()
    assert len(rows) == file.rows
    texts = (str(sorted((name, value) for name, value in row.items() if value is not None)) for row in rows)
    return file.part, file.epoch, sorted(texts)
