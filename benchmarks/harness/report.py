"""Writes ``docs/reference/performance.md`` from the records: tables, ratios of medians, and how it was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from benchmarks.data.fares import LATE_BY_MS, LATE_SHARE
from benchmarks.harness.engines import BOUND
from benchmarks.harness.records import Record, Spread
from benchmarks.harness.workloads import BREAKS, FEW_LATE, LARGE_STATE, MEASURED_EPOCHS, SKIPPED_EPOCHS, SMALL_STATE
from benchmarks.savepoints.report import HOW, savepoint_section

_REFERENCE = "spark-rocksdb"
_FUNCTION_REFERENCES = ("spark-tws-rows", "spark-tws-pandas")
"""Of workloads with a function in Python: the faster of the two."""

_HEAD = """\
| engine | {unit} (median) | least to greatest | speed against `{reference}` | peak memory | late rows kept | late rows lost |
|---|---:|---:|---:|---:|---:|---:|"""

_GROWTH_HEAD = f"""\
| engine | ms per epoch (median) | takes | mean ms | state rows | live state files | speed at the end against `{_REFERENCE}` | peak memory |
|---|---:|---:|---:|---:|---:|---:|---:|"""

_LATENCY_HEAD = """\
| engine | ms from event to table: p50 | p99 | ms from window's end: p50 | p99 | ms per epoch: p50 | p99 | epochs | peak memory |
|---|---:|---:|---:|---:|---:|---:|---:|---:|"""

_START_HEAD = """\
| engine | ms to the first epoch (median) | least to greatest |
|---|---:|---:|"""

_INTRODUCTION = """\
Tidemark and stock Spark Structured Streaming on one machine, the engines of each workload side by side in one run of `make bench`,
which wrote this page and `benchmarks/results.json`."""

_METHOD = f"""\
## How it was measured

- Every engine runs the same job on the same files: fares (`driver BIGINT, ts TIMESTAMP, fare DOUBLE`) are read from Parquet files,
  summed and counted by driver in the workload's windows with a bound of {BOUND}, drained (`availableNow`), and written to a folder of
  Parquet files.
- The throughput inputs spread over 48 hours of event time, with a jitter of two minutes either way. One row in {round(1 / LATE_SHARE):,}
  is late, half of them by {LATE_BY_MS[0] // 3_600_000} hours and half by {LATE_BY_MS[1] // 3_600_000}, once event time has
  gone on for longer than that; in `sliding-1k` and `sliding-200k` one in {round(1 / FEW_LATE):,}, since each is late for many
  windows. In `session-1k` each driver takes a break of {round(BREAKS * 60)} minutes in every hour: without it, no session would end.
- Sliding windows of many drivers have fewer rows than the others, so that stock Spark, which copies each row into its 96 windows, ends
  within the hour: `sliding-200k` ten of each driver, `sliding-sparse` hardly one, so that most of it is writing results. Workloads that
  take stock Spark long are run in one round or two; `sliding-200k` not on the heap, which would have to hold some twenty million windows.
- Engines take turns: one run of each, then the next run of each. Each run is a process of its own with a JVM of its own. It first
  drains the same job on other data of the same kind in a number of epochs, up to twenty million rows in all, with many drivers a quarter
  of that, since a JVM that has just started spends more on compiling its code than on running it, and a stream runs for months; then
  it reads the input once so that it is in memory, and only then the clock starts. The clock covers the whole drain, from the call that
  starts the job until everything is published.
- Events per second are all rows of the input over that time. `small-epochs` gives the median of {MEASURED_EPOCHS} epochs after
  {SKIPPED_EPOCHS} that are not counted; an epoch lasts from its start to that of the next, as Spark's own progress reports say for every
  engine. Median, least and greatest are over the runs.
- The growing workloads measure small epochs twice in one run: first while {SMALL_STATE:,} drivers have an open window, then, after a
  few large epochs, while {LARGE_STATE:,} have one. `many-epochs` measures the first and the last tenth of its epochs (`BENCH_EPOCHS` of
  them). The mean has merges of state files in it, where they fell into those epochs. State rows are what each engine counts, live files
  are those of Tidemark's state.
- The `latency` workloads run on instead of draining: another process lets a Parquet file of fares land every half second, with the
  times of that half second, and the job sums and counts them by driver in windows of a second, with a bound of a second, into a Delta
  table. Stock Spark, which has no Delta writer of its own here, hands each batch's result rows to `deltalake`, which Tidemark commits
  with, too. A result is visible when the table's commit file is there. From an event's time to that it is at least the rest of its window
  and the bound. What is measured comes after a minute of warm-up, and all of its windows are checked.
- `start` is from the command to the first epoch that is published: of `tidemark start` for a submitted job, and of a Python script that
  starts the same query on stock Spark; JVM and session included. First a job that never ran, then one that goes on.
  `spark-as-installed` is stock Spark with RocksDB as its users have it: only its memory, shuffle partitions and folders are set.
  `spark-rocksdb` and `spark-heap` have Tidemark's settings, and start as Tidemark does from Java's archive of Spark's classes
  (`tidemark class-archive`, which `make bench` makes first), though stock Spark brings none.
- `empty-epochs` is the median of what the progress of epochs without input says they took, of a job that has read as many epochs before. So
  few of its keys have a window due, or none, that this is what an epoch costs by itself.
{HOW}
- Memory is the greatest resident memory that the process and its JVM had together at one moment, warm-up included. A JVM takes what its
  limit allows before it collects garbage, so this says more about that limit than about what a job needs.
- Every run is checked, against sums made straight from the input without Spark: the windows that are out must be those that the
  watermark closes, counts equal, sums within 1e-9 relative. Where a late row falls, no row may be counted twice, none that is on time may
  be lost, and for Tidemark counted and kept rows together must be all rows. A difference fails the benchmark.
- Late rows *kept* are in an output of their own. *Lost* are rows of closed windows that are in no output; the number is the difference
  between input and results, since Spark's metric counts rows after partial aggregation. Stock Spark judges lateness by the watermark of
  one batch earlier, so it still counts some rows that Tidemark calls late. In sliding windows *lost* are pairs of a row and a closed window
  that does not count it, though a newer window may: such a row is late for nobody, in Tidemark as in Flink, and in no output of late rows.

## What each engine does

- `tidemark`: keeps partial sums in immutable Parquet files, commits each epoch with one record in its job log, writes late rows to a
  second folder of Parquet files, and counts rows in and out exactly. Spark's own checkpoint is only a cache on local disk for it, so it
  has Spark write that without a program per file, which is not Spark's default.
- `spark-rocksdb`: Structured Streaming's own operator with `RocksDBStateStoreProvider`, append mode, defaults otherwise. It loses late
  rows.
- `spark-heap`: the same with `HDFSBackedStateStoreProvider`, which keeps the state in the JVM's heap and writes deltas to disk.

In the workloads `function-…` each engine counts in a process function in Python, with state by hour and a timer at its end:

- `tidemark-process`: a class with `process` and `on_timer`, called for each fare; `tidemark-process-batch`: `process_batch`, called with
  the fares of a driver as Arrow columns, which it adds up with NumPy. Elements and state are packed as Arrow streams by a first task in
  Python, apart by key; Spark shuffles these as bytes, and the task that calls the function sorts them with Arrow
  ([ADR 55](../adr/0055-packed-rows.md)).
- `spark-tws-rows` and `spark-tws-pandas`: `transformWithState` and `transformWithStateInPandas` with RocksDB. They add up a batch's fares
  of a driver and hour before they touch state, which costs a round trip over a socket for each operation. They lose late rows.
- `pyflink-thread` and `pyflink-process`: a `KeyedProcessFunction` of PyFlink's DataStream API, with the interpreter within the JVM and in
  processes of its own; state on the heap, a checkpoint every ten seconds, as many slots as cores. It reads and writes CSV by Flink's own
  connectors, from one file, and its clock runs from the submission to the end of the job, after a warm-up in the same JVM.

All others have the same session: as many cores and shuffle partitions as the machine has cores, the same JVM memory and options (those that
Tidemark gives a session on one machine), Snappy Parquet with timestamps in microseconds, adaptive execution off (as stateful streaming
has it anyway), checkpoints, state and outputs on local disk.
"""


def render(records: Sequence[Record]) -> str:
    """Return the page; the records of a workload must stand side by side."""
    first = records[0]
    parts = [
        "# Performance",
        _INTRODUCTION,
        f"{first.cores} cores · {first.driver_memory.removesuffix('g')} GiB for each JVM · {_versions(first)}",
    ]
    parts += [_section(list(group)) for _, group in groupby(records, key=lambda record: record.workload)]
    return "\n\n".join((*parts, _METHOD))


def headline(records: Iterable[Record]) -> tuple[str, ...]:
    """Return one line per workload with Tidemark's ratios to the others, for the terminal."""
    lines = []
    for workload, group in groupby(records, key=lambda record: record.workload):
        members = {record.engine: record for record in group}
        ours = members.pop("tidemark" if "tidemark" in members else "tidemark-process", None)
        if ours is not None:
            ratios = ", ".join(f"{ours.speed / other.speed:.2f} x {name}" for name, other in members.items()) or "alone"
            grown = "" if ours.growth is None else f"; its last epochs take {ours.growth.factor:.2f} x as long as its first"
            lines.append(f"{workload}: {ratios}{grown}")
    return tuple(lines)


def _section(records: Sequence[Record]) -> str:
    first = records[0]
    if first.savepoints is not None:
        return savepoint_section(first, first.savepoints)
    reference = _reference(records)
    if first.latency is not None or first.start_ms is not None:
        return _live_section(records)
    grows = first.growth is not None
    runs = f"{first.runs} run{'' if first.runs == 1 else 's'} each, {first.cells_checked:,} results checked in each."
    table = [_growth_row(record, reference) if grows else _row(record, reference) for record in records]
    head = (
        _GROWTH_HEAD
        if grows
        else _HEAD.format(
            unit="ms per epoch" if first.epoch_ms is not None else "events per second",
            reference=reference.engine if reference else _REFERENCE,
        )
    )
    return "\n".join((f"## {first.workload}", "", f"{first.title}. {runs}", "", head, *table))


def _reference(records: Sequence[Record]) -> Record | None:
    """Return the record of stock Spark that the others are compared with, of two the faster."""
    names = (_REFERENCE,) if any(record.engine == _REFERENCE for record in records) else _FUNCTION_REFERENCES
    return max((record for record in records if record.engine in names), key=lambda record: record.speed, default=None)


def _live_section(records: Sequence[Record]) -> str:
    """Return the section of a workload whose job runs on."""
    first = records[0]
    checked = f" {first.cells_checked:,} results checked." if first.cells_checked else f" {first.runs} runs each."
    head = _LATENCY_HEAD if first.latency is not None else _START_HEAD
    rows = [_latency_row(record) if record.latency is not None else _start_row(record) for record in records]
    return "\n".join((f"## {first.workload}", "", f"{first.title}.{checked}", "", head, *rows))


def _latency_row(record: Record) -> str:
    found = record.latency
    if found is None:
        return _line(f"`{record.engine}`", *["-"] * 8)
    cells = [f"{value:,.0f}" for item in (found.event_ms, found.window_ms, found.epoch_ms) for value in (item.p50, item.p99)]
    return _line(f"`{record.engine}`", *cells, f"{found.epochs:,}", _memory(record))


def _start_row(record: Record) -> str:
    spread = record.start_ms or Spread(0, 0, 0)
    return _line(f"`{record.engine}`", f"{spread.median:,.0f}", f"{spread.min:,.0f} to {spread.max:,.0f}")


def _row(record: Record, reference: Record | None) -> str:
    spread = record.epoch_ms or record.events_per_second or Spread(0, 0, 0)
    return _line(
        f"`{record.engine}`",
        f"{spread.median:,.0f}",
        f"{spread.min:,.0f} to {spread.max:,.0f}",
        _ratio(record, reference),
        _memory(record),
        f"{record.late_kept:,}",
        f"{record.late_lost:,}",
    )


def _growth_row(record: Record, reference: Record | None) -> str:
    if record.growth is None:
        return _line(f"`{record.engine}`", *["-"] * 7)
    first, last = record.growth.first, record.growth.last
    files = "-" if first.state_files is None or last.state_files is None else f"{first.state_files:,} → {last.state_files:,}"
    return _line(
        f"`{record.engine}`",
        f"{first.epoch_ms.median:,.0f} → {last.epoch_ms.median:,.0f}",
        f"{record.growth.factor:.2f} x",
        f"{first.mean_ms:,.0f} → {last.mean_ms:,.0f}",
        f"{first.state_rows:,} → {last.state_rows:,}",
        files,
        _ratio(record, reference),
        _memory(record),
    )


def _ratio(record: Record, reference: Record | None) -> str:
    return f"{record.speed / reference.speed:.2f} x" if reference is not None else "-"


def _memory(record: Record) -> str:
    return f"{record.peak_memory_bytes / 2**30:.1f} GiB"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _versions(record: Record) -> str:
    names = {"python": "Python", "java": "Java", "pyspark": "PySpark", "tidemark": "Tidemark"}
    return " · ".join(f"{names[key]} {value}" for key, value in record.versions.items() if key in names)
