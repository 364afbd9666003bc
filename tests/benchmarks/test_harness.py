"""The harness runs an engine and records it, and the documents say what the records say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest

from benchmarks.__main__ import LEAST_EPOCHS, LEAST_ROWS, PAGE, RESULTS, beside_earlier, main, write_documents
from benchmarks.agreement import truth_of
from benchmarks.comparison import Comparison, Step, compare
from benchmarks.engines import ENGINES, cores
from benchmarks.fares import FaresPlan, ensure_fares
from benchmarks.growth import GrowthPlan, Stage
from benchmarks.processes import MeasurementError
from benchmarks.records import (
    Growth,
    Record,
    RunFigures,
    Spread,
    Stand,
    epoch_lengths,
    growth_of,
    read_records,
    throughput,
    write_records,
)
from benchmarks.report import headline
from benchmarks.shapes import Shape
from benchmarks.verdicts import DisagreementError
from benchmarks.workloads import LARGE_STATE, SMALL_STATE, Phase, Workload, standard_workloads
from tests.seeds import only_long
from tidemark.errors import SetupError

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
GROWN = Growth(Stand(Spread(200.0, 190.0, 210.0), 220.4, 10_000, 3), Stand(Spread(220.0, 210.0, 230.0), 260.6, 1_000_000, 12))
GROWING = replace(FAST, workload="growing-windows", runs=1, events_per_second=None, growth=GROWN)
SLOW_GROWN = Growth(Stand(Spread(100.0, 90.0, 110.0), 101.0, 10_000), Stand(Spread(1_100.0, 1_000.0, 1_200.0), 1_150.0, 1_000_000))
SLOW_GROWING = replace(GROWING, engine="spark-rocksdb", growth=SLOW_GROWN)
ALL = (FAST, SLOW, EPOCHS, SLOW_EPOCHS, GROWING, SLOW_GROWING)


def test_the_documents_are_written_from_the_records(tmp_path: Path) -> None:
    write_documents(ALL, tmp_path)
    assert read_records(tmp_path / RESULTS) == ALL
    page = (tmp_path / PAGE).read_text(encoding="utf-8")
    assert "| `tidemark` | 4,000,000 | 3,900,000 to 4,100,000 | 2.00 x | 3.0 GiB | 77 | 0 |" in page
    assert "| `spark-rocksdb` | 2,000,000 | 1 to 2 | 1.00 x | 3.0 GiB | 0 | 66 |" in page
    assert "| `tidemark` | 150 | 140 to 160 | 2.00 x |" in page
    assert "| `tidemark` | 200 → 220 | 1.10 x | 220 → 261 | 10,000 → 1,000,000 | 3 → 12 | 5.00 x | 3.0 GiB |" in page
    assert "| `spark-rocksdb` | 100 → 1,100 | 11.00 x | 101 → 1,150 | 10,000 → 1,000,000 | - | 1.00 x | 3.0 GiB |" in page
    assert "3 runs each" in page
    assert "1 run each" in page
    assert "2 cores" in page
    assert str(tmp_path) not in page


def test_a_workload_that_is_measured_again_takes_the_place_of_its_records(tmp_path: Path) -> None:
    assert beside_earlier(ALL, tmp_path) == ALL
    write_documents(ALL, tmp_path)
    again = (replace(FAST, late_kept=1), replace(SLOW, late_kept=2))
    assert beside_earlier(again, tmp_path) == (*again, *ALL[2:])
    assert beside_earlier((EPOCHS,), tmp_path) == (FAST, SLOW, EPOCHS, GROWING, SLOW_GROWING)


def test_a_record_has_the_measure_that_was_taken(tmp_path: Path) -> None:
    write_documents(ALL, tmp_path)
    plain = json.loads((tmp_path / RESULTS).read_text(encoding="utf-8"))
    assert plain[0]["events_per_second"] == {"median": 4_000_000.0, "min": 3_900_000.0, "max": 4_100_000.0}
    assert ["epoch_ms" in record for record in plain] == [False, False, True, True, False, False]
    assert ["events_per_second" in record for record in plain] == [True, True, False, False, False, False]
    assert ["growth" in record for record in plain] == [False, False, False, False, True, True]


def test_records_of_earlier_releases_are_read(tmp_path: Path) -> None:
    """They know no growth, and their workloads' inputs had no other shape than hourly windows."""
    write_records(tmp_path / RESULTS, [FAST, EPOCHS])
    plain = json.loads((tmp_path / RESULTS).read_text(encoding="utf-8"))
    assert set(plain[0]) == {
        *("workload", "engine", "title", "rows", "runs", "events_per_second", "peak_memory_bytes", "late_kept", "late_lost"),
        *("cells_checked", "cores", "driver_memory", "versions"),
    }
    assert read_records(tmp_path / RESULTS) == (FAST, EPOCHS)


def test_the_headline_is_the_ratio_of_medians() -> None:
    assert headline(ALL) == (
        "tumbling-1k: 2.00 x spark-rocksdb",
        "small-epochs: 2.00 x spark-rocksdb",
        "growing-windows: 5.00 x spark-rocksdb; its last epochs take 1.10 x as long as its first",
    )


def test_figures_become_spreads() -> None:
    run = RunFigures(2.0, (900, 900, 10, 30, 20, 5), 1, 0, 0, 1, {})
    assert throughput([run, replace(run, seconds=4.0), replace(run, seconds=1.0)], 1000) == Spread(500, 250, 1000)
    assert epoch_lengths([run], skip=2, take=3) == Spread(20, 20, 20)


def test_growth_is_taken_from_two_ends_of_a_run() -> None:
    run = RunFigures(2.0, (9, 10, 20, 90, 40, 90), 1, 0, 0, 1, {}, state_rows=(1, 2, 3, 4, 5, 6), state_files=(1, 8, 2, 3, 4, 5))
    growth = growth_of([run, replace(run, epoch_ms=(0, 30, 30, 0, 60, 60))], first=(1, 2), last=(4, 2))
    assert growth.first == Stand(Spread(22.5, 15.0, 30.0), 22.5, 3, 8)
    assert growth.last == Stand(Spread(62.5, 60.0, 65.0), 62.5, 6, 5)
    assert growth_of([replace(run, state_files=())], first=(1, 2), last=(4, 2)).last.state_files is None


def test_a_workload_may_have_fewer_rounds(tmp_path: Path) -> None:
    workloads = {workload.name: workload for workload in standard_workloads(20_000)}
    few, many = workloads["sliding-sparse"], workloads["tumbling-1k"]
    assert (few.rounds_of(3), many.rounds_of(3)) == (1, 3)
    assert Comparison([few, many], ENGINES, 3, tmp_path).measurements == (1 + 3) * len(ENGINES)


def test_a_workload_may_be_too_large_for_an_engine(tmp_path: Path) -> None:
    workloads = {workload.name: workload for workload in standard_workloads(20_000)}
    two, all_three = workloads["sliding-200k"], workloads["sliding-1k"]
    comparison = Comparison([two, all_three], ("spark-heap", "tidemark"), 1, tmp_path)
    assert comparison.engines_of(two) == ["tidemark"]
    assert comparison.engines_of(all_three) == ["spark-heap", "tidemark"]
    assert comparison.measurements == 3


def test_growing_workloads_measure_small_epochs_before_and_behind_the_large_ones() -> None:
    for workload in standard_workloads(20_000, epochs=50):
        if workload.measure == "growth":
            assert isinstance(workload.fares, GrowthPlan)
            ends = list(accumulate(stage.files for stage in workload.fares.stages))
            touches = [
                range(end - stage.files, end) for stage, end in zip(workload.fares.stages, ends, strict=True) if stage.kind == "touch"
            ]
            for phase, touched in zip(workload.phases, [touches[0], touches[-1]], strict=True):
                assert {phase.skip, phase.skip + phase.take - 1} <= set(touched)
            assert workload.least_epochs < workload.fares.files


def test_sliding_windows_of_many_drivers_have_as_many_rows_as_stock_spark_can_copy() -> None:
    rows = {workload.name: workload.fares.total_rows for workload in standard_workloads(20_000_000)}
    assert (rows["sliding-1k"], rows["sliding-200k"], rows["session-200k"]) == (20_000_000, 2_000_000, 20_000_000)
    assert all(
        f"{rows[workload.name]:,} fares" in workload.title
        for workload in standard_workloads(20_000_000)
        if workload.measure == "throughput"
    )


def test_the_least_input_still_closes_windows(tmp_path: Path) -> None:
    for workload in standard_workloads(LEAST_ROWS, epochs=LEAST_EPOCHS):
        if workload.measure == "throughput":
            truth = truth_of(workload.fares, ensure_fares(workload.fares, tmp_path), workload.shape)
            with pytest.raises(DisagreementError, match=r"has results of 0 windows|another count"):
                truth.judge("idle", tmp_path / "nothing")


def test_the_large_state_is_a_hundred_times_the_small_one() -> None:
    assert LARGE_STATE == 100 * SMALL_STATE


def test_what_is_measured_is_kept_when_a_later_workload_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fails_at_the_second(*_: object) -> Iterator[tuple[Record, ...]]:
        yield (FAST,)
        raise MeasurementError("the second failed", fix="mend it")

    def cannot_be_installed(_: Path) -> Path:
        raise SetupError("there is no network", fix="connect")

    monkeypatch.setattr("benchmarks.__main__.compare", fails_at_the_second)
    monkeypatch.setattr("benchmarks.__main__.flink_python", cannot_be_installed)
    write_documents([EPOCHS], tmp_path)
    assert main(["--output", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "PyFlink is left out: [TM600] there is no network" in said
    assert "the second failed" in said
    assert read_records(tmp_path / RESULTS) == (FAST, EPOCHS)


@pytest.mark.parametrize(
    ("setting", "arguments", "says"),
    [
        (("BENCH_ROWS", "many"), [], "BENCH_ROWS"),
        (("BENCH_RUNS", "0"), [], "BENCH_RUNS"),
        (("BENCH_EPOCHS", "9"), [], "BENCH_EPOCHS"),
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
    # What is measured means nothing here, so that little has to be warm.
    workload = replace(standard_workloads(20_000)[0], warm_fares=FaresPlan(2_000, 1_000, files=4, seed=2))
    steps: list[Step] = []
    ((record,),) = compare(Comparison([workload], ["tidemark"], 1, tmp_path, memory="1g"), steps.append)
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


@only_long
@pytest.mark.spark
@pytest.mark.slow
def test_growth_is_measured_at_both_ends(tmp_path: Path) -> None:
    stages = (
        Stage("load", 1, (0, 50)),
        Stage("touch", 4, (0, 50), 10),
        Stage("load", 1, (50, 500)),
        Stage("touch", 4, (0, 500), 10),
        Stage("close", 1, (0, 50), 10),
    )
    shape = Shape("tumbling", "30 days")
    fares = GrowthPlan(stages, close_after_ms=2 * shape.size_ms)
    workload = Workload("small-growth", "growth", shape, fares, fares, 1, "some", (Phase(2, 3), Phase(7, 3)))
    ((record,),) = compare(Comparison([workload], ["tidemark"], 1, tmp_path, memory="1g"), lambda _: None)
    assert record.growth is not None
    assert (record.events_per_second, record.epoch_ms, record.cells_checked) == (None, None, 500)
    first, last = record.growth.first, record.growth.last
    # A row of partial results for each epoch that brought the driver a fare, until they are merged.
    assert 50 <= first.state_rows <= 50 + 4 * 10
    assert 500 <= last.state_rows <= 500 + 8 * 10
    assert first.state_files is not None
    assert last.state_files is not None
    # An epoch adds a file for each shuffle partition at most.
    assert 1 <= first.state_files <= 5 * cores()
    assert 1 <= last.state_files <= 10 * cores()
    assert first.epoch_ms.median > 0
    assert record.speed == pytest.approx(1000 / last.epoch_ms.median)
