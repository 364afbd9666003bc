"""PyFlink beside the others, in an environment of its own: made where it is not there, and left out with a reason where it cannot be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.checks.agreement import BOUND_MS
from benchmarks.checks.outputs import time_bounds
from benchmarks.data.fares import HOUR_MS
from benchmarks.harness.engines import LATE, RESULTS, Engine, cores
from tidemark.errors import EngineError, SetupError
from tidemark.spark.env.java import find_java_home

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION: Final = "2.3.0"
_ENVIRONMENT = "PYFLINK_PYTHON"
"""The interpreter of an environment that has PyFlink, for those who have one."""

_INSTALL_SECONDS = 1_200
_FARES = pa.schema([("driver", pa.int64()), ("ts", pa.int64()), ("fare", pa.float64())])
_HOURS = pa.schema([("driver", pa.int64()), ("hour_end", pa.int64()), ("total", pa.float64()), ("n", pa.int64())])


def flink_python(scratch: Path) -> Path:
    """Return the interpreter that has PyFlink; installs it below a folder where it is not there.

    Raises:
        SetupError: it cannot be installed.
    """
    given = os.environ.get(_ENVIRONMENT)
    python = Path(given) if given else scratch / f"pyflink-{VERSION}" / "bin" / "python"
    if not python.exists():
        _run([sys.executable, "-m", "venv", str(python.parents[1])])
        _run([str(python), "-m", "pip", "install", "--quiet", f"apache-flink=={VERSION}"])
    _run([str(python), "-c", "import pyflink"])
    return python


def _run(command: Sequence[str]) -> None:
    fix = f"set {_ENVIRONMENT} to the Python of an environment that has apache-flink {VERSION}"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"PyFlink {VERSION} cannot be installed: {error}", fix=fix) from error
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"{command[0]} ended with {done.returncode}"]
        raise SetupError(f"PyFlink {VERSION} cannot be installed: {last[0]}", fix=fix)


def drain_flink(engine: Engine, files: Path, warm_files: Path, folder: Path, *, scratch: Path) -> float:
    """Run the job in PyFlink over all files, after a warm-up in the same process, and write what the others write; return its seconds.

    Flink reads one file of CSV, since it would read several in any order, and what it writes is turned into Parquet afterwards. At the
    end of its input it fires all timers; hours that the last watermark does not end are left out, as the other engines leave them open.

    Raises:
        SetupError: there is no PyFlink, or no Java.
        EngineError: the job failed.
    """
    python = flink_python(scratch)
    folder.mkdir(parents=True, exist_ok=True)
    request, answer = folder / "flink-request.json", folder / "flink-answer.json"
    asked = {
        "files": str(_as_csv(files, folder / "csv")),
        "warm_files": str(_as_csv(warm_files, folder / "warm-csv")),
        "folder": str(folder / "flink"),
        "mode": engine.removeprefix("pyflink-"),
        "parallelism": cores(),
        "bound_ms": BOUND_MS,
    }
    request.write_text(json.dumps(asked), encoding="utf-8")
    packages = subprocess.run([str(python), "-c", "import pyflink; print(pyflink.__path__[0])"], capture_output=True, text=True, check=True)
    # The interpreter within Flink's JVM has no environment of its own.
    variables = {**os.environ, "JAVA_HOME": find_java_home() or "", "PYTHONPATH": str(Path(packages.stdout.strip()).parent)}
    job = Path(__file__).with_name("flink_job.py")
    done = subprocess.run([str(python), str(job), str(request), str(answer)], env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EngineError(f"{engine} failed: {done.stderr.strip()[-2_000:]}", fix="see what it says")
    last = time_bounds(files)[1] - BOUND_MS - 1
    results = [_result_rows(table, last) for table in _tables(folder / "flink" / "measured" / "results", _HOURS)]
    _write(folder / "measured" / RESULTS, results)
    _write(folder / "measured" / LATE, [_late_rows(table) for table in _tables(folder / "flink" / "measured" / "late", _FARES)])
    seconds: float = json.loads(answer.read_text(encoding="utf-8"))["seconds"]
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
