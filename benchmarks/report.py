"""Writes ``docs/performance.md`` from the records: tables, ratios of medians, and how it was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from benchmarks.engines import BOUND, WINDOW
from benchmarks.fares import LATE_BY_MS, LATE_SHARE
from benchmarks.records import Record, Spread
from benchmarks.workloads import MEASURED_EPOCHS, WARM_EPOCHS

_REFERENCE = "spark-rocksdb"

_INTRODUCTION = """\
Tidemark and stock Spark Structured Streaming on one machine, the engines of each workload side by side in one run of `make bench`,
which wrote this page and `benchmarks/results.json`."""

_METHOD = f"""\
## How it was measured

- Every engine runs the same job: fares (`driver BIGINT, ts TIMESTAMP, fare DOUBLE`) are read from Parquet files, summed and counted
  by driver in tumbling windows of {WINDOW} with a bound of {BOUND}, drained (`availableNow`), and written to a folder of Parquet files.
- The throughput inputs spread over 48 hours of event time, with a jitter of two minutes either way. One row in {round(1 / LATE_SHARE):,}
  is late, half of them by {LATE_BY_MS[0] // 3_600_000} hours and half by {LATE_BY_MS[1] // 3_600_000}, once event time has
  gone on for longer than that.
- Engines take turns: one run of each, then the next run of each. Each run is a process of its own with a JVM of its own. It first
  drains the same job on other data in twenty epochs, since a JVM that has just started spends more on compiling its code than on
  running it, then reads the input once so that it is in memory, and only then the clock starts. The clock
  covers the whole drain, from the call that starts the job until everything is published.
- Events per second are all rows of the input over that time. `small-epochs` gives the median of {MEASURED_EPOCHS} epochs after
  {WARM_EPOCHS} that are not counted; an epoch lasts from its start to that of the next, as Spark's own progress reports say for every
  engine. Median, least and greatest are over the runs.
- Memory is the greatest resident memory that the process and its JVM had together at one moment, warm-up included. A JVM takes what its
  limit allows before it collects garbage, so this says more about that limit than about what a job needs.
- Every run is checked, against sums made straight from the input without Spark: the windows that are out must be those that the
  watermark closes, counts equal, sums within 1e-9 relative. Where a late row falls, no row may be counted twice, and for Tidemark
  counted and kept rows together must be all rows. A difference fails the benchmark.
- Late rows *kept* are in an output of their own. *Lost* are rows of closed windows that are in no output; the number is the difference
  between input and results, since Spark's metric counts rows after partial aggregation. Stock Spark judges lateness by the watermark of
  one batch earlier, so it still counts some rows that Tidemark calls late.

## What each engine does

- `tidemark`: keeps partial sums in immutable Parquet files, commits each epoch with one record in its job log, writes late rows to a
  second folder of Parquet files, and counts rows in and out exactly.
- `spark-rocksdb`: Structured Streaming's own operator with `RocksDBStateStoreProvider`, append mode, defaults otherwise. It loses late
  rows.
- `spark-heap`: the same with `HDFSBackedStateStoreProvider`, which keeps the state in the JVM's heap and writes deltas to disk.

All have the same session: as many cores and shuffle partitions as the machine has cores, the same JVM memory, Snappy Parquet with
timestamps in microseconds, adaptive execution off (as stateful streaming has it anyway), checkpoints, state and outputs on local disk.
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
        ours = members.pop("tidemark", None)
        if ours is not None:
            lines.append(
                f"{workload}: {', '.join(f'{ours.speed / other.speed:.2f} x {name}' for name, other in members.items()) or 'alone'}"
            )
    return tuple(lines)


def _section(records: Sequence[Record]) -> str:
    by_epoch = records[0].epoch_ms is not None
    reference = next((record for record in records if record.engine == _REFERENCE), None)
    unit = "ms per epoch" if by_epoch else "events per second"
    head = (
        f"| engine | {unit} (median) | least to greatest | speed against `{_REFERENCE}` | peak memory | late rows kept | late rows lost |"
    )
    rule = "|---|---:|---:|---:|---:|---:|---:|"
    runs = f"{records[0].runs} run{'' if records[0].runs == 1 else 's'} each, {records[0].cells_checked:,} results checked in each."
    return "\n".join(
        (f"## {records[0].workload}", "", f"{records[0].title}. {runs}", "", head, rule, *(_row(r, reference) for r in records))
    )


def _row(record: Record, reference: Record | None) -> str:
    spread = record.epoch_ms or record.events_per_second or Spread(0, 0, 0)
    ratio = f"{record.speed / reference.speed:.2f} x" if reference is not None else "-"
    cells = (
        f"`{record.engine}`",
        f"{spread.median:,.0f}",
        f"{spread.min:,.0f} to {spread.max:,.0f}",
        ratio,
        f"{record.peak_memory_bytes / 2**30:.1f} GiB",
        f"{record.late_kept:,}",
        f"{record.late_lost:,}",
    )
    return f"| {' | '.join(cells)} |"


def _versions(record: Record) -> str:
    names = {"python": "Python", "java": "Java", "pyspark": "PySpark", "tidemark": "Tidemark"}
    return " · ".join(f"{names[key]} {value}" for key, value in record.versions.items() if key in names)
