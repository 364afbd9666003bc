"""What process functions keep in memory: large keys, large maps, many timers and many keys, and what an epoch takes beside them.

``python -m benchmarks.functions.memory [--case NAME] [--scale 1.0] [--scale NAME=0.1]`` writes ``docs/reference/function-memory.md``.
Each case runs in a process of its own; the memory is the greatest resident size of a Python worker during an epoch.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil  # type: ignore[import-untyped]  # ships no types
import pyarrow as pa
import pyarrow.parquet as pq

import tidemark as tm
from benchmarks.harness.engines import cores, start_session
from benchmarks.harness.processes import CHECKOUT
from tidemark.clock import SYSTEM_CLOCK
from tidemark.state.log.progress import EpochProgress

PAGE: Final = Path("docs") / "reference" / "function-memory.md"
SCHEMA: Final = "k BIGINT, item BIGINT, t BIGINT"
DAY: Final = 86_400_000
_POLL_SECONDS: Final = 0.05

Epoch = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]
"""Keys, items and times of an epoch's elements."""


class Latest:
    """Counts the elements of a key in one value."""

    n = tm.value_state("BIGINT", default=0)

    def process(self, element: Mapping[str, Any], ctx: tm.ProcessContext) -> None:  # noqa: ARG002
        """Count an element."""
        self.n.update(self.n.value() + 1)


class Items:
    """Counts the elements of a key by item, in a map."""

    items = tm.map_state("BIGINT", "BIGINT")

    def process(self, element: Mapping[str, Any], ctx: tm.ProcessContext) -> None:  # noqa: ARG002
        """Count an element."""
        self.items.put(element["item"], (self.items.get(element["item"]) or 0) + 1)


class Reminders:
    """Sets a timer for each element, a day and ``item`` milliseconds after its time, and emits when it fires."""

    def process(self, element: Mapping[str, Any], ctx: tm.ProcessContext) -> None:
        """Set a timer."""
        ctx.timer_service().register_event_time_timer(element["t"] + DAY + element["item"])

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> Iterator[Mapping[str, object]]:
        """Emit the timer."""
        yield {"k": ctx.current_key["k"], "at": timestamp}


@dataclass(frozen=True)
class Case:
    """A function, the input of its epochs, and what the page says of each."""

    title: str
    function: Callable[[], object]
    epochs: Callable[[float], Iterator[Epoch]]
    says: tuple[str, ...]


def _spread(elements: int, keys: int, *, at: int = 0, seed: int = 1) -> Epoch:
    random = np.random.default_rng(seed)
    return random.integers(0, keys, elements), np.zeros(elements, np.int64), np.full(elements, at) + np.arange(elements) % 1_000


def _each(keys: int, *, at: int = 0) -> Epoch:
    return np.arange(keys), np.zeros(keys, np.int64), np.full(keys, at)


def _one_key(elements: int, *, at: int = 0) -> Epoch:
    return np.zeros(elements, np.int64), np.arange(elements), np.full(elements, at) + np.arange(elements) % 1_000


def _many_elements(scale: float) -> Iterator[Epoch]:
    million = int(1_000_000 * scale)
    yield _spread(million, 10_000)
    yield _one_key(million, at=1_000)


def _large_map(scale: float) -> Iterator[Epoch]:
    million = int(1_000_000 * scale)
    yield _one_key(million)
    yield _one_key(1, at=1_000)


def _many_timers(scale: float) -> Iterator[Epoch]:
    keys = int(1_000_000 * scale)
    for each in range(10):
        yield np.arange(keys), np.full(keys, each * 1_000), np.full(keys, each * 10)
    # The watermark fires the timers of one key in a thousand of the first epoch: none but theirs are due.
    yield np.arange(1_000), np.zeros(1_000, np.int64), np.full(1_000, 100)
    yield np.array([0]), np.zeros(1, np.int64), np.full(1, DAY)


def _many_keys(scale: float) -> Iterator[Epoch]:
    for number, keys in enumerate((int(100_000 * scale), int(10_000_000 * scale))):
        yield _each(keys, at=number * 10_000)
        for touch in range(3):
            yield _spread(10_000, keys, at=number * 10_000 + touch * 1_000, seed=touch)


CASES: Final[Mapping[str, Case]] = {
    "elements": Case(
        "Many elements of one key",
        Latest,
        _many_elements,
        ("{n:,} elements of 10,000 keys", "{n:,} elements of one key"),
    ),
    "map": Case("A large map", Items, _large_map, ("{n:,} entries for one key", "one element of that key")),
    "timers": Case(
        "Many timers",
        Reminders,
        _many_timers,
        (*("{n:,} timers, one more of each key",) * 10, "{n:,} elements while all timers wait", "a watermark at which some fire"),
    ),
    "keys": Case(
        "Many keys",
        Latest,
        _many_keys,
        ("{n:,} new keys", *("{n:,} random ones of them",) * 3, "{n:,} new keys", *("{n:,} random ones of them",) * 3),
    ),
}


@dataclass(frozen=True)
class Row:
    """What an epoch was, how long it took, and the greatest resident size of a Python worker and of the driver, MiB."""

    what: str
    seconds: float
    worker_mib: float
    jvm_mib: float


class Peak:
    """Follows the resident sizes of the workers of this process."""

    def __init__(self) -> None:
        self.worker = self.jvm = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def take(self) -> tuple[float, float]:
        """Return the greatest sizes since the last call, MiB."""
        found = self.worker, self.jvm
        self.worker = self.jvm = 0.0
        return found

    def stop(self) -> None:
        """End."""
        self._stop.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._stop.wait(_POLL_SECONDS):
            for child in psutil.Process().children(recursive=True):
                try:
                    size = child.memory_info().rss / 2**20
                    if "java" in child.name():
                        self.jvm = max(self.jvm, size)
                    elif "pyspark" in " ".join(child.cmdline()):
                        self.worker = max(self.worker, size)
                except psutil.Error:
                    continue


def measure(case: Case, scale: float, folder: Path) -> list[Row]:
    """Run a case, and return what each epoch took."""
    spark = start_session("tidemark-process", folder / "scratch")
    (folder / "in").mkdir()
    sizes = []
    for number, (keys, items, times) in enumerate(case.epochs(scale)):
        table = pa.table({"k": keys.astype("int64"), "item": items.astype("int64"), "t": times.astype("int64")})
        pq.write_table(table, folder / "in" / f"{number:03}.parquet")
        sizes.append(len(keys))
    files = tm.files(str(folder / "in"), format="parquet", schema=SCHEMA, max_files_per_epoch=1)
    source = tm.source("elements", files, watermarks=tm.ascending(timestamp="t"))
    emitted = source.key_by("k").process(case.function(), returns="k BIGINT, at BIGINT").uid("function")
    job = tm.Job("memory", {"out": tm.parquet(emitted, str(folder / "out"))}, store=str(folder / "store"))
    rows: list[Row] = []
    peak = Peak()
    begun = [SYSTEM_CLOCK.monotonic()]

    def note(progress: EpochProgress) -> None:
        now = SYSTEM_CLOCK.monotonic()
        worker, jvm = peak.take()
        rows.append(Row(case.says[progress.epoch].format(n=sizes[progress.epoch]), now - begun[0], worker, jvm))
        print(rows[-1], flush=True)
        begun[0] = now

    try:
        tm.run(job, spark=spark, on_epoch=note)
    finally:
        peak.stop()
        spark.stop()
    return rows


def render(found: Mapping[str, Sequence[Row]]) -> str:
    """Return the page."""
    versions = f"Python {platform.python_version()} · PySpark {version('pyspark')} · Tidemark {version('tidemark')}"
    lines = [
        "# Memory of process functions",
        "",
        "A Python worker holds the state of one key, one Arrow batch, and what it sorts at once: 32 MiB of elements and as much of state.",
        "`python -m benchmarks.functions.memory` wrote this page; the sizes are those in the first column.",
        "",
        f"{cores()} cores · {versions}",
        "",
    ]
    for name, rows in found.items():
        lines += [f"## {CASES[name].title}", "", "| epoch | seconds | Python worker, MiB | JVM, MiB |", "|---|---:|---:|---:|"]
        lines += [f"| {row.what} | {row.seconds:.1f} | {row.worker_mib:.0f} | {row.jvm_mib:.0f} |" for row in rows]
        lines.append("")
    return "\n".join(lines)


def scale_of(case: str, given: Sequence[str]) -> float:
    """Return the factor of a case's sizes.

    >>> scale_of("timers", ["0.5", "timers=0.1"]), scale_of("map", ["0.5", "timers=0.1"]), scale_of("map", [])
    (0.1, 0.5, 1.0)
    """
    named = [each.rpartition("=") for each in given]
    return next((float(factor) for name, _, factor in reversed(named) if name in ("", case)), 1.0)


def _measure_apart(name: str, scale: float) -> list[Row]:
    """Measure a case in a process of its own."""
    folder = Path(tempfile.mkdtemp(prefix="tidemark-memory-"))
    try:
        answer = folder / "answer.json"
        command = [
            sys.executable,
            "-m",
            "benchmarks.functions.memory",
            "--case",
            name,
            "--scale",
            str(scale),
            "--answer",
            str(answer),
        ]
        subprocess.run(command, check=True)
        return [Row(**row) for row in json.loads(answer.read_text(encoding="utf-8"))]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.functions.memory", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", choices=list(CASES), action="append", help="only this one; may be given more than once")
    parser.add_argument("--scale", action="append", default=[], help="of all sizes, or, as timers=0.1, of a case's; the last counts")
    parser.add_argument("--output", default=str(CHECKOUT / PAGE), help="the page to write")
    parser.add_argument("--answer", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    names = asked.case or list(CASES)
    if asked.answer is None:
        found = {name: _measure_apart(name, scale_of(name, asked.scale)) for name in names}
        Path(asked.output).write_text(render(found), encoding="utf-8")
        return 0
    folder = Path(tempfile.mkdtemp(prefix="tidemark-memory-case-"))
    try:
        rows = measure(CASES[names[0]], scale_of(names[0], asked.scale), folder)
        Path(asked.answer).write_text(json.dumps([asdict(row) for row in rows]), encoding="utf-8")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
