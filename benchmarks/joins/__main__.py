"""Joins and running results beside stock Spark and Flink SQL, and what an epoch costs where the state of a join is large.

``python -m benchmarks.joins [--workload NAME] [--rows 2000000] [--runs 3] [--state-rows 100000 1000000 10000000]`` writes
``docs/reference/joins-performance.md``, again after each workload. Each measurement runs in a process of its own, the engines in turns; the
results are compared with arithmetic over the input.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import signal
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.harness.engines import cores
from benchmarks.harness.processes import CHECKOUT, run_module
from benchmarks.harness.pyflink import VERSION as FLINK
from benchmarks.harness.pyflink import flink_python
from benchmarks.joins.changelogs import Upserts, joined_newest
from benchmarks.joins.epoch_cost import CHANGED
from benchmarks.joins.epoch_cost import Request as CostRequest
from benchmarks.joins.flink import STATES
from benchmarks.joins.inputs import EVERY_MS, LAG_MS, WITHIN_MS, Side, Sums, grouped, joined
from benchmarks.joins.runs import Request
from tidemark.errors import EngineError, SetupError

PAGE: Final = Path("docs") / "reference" / "joins-performance.md"
SCRATCH: Final = CHECKOUT / ".tidemark" / "bench"
ENGINES: Final = ("tidemark", "spark-rocksdb")
CHANGELOG_ENGINES: Final = ("tidemark", *STATES)
FILES: Final = 16
PER_EPOCH: Final = 2
_WARM_FILES: Final = 20
_SEED: Final = 1
UNSEEN_MS: Final = 15_000
"""Stock Spark removes rows from its state only so much later than it could."""
STATE_ROWS: Final = (100_000, 1_000_000, 10_000_000)
EPOCHS: Final = 7


@dataclass(frozen=True)
class Workload:
    """A kind of operator (``inner``, ``outer``, ``running``, ``changelog``), how many keys there are, and the part of the rows it has.

    Interval joins of few keys have an eighth: stock Spark looks at all rows of a key for each row that arrives.
    """

    kind: str
    keys: int
    part: int = 1

    @property
    def engines(self) -> tuple[str, ...]:
        """Those that are measured: stock Spark has no join of changelogs, and Flink SQL is measured by these alone."""
        return CHANGELOG_ENGINES if self.kind == "changelog" else ENGINES

    def title(self, rows: int) -> str:
        """Return one line for the page."""
        if self.kind == "running":
            return f"count and sum by key, without a window, of {rows:,} rows with {self.keys:,} keys"
        if self.kind == "changelog":
            return f"regular join of two changelogs of {rows:,} rows a side, upserts of {self.keys:,} ids, and the sums of its pairs"
        how = "left" if self.kind == "outer" else "inner"
        return (
            f"{how} interval join of {rows:,} rows a side with {self.keys:,} keys, one each {EVERY_MS // 1000} seconds, "
            f"within {WITHIN_MS // 1000} seconds"
        )


WORKLOADS: Final[Mapping[str, Workload]] = {
    "interval-1k": Workload("inner", 1_000, part=8),
    "interval-200k": Workload("inner", 200_000),
    "outer-1k": Workload("outer", 1_000, part=8),
    "outer-200k": Workload("outer", 200_000),
    "running-1k": Workload("running", 1_000),
    "running-200k": Workload("running", 200_000),
    "changelog-1k": Workload("changelog", 1_000),
    "changelog-200k": Workload("changelog", 200_000),
}


def prepare(workload: Workload, rows: int, files: int, seed: int, folder: Path) -> Sums:
    """Write both sides where they are not there; return what has to come of them."""
    if workload.kind == "changelog":
        upserts = Upserts(rows, workload.keys, seed), Upserts(rows, workload.keys, seed + 1)
        _write(upserts, folder, files)
        return joined_newest(*upserts)
    sides = _sides(workload, rows, seed)
    _write(sides, folder, files)
    return grouped(sides[0]) if workload.kind == "running" else joined(*sides, outer=workload.kind == "outer")


def _sides(workload: Workload, rows: int, seed: int) -> tuple[Side, Side]:
    return Side(rows, workload.keys, seed), Side(rows, workload.keys, seed + 1)


def _fits(workload: Workload, engine: str, sums: Sums, right: Sums, rows: int) -> bool:
    """Return whether results are what they have to be; stock Spark does not emit outer rows that wait when its input ends."""
    if (workload.kind, engine) != ("outer", "spark-rocksdb"):
        return sums == right
    sides = _sides(workload, rows, _SEED)
    most, least = (joined(*sides, outer=True, unfinished_ms=each) for each in (LAG_MS + WITHIN_MS, LAG_MS + WITHIN_MS + UNSEEN_MS))
    return least.rows <= sums.rows <= most.rows and least.one <= sums.one <= most.one and sums.other == most.other


def _write(sides: Sequence[Side | Upserts], folder: Path, files: int) -> None:
    for name, side in zip(("left", "right"), sides, strict=True):
        if not (folder / name).exists():
            side.write(folder / name, files)


def available(names: Sequence[str]) -> frozenset[str]:
    """Return the engines that workloads can be measured on; Flink is left out, with a word on why, where it cannot be installed."""
    wanted = frozenset(engine for name in names for engine in WORKLOADS[name].engines)
    if wanted.isdisjoint(STATES):
        return wanted
    try:
        flink_python(SCRATCH)
    except SetupError as error:
        print(f"Flink is left out: {error}", flush=True)
        return wanted.difference(STATES)
    return wanted


def measure(name: str, rows: int, runs: int, engines: Collection[str]) -> dict[str, list[float]]:
    """Measure a workload on those of its engines that are given, in turns; return the seconds of each run by engine.

    Raises:
        EngineError: a result is not what the input says.
    """
    workload = WORKLOADS[name]
    rows //= workload.part
    found = {engine: list[float]() for engine in workload.engines if engine in engines}
    kind = "changelog" if workload.kind == "changelog" else "join"
    files = SCRATCH / f"{kind}-{workload.keys}-{rows}"
    warm = SCRATCH / f"{kind}-warm-{workload.keys}-{rows}"
    right = prepare(workload, rows, FILES, _SEED, files)
    prepare(workload, rows // 4, _WARM_FILES, 11, warm)
    for run in range(runs):
        for engine in found if run % 2 == 0 else reversed(found):
            folder = Path(tempfile.mkdtemp(prefix="join-run-", dir=SCRATCH))
            try:
                request = Request(workload.kind, engine, str(warm), str(files), str(folder), PER_EPOCH)
                answer, _ = run_module("benchmarks.joins.runs", asdict(request), folder, engine=engine)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            sums = Sums(**answer["sums"])
            if not _fits(workload, engine, sums, right, rows):
                raise EngineError(f"{engine} gives {sums} in {name}, and the input says {right}", fix="see which rows differ")
            found[engine].append(answer["seconds"])
            print(f"{name} on {engine}, run {run + 1}: {answer['seconds']:.1f} s, {sums.rows:,} rows", flush=True)
    return found


def measure_epochs(rows: int, runs: int) -> list[float]:
    """Return the seconds of epochs of a join with so many rows of state on each side."""
    found: list[float] = []
    for run in range(runs):
        folder = Path(tempfile.mkdtemp(prefix="epoch-cost-", dir=SCRATCH))
        try:
            answer, _ = run_module("benchmarks.joins.epoch_cost", asdict(CostRequest(rows, EPOCHS, str(folder))), folder, engine="tidemark")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        found += answer["seconds"]
        print(f"{rows:,} rows of state, run {run + 1}: {median(answer['seconds']):.2f} s an epoch", flush=True)
    return found


def render_epochs(found: Mapping[int, Sequence[float]]) -> list[str]:
    """Return the lines about epochs over large state."""
    if not found:
        return []
    first = median(found[min(found)])
    lines = [
        "## An epoch over large state",
        "",
        f"Two tables that change are joined by the key of one of them. In an epoch {CHANGED:,} rows of one are new, and {CHANGED:,} of the",
        f"other are updated; keys are random. Medians of {len(found[min(found)])} epochs.",
        "",
        "| rows of state on each side | seconds of an epoch | ratio |",
        "|---:|---:|---:|",
    ]
    lines += [f"| {rows:,} | {median(seconds):.2f} | {median(seconds) / first:.2f} |" for rows, seconds in sorted(found.items())]
    return [*lines, ""]


def render_stock(found: Mapping[str, Mapping[str, Sequence[float]]], rows: int) -> list[str]:
    """Return the lines about workloads that stock Spark has, too."""
    if not found:
        return []
    lines = ["| workload | Tidemark, rows/s | stock Spark, rows/s | ratio |", "|---|---:|---:|---:|"]
    for name, by_engine in found.items():
        workload = WORKLOADS[name]
        total = rows // workload.part * (1 if workload.kind == "running" else 2)
        ours, theirs = (total / median(by_engine[engine]) for engine in ENGINES)
        lines.append(f"| {workload.title(rows // workload.part)} | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:.1f} times |")
    return [
        *lines,
        "",
        f"An epoch reads {PER_EPOCH} of {FILES} files of each side; {_WARM_FILES} epochs of other rows warm the process up. Both engines",
        "write the same pairs, which is checked by the number of rows and the sums of their ids. Stock Spark does not write the rows of an",
        "outer join that wait when its input ends; its running results are written by `foreachBatch` in update mode.",
        "",
    ]


def render_flink(found: Mapping[str, Mapping[str, Sequence[float]]], rows: int) -> list[str]:
    """Return the lines about workloads that Flink SQL has, too; where it was left out there are no figures of it."""
    if not found:
        return []
    lines = [
        "## Changelogs, beside Flink SQL",
        "",
        "| workload | Tidemark, rows/s | Flink with RocksDB, rows/s | ratio | Flink on the heap, rows/s | ratio |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, by_engine in found.items():
        ours = 2 * rows / median(by_engine["tidemark"])
        cells = [WORKLOADS[name].title(rows), f"{ours:,.0f}"]
        for engine in STATES:
            theirs = 2 * rows / median(by_engine[engine]) if engine in by_engine else None
            cells += ["not measured", ""] if theirs is None else [f"{theirs:,.0f}", f"{ours / theirs:.2f} times"]
        lines.append(f"| {' | '.join(cells)} |")
    return [
        *lines,
        "",
        f"Flink {FLINK}, in one process as Spark is, with as many slots as cores. Each side is a stream of upserts: the newest row of",
        "each id, by its time, makes a changelog. Both are joined by a key that changes with the row, and the pairs are counted and their",
        "values summed as they change. All engines read the same CSV files, drain other rows first in the same process, a quarter as many,",
        "and end with the same count and sums, which are checked by arithmetic. Tidemark commits its state, and a version of the sums, in",
        f"each of its {FILES // PER_EPOCH} epochs. Flink checkpoints every 10 seconds, without a last one at the end of its input, and is",
        "tuned: mini-batches of up to 5 seconds, aggregation in two phases, reuse of objects, and for RocksDB incremental checkpoints and",
        "1 GB of memory beside the heap. Its seconds have the start of its cluster in them, as Tidemark's have that of its job.",
        "",
    ]


def render(found: Mapping[str, Mapping[str, Sequence[float]]], rows: int, epochs: Mapping[int, Sequence[float]]) -> str:
    """Return the page."""
    lines = [
        "# Joins and running results beside stock Spark and Flink SQL",
        "",
        "Rows per second of both sides together, medians; stock Spark with RocksDB. `python -m benchmarks.joins` wrote this page.",
        "",
        f"{cores()} cores · Python {platform.python_version()} · PySpark {version('pyspark')} · Tidemark {version('tidemark')}",
        "",
        *render_stock({name: seconds for name, seconds in found.items() if WORKLOADS[name].kind != "changelog"}, rows),
        *render_flink({name: seconds for name, seconds in found.items() if WORKLOADS[name].kind == "changelog"}, rows),
        *render_epochs(epochs),
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.joins", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workload", choices=list(WORKLOADS), action="append", help="only this one; may be given more than once")
    parser.add_argument("--rows", type=int, default=2_000_000, help="of each side; interval joins of few keys have an eighth")
    parser.add_argument("--runs", type=int, default=3, help="of each engine")
    parser.add_argument("--state-rows", type=int, nargs="*", default=STATE_ROWS, help="sizes of the state of a join")
    parser.add_argument("--output", default=str(CHECKOUT / PAGE), help="the page to write")
    asked = parser.parse_args(arguments)
    SCRATCH.mkdir(parents=True, exist_ok=True)
    epochs = {rows: measure_epochs(rows, asked.runs) for rows in asked.state_rows}
    names = asked.workload or list(WORKLOADS)
    engines = available(names)
    found: dict[str, Mapping[str, Sequence[float]]] = {}
    for name in names:
        found[name] = measure(name, asked.rows, asked.runs, engines)
        Path(asked.output).write_text(render(found, asked.rows, epochs), encoding="utf-8")
    return 0


if __name__ == "__main__":
    # Without this a plain `kill` would leave the measuring process and its JVM behind.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.exit(main())
