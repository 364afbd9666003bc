"""The benchmark of savepoints: what it records, what the documents say of it, and that it measures what it says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.__main__ import PAGE, RESULTS, beside_earlier, chosen, write_documents
from benchmarks.latency import latency_workloads
from benchmarks.records import Record, SavepointFigures, Spread, read_records
from benchmarks.report import headline
from benchmarks.savepoints import LOADS, SavepointWorkload, measure_savepoints
from benchmarks.workloads import standard_workloads
from tests.seeds import only_long

FIGURES = SavepointFigures(
    keys=10_000_000,
    state_bytes=300 * 2**20,
    state_files=5,
    take_ms=Spread(12, 10, 90),
    command_ms=Spread(800, 790, 1_100),
    rescale_ms=1_234.6,
    rescale_epochs=2,
    spark_ms=Spread(5_000, 4_000, 6_000),
    restore_ms=Spread(3_000, 2_900, 3_100),
)
RECORD = Record(
    workload="savepoints",
    engine="tidemark",
    title="Some keys",
    rows=1_000,
    runs=3,
    events_per_second=None,
    epoch_ms=None,
    peak_memory_bytes=2**30,
    late_kept=0,
    late_lost=0,
    cells_checked=0,
    cores=2,
    driver_memory="6g",
    versions={"python": "3.11.7"},
    savepoints=FIGURES,
)


def test_the_documents_say_what_was_measured(tmp_path: Path) -> None:
    write_documents([RECORD], tmp_path)
    assert read_records(tmp_path / RESULTS) == (RECORD,)
    page = (tmp_path / PAGE).read_text(encoding="utf-8")
    assert "Some keys: 300 MiB in 5 files. 3 runs each." in page
    assert "| savepoint of the running job | 12 | 10 to 90 |" in page
    assert "| restore: from Spark's start to the first epoch | 3,000 | 2,900 to 3,100 |" in page
    assert "in effect 1,235 ms after it was asked for; epochs that began at the old one meanwhile: 2." in page
    assert headline([RECORD]) == ("savepoints: alone",)
    again = replace(RECORD, runs=1)
    assert beside_earlier([again], tmp_path) == (again,)


def test_it_is_measured_only_when_asked_for() -> None:
    drained, live, workload = standard_workloads(20_000), latency_workloads(5), SavepointWorkload(1_000)
    assert chosen(drained, live, None, savepoints=workload) == (drained, ())
    assert chosen(drained, live, ["savepoints"], savepoints=workload) == ((), (workload,))


def test_all_keys_are_loaded_before_some_of_them_come_again() -> None:
    fares = SavepointWorkload(10_000).fares
    load, touch = fares.stages
    assert (load.kind, load.files, load.total_rows, touch.rows) == ("load", LOADS, 10_000, 1_000)


@only_long
@pytest.mark.spark
@pytest.mark.slow
def test_savepoints_are_measured(tmp_path: Path) -> None:
    record = measure_savepoints(SavepointWorkload(2_000, rounds=1), tmp_path, memory="1g")
    found = record.savepoints
    assert found is not None
    assert (found.keys, record.engine) == (2_000, "tidemark")
    assert min(found.take_ms.min, found.command_ms.min, found.restore_ms.min, found.spark_ms.min) > 0
    assert found.state_files >= 1
    # The driver's watch looks every three seconds, and epochs are a second apart or more.
    assert 0 <= found.rescale_epochs <= 5
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("savepoints-")] == []
