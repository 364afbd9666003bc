"""The section on savepoints of ``docs/reference/performance.md``."""

from __future__ import annotations

from benchmarks.harness.records import Record, SavepointFigures, Spread

HOW = """\
- `savepoints` is Tidemark's alone. A job with a trigger of a second loads its keys and goes on with a few of them per epoch. Meanwhile
  savepoints are taken, and another parallelism is asked for by a new spec, which a driver looks for when an epoch begins; how many
  partitions an epoch has is seen from the state files that it writes. Then processes of their own load another job, start Spark, restore
  the job from the first of the savepoints, and run one epoch."""


def savepoint_section(record: Record, found: SavepointFigures) -> str:
    """Return what was measured of savepoints."""
    title = f"{record.title}: {found.state_bytes / 2**20:,.0f} MiB in {found.state_files:,} files. {record.runs} runs each."
    rows = [
        ("savepoint of the running job", found.take_ms),
        ("`tidemark savepoint trigger`, Python's start included", found.command_ms),
        ("restore: from Spark's start to the first epoch", found.restore_ms),
        ("Spark's start", found.spark_ms),
    ]
    table = [f"| {name} | {spread.median:,.0f} | {_range(spread)} |" for name, spread in rows]
    rescale = (
        f"A new parallelism is in effect {found.rescale_ms:,.0f} ms after it was asked for; "
        f"epochs that began at the old one meanwhile: {found.rescale_epochs}."
    )
    head = ("| | ms (median) | least to greatest |", "|---|---:|---:|")
    return "\n".join((f"## {record.workload}", "", title, "", *head, *table, "", rescale))


def _range(spread: Spread) -> str:
    return f"{spread.min:,.0f} to {spread.max:,.0f}"
