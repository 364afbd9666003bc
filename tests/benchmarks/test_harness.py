"""The harness runs an engine and records it, and the documents say what the records say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.__main__ import PAGE, RESULTS, beside_earlier, main, write_documents
from benchmarks.comparison import Comparison, Step, compare
from benchmarks.records import Record, RunFigures, Spread, epoch_lengths, read_records, throughput
from benchmarks.report import headline
from benchmarks.workloads import standard_workloads

FAST = Record(
    workload="tumbling-1k",
    engine="tidemark",
    title="some fares",
    rows=1000,
    runs=3,
    events_per_second=Spread(4_000_000.0, 3_900_000.0, 4_100_000.0),
    epoch_ms=None,
    peak_memory_bytes=3 * 2**30,
    late_kept=77,
    late_lost=0,
    cells_checked=480,
    cores=2,
    driver_memory="6g",
    versions={"python": "3.11.7", "java": "17.0.1", "pyspark": "4.3.0", "tidemark": "0.1.0"},
)
SLOW = replace(FAST, engine="spark-rocksdb", events_per_second=Spread(2_000_000.0, 1.0, 2.0), late_kept=0, late_lost=66)
EPOCHS = replace(FAST, workload="small-epochs", events_per_second=None, epoch_ms=Spread(150.0, 140.0, 160.0))
SLOW_EPOCHS = replace(EPOCHS, engine="spark-rocksdb", epoch_ms=Spread(300.0, 290.0, 310.0))
ALL = (FAST, SLOW, EPOCHS, SLOW_EPOCHS)


def test_the_documents_are_written_from_the_records(tmp_path: Path) -> None:
    write_documents(ALL, tmp_path)
    assert read_records(tmp_path / RESULTS) == ALL
    page = (tmp_path / PAGE).read_text(encoding="utf-8")
    assert "| `tidemark` | 4,000,000 | 3,900,000 to 4,100,000 | 2.00 x | 3.0 GiB | 77 | 0 |" in page
    assert "| `spark-rocksdb` | 2,000,000 | 1 to 2 | 1.00 x | 3.0 GiB | 0 | 66 |" in page
    assert "| `tidemark` | 150 | 140 to 160 | 2.00 x |" in page
    assert "2 cores" in page
    assert str(tmp_path) not in page


def test_a_workload_that_is_measured_again_takes_the_place_of_its_records(tmp_path: Path) -> None:
    assert beside_earlier(ALL, tmp_path) == ALL
    write_documents(ALL, tmp_path)
    again = (replace(FAST, late_kept=1), replace(SLOW, late_kept=2))
    assert beside_earlier(again, tmp_path) == (*again, EPOCHS, SLOW_EPOCHS)
    assert beside_earlier((EPOCHS,), tmp_path) == (FAST, SLOW, EPOCHS)


def test_a_record_has_the_measure_that_was_taken(tmp_path: Path) -> None:
    write_documents(ALL, tmp_path)
    plain = json.loads((tmp_path / RESULTS).read_text(encoding="utf-8"))
    assert plain[0]["events_per_second"] == {"median": 4_000_000.0, "min": 3_900_000.0, "max": 4_100_000.0}
    assert ["epoch_ms" in record for record in plain] == [False, False, True, True]
    assert ["events_per_second" in record for record in plain] == [True, True, False, False]


def test_the_headline_is_the_ratio_of_medians() -> None:
    assert headline(ALL) == ("tumbling-1k: 2.00 x spark-rocksdb", "small-epochs: 2.00 x spark-rocksdb")


def test_figures_become_spreads() -> None:
    run = RunFigures(2.0, (900, 900, 10, 30, 20, 5), 1, 0, 0, 1, {})
    assert throughput([run, replace(run, seconds=4.0), replace(run, seconds=1.0)], 1000) == Spread(500, 250, 1000)
    assert epoch_lengths([run], skip=2, take=3) == Spread(20, 20, 20)


@pytest.mark.parametrize(
    ("setting", "arguments", "says"),
    [
        (("BENCH_ROWS", "many"), [], "BENCH_ROWS"),
        (("BENCH_RUNS", "0"), [], "BENCH_RUNS"),
        (("BENCH_ROWS", "2000"), ["--workload", "nothing"], "no workload nothing"),
        (("BENCH_ROWS", "2000"), ["--engine", "abacus"], "no engine"),
    ],
)
def test_bad_settings_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], setting: tuple[str, str], arguments: list[str], says: str
) -> None:
    monkeypatch.setenv(*setting)
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert says in said
    assert "Fix:" in said


@pytest.mark.spark
@pytest.mark.slow
def test_an_engine_is_measured_and_checked(tmp_path: Path) -> None:
    workload = standard_workloads(20_000)[0]
    steps: list[Step] = []
    (record,) = compare(Comparison([workload], ["tidemark"], 1, tmp_path, memory="1g"), steps.append)
    assert (record.workload, record.engine, record.rows, record.runs) == ("tumbling-1k", "tidemark", 20_000, 1)
    assert record.events_per_second is not None
    assert record.events_per_second.min == record.events_per_second.max > 0
    assert record.epoch_ms is None
    assert record.peak_memory_bytes > 200 * 2**20
    assert record.cells_checked > 10_000
    assert record.late_kept > 0
    assert record.late_lost == 0
    assert set(record.versions) == {"python", "java", "pyspark", "tidemark"}
    assert [step.figures is None for step in steps] == [True, False]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("run-")] == []
