"""The plans of a process function are kept between epochs, and do what new ones do."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemark as tm
from tests.engine.prepared_runs import Passes
from tests.seeds import PROFILE
from tidemark.errors import UserCodeError
from tidemark.spark.prepared.prepared_pass import PreparedPass
from tidemark.spark.sources import epoch_input

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FILES = 5 if PROFILE == "long" else 3
"""A plan is made in the second epoch and kept for the third."""

RETURNS = "k BIGINT, kind STRING, n BIGINT, total BIGINT"
Row = Mapping[str, Any]


class Totals:
    """Adds up by key, and by file, which a timer ends."""

    total = tm.value_state("BIGINT", default=0)

    def process(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        self.total.update(self.total.value() + element["v"])
        ctx.timer_service().register_event_time_timer(ctx.timestamp // 100 * 100 + 99)
        yield {"k": ctx.current_key["k"], "kind": "sum", "n": element["v"], "total": self.total.value()}

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> Iterator[Row]:
        yield {"k": ctx.current_key["k"], "kind": "timer", "n": timestamp, "total": self.total.value()}


class Connected(Totals):
    """The same of two streams."""

    process1 = Totals.process

    def process2(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        return self.process(element, ctx)


def values_of(number: int) -> list[tuple[int, int, int]]:
    """Return the rows of a file: key, time, value."""
    return [(n % 3, 100 * number + n, 10 * number + n) for n in range(9)]


def written(folder: Path) -> None:
    """Write a file for each epoch."""
    folder.mkdir()
    for number in range(FILES):
        keys, times, values = zip(*values_of(number), strict=True)
        kinds = (pa.int64(), pa.timestamp("ms", "UTC"), pa.int64())
        columns = [pa.array(column, kind) for column, kind in zip((keys, times, values), kinds, strict=True)]
        pq.write_table(pa.table(columns, names=["k", "at", "v"]), folder / f"{number}.parquet")


def stream_of(folder: Path, name: str = "rows") -> tm.Stream:
    files = tm.files(str(folder), format="parquet", schema="k BIGINT, at TIMESTAMP, v BIGINT", max_files_per_epoch=1)
    return tm.source(name, files, watermarks=tm.ascending(timestamp="at"))


def expected(*, times: int = 1) -> list[tuple[int, str, int, int]]:
    """Return all rows: the timer of a file fires with the first later element of any key."""
    found = []
    for key in range(3):
        total = 0
        for number in range(FILES):
            for _, _, value in (row for row in values_of(number) if row[0] == key):
                for _ in range(times):
                    total += value
                    found.append((key, "sum", value, total))
            if number < FILES - 1:
                found.append((key, "timer", 100 * number + 99, total))
    return sorted(found)


def results(folder: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in pq.read_table(folder).to_pylist())


def job_of(folder: Path, totals: tm.Stream) -> tm.Job:
    return tm.Job("totals", {"out": tm.parquet(totals, str(folder / "out"))}, store=str(folder / "store"))


@pytest.mark.parametrize("many", [False, True])
def test_elements_are_staged_and_keys_processed_by_plans_that_are_kept(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, *, many: bool
) -> None:
    if many:
        monkeypatch.setattr(epoch_input, "FEW_BYTES", 0)
    passes = Passes(monkeypatch)
    passes.after(0)
    written(tmp_path / "in")
    totals = stream_of(tmp_path / "in").key_by("k").process(Totals, returns=RETURNS).uid("totals")
    epochs = tm.run(job_of(tmp_path, totals), spark=spark).epochs
    assert results(tmp_path / "out") == expected()
    assert [epoch.operators["totals"].rows_in for epoch in epochs if epoch.rows_in] == [9] * FILES
    assert not passes.refused
    staged, processed = ([name for name in passes.ran if name.startswith(f"{kind} totals")] for kind in ("elements", "keys"))
    # The columns are known from the first epoch, which has no state.
    assert len(staged) == len(processed) == FILES - 1
    assert all(("in several" in name) == many for name in staged)


def test_those_of_connected_streams_are_kept_too(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = Passes(monkeypatch)
    passes.after(0)
    for name in ("a", "b"):
        written(tmp_path / name)
    first, second = (stream_of(tmp_path / name, name).key_by("k") for name in ("a", "b"))
    tm.run(job_of(tmp_path, first.connect(second).process(Connected, returns=RETURNS).uid("totals")), spark=spark)
    assert results(tmp_path / "out") == expected(times=2)
    assert not passes.refused
    assert len([name for name in passes.ran if name.startswith("elements totals")]) == FILES - 1


class Failing(Totals):
    """Fails at one element, and notes each attempt at it."""

    def __init__(self, notes: Path) -> None:
        self.notes = notes

    def process(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        if element["v"] == 24:
            with self.notes.open("a") as file:
                file.write("x")
            raise ValueError("no 24")
        return super().process(element, ctx)


def test_a_function_that_fails_is_not_called_again(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PreparedPass, "PREPARED_AFTER", 0)
    written(tmp_path / "in")
    notes = tmp_path / "notes"
    failing = stream_of(tmp_path / "in").key_by("k").process(Failing(notes), returns=RETURNS).uid("totals")
    with pytest.raises(UserCodeError, match=r"ValueError: no 24.*'v': 24") as raised:
        tm.run(job_of(tmp_path, failing), spark=spark)
    assert raised.value.uid == "totals"
    assert notes.read_text() == "x"
    totals = stream_of(tmp_path / "in").key_by("k").process(Totals, returns=RETURNS).uid("totals")
    tm.run(job_of(tmp_path, totals), spark=spark)
    assert results(tmp_path / "out") == expected()


class Days:
    """Emits the day of each element, and keeps the newest."""

    day = tm.value_state("STRING")

    def process(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        self.day.update(element["day"] or "none")
        ctx.timer_service().register_event_time_timer(ctx.timestamp + 1)
        yield {"v": element["v"], "day": self.day.value()}

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> Iterator[Row]:
        del ctx
        yield {"v": -timestamp, "day": self.day.value()}


def test_a_plan_over_plain_files_does_not_read_those_whose_folders_name_values(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = Passes(monkeypatch)
    passes.after(0)
    # Of the fourth file all rows are rejected, while timers of the third are due.
    for number in range(6):
        folder = tmp_path / "in" / ("day=1" if number > 3 else "")
        folder.mkdir(parents=True, exist_ok=True)
        times = pa.array([10 * number], pa.timestamp("ms", "UTC"))
        file = folder / f"{number}.parquet"
        pq.write_table(pa.table({"k": [1], "at": times, "v": [number if number != 3 else 100]}), file)
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
    files = tm.files(str(tmp_path / "in"), format="parquet", schema="k BIGINT, at TIMESTAMP, v BIGINT, day STRING", max_files_per_epoch=1)
    rows = tm.source("rows", files, watermarks=tm.ascending(timestamp="at"))
    days = rows.filter("v < 100").key_by("k").process(Days, returns="v BIGINT, day STRING").uid("days")
    tm.run(job_of(tmp_path, days), spark=spark)
    elements = [(0, "none"), (1, "none"), (2, "none"), (4, "1"), (5, "1")]
    assert results(tmp_path / "out") == sorted([*elements, (-1, "none"), (-11, "none"), (-21, "none"), (-41, "1")])
    assert len([name for name in passes.ran if name.startswith("keys days")]) == 5
    assert not passes.refused
