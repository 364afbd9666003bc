"""PyFlink beside the others, in an environment of its own: its input as CSV, and what it writes as Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.checks.agreement import BOUND_MS
from benchmarks.checks.outputs import time_bounds
from benchmarks.data.fares import HOUR_MS
from benchmarks.harness.engines import LATE, RESULTS, Engine, cores
from benchmarks.harness.pyflink import run_flink_job

if TYPE_CHECKING:
    from collections.abc import Sequence

_FARES = pa.schema([("driver", pa.int64()), ("ts", pa.int64()), ("fare", pa.float64())])
_HOURS = pa.schema([("driver", pa.int64()), ("hour_end", pa.int64()), ("total", pa.float64()), ("n", pa.int64())])


def drain_flink(engine: Engine, files: Path, warm_files: Path, folder: Path, *, scratch: Path) -> float:
    """Run the job in PyFlink over all files, after a warm-up in the same process, and write what the others write; return its seconds.

    Flink reads one file of CSV, since it would read several in any order, and what it writes is turned into Parquet afterwards. At the
    end of its input it fires all timers; hours that the last watermark does not end are left out, as the other engines leave them open.

    Raises:
        SetupError: there is no PyFlink, or no Java.
        EngineError: the job failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    asked = {
        "files": str(_as_csv(files, folder / "csv")),
        "warm_files": str(_as_csv(warm_files, folder / "warm-csv")),
        "folder": str(folder / "flink"),
        "mode": engine.removeprefix("pyflink-"),
        "parallelism": cores(),
        "bound_ms": BOUND_MS,
    }
    answer = run_flink_job(engine, Path(__file__).with_name("flink_job.py"), asked, folder, scratch=scratch)
    last = time_bounds(files)[1] - BOUND_MS - 1
    results = [_result_rows(table, last) for table in _tables(folder / "flink" / "measured" / "results", _HOURS)]
    _write(folder / "measured" / RESULTS, results)
    _write(folder / "measured" / LATE, [_late_rows(table) for table in _tables(folder / "flink" / "measured" / "late", _FARES)])
    seconds: float = answer["seconds"]
    return seconds


def _as_csv(files: Path, folder: Path) -> Path:
    folder.mkdir()
    options = pyarrow.csv.WriteOptions(include_header=False)
    with pyarrow.csv.CSVWriter(folder / "fares.csv", _FARES, write_options=options) as writer:
        for path in sorted(files.glob("*.parquet")):
            table = pq.read_table(path)
            times = table["ts"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
            writer.write_table(pa.table([table["driver"], times, table["fare"]], schema=_FARES))
    return folder


def _tables(folder: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    read = pyarrow.csv.ReadOptions(column_names=schema.names)
    convert = pyarrow.csv.ConvertOptions(column_types=schema)
    for path in sorted(folder.glob("part-*")):
        if path.stat().st_size:
            yield pyarrow.csv.read_csv(path, read_options=read, convert_options=convert)


def _result_rows(table: pa.Table, last_watermark: int) -> pa.Table:
    ended = table.filter(pc.less_equal(pc.subtract(table["hour_end"], 1), last_watermark))
    bounds = {"window_start": pc.subtract(ended["hour_end"], HOUR_MS), "window_end": ended["hour_end"]}
    times = {name: times.cast(pa.timestamp("ms", tz="UTC")) for name, times in bounds.items()}
    return pa.table({"driver": ended["driver"], **times, "total": ended["total"], "n": ended["n"]})


def _late_rows(table: pa.Table) -> pa.Table:
    return table.set_column(1, "ts", table["ts"].cast(pa.timestamp("ms", tz="UTC")))


def _write(folder: Path, tables: Sequence[pa.Table]) -> None:
    folder.mkdir(parents=True)
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"part-{number}.parquet")
