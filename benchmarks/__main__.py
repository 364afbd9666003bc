"""Compare Tidemark with stock Spark: ``python -m benchmarks``, or ``make bench``.

``BENCH_ROWS`` is the size of the throughput workloads, 20,000,000 by default (sliding windows have a part of it), ``BENCH_EPOCHS`` the
number of epochs of ``many-epochs``, 300 by default, and ``BENCH_RUNS`` the number of rounds, 3 by default; workloads that take stock
Spark long have fewer. After each workload it writes ``benchmarks/results.json`` and ``docs/reference/performance.md``, where its results
take the place of earlier ones: a run that fails or is stopped keeps what it has measured.

Jobs that run on are measured only when asked for by name, since that takes an hour: ``--workload latency`` (or one of ``latency-1s``,
``latency-10s``, ``latency-60s``) for ``BENCH_SECONDS`` each, 300 by default, ``--workload start`` and ``--workload empty-epochs``. So are
savepoints: ``--workload savepoints``, of a job with ``BENCH_KEYS`` keys of state, 10,000,000 by default.

``python -m benchmarks.operation.recovery_time`` is a program of its own: from the kill of a driver to its next epoch, builds
against one another.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks.harness.comparison import Comparison, Step, compare
from benchmarks.harness.engines import ENGINES, KNOWN_ENGINES, START_ENGINES, Engine, parse_engine
from benchmarks.harness.processes import CHECKOUT
from benchmarks.harness.pyflink import flink_python
from benchmarks.harness.records import Record, read_records, write_records
from benchmarks.harness.report import headline, render
from benchmarks.harness.workloads import MANY_EPOCHS, Workload, standard_workloads
from benchmarks.operation.empty_epochs import NAME as EMPTY
from benchmarks.operation.empty_epochs import EmptyEpochs, measure_empty_epochs
from benchmarks.operation.latency import SECONDS, LatencyWorkload, latency_workloads, measure_latency
from benchmarks.operation.start_time import NAME as START
from benchmarks.operation.start_time import measure_start
from benchmarks.savepoints.savepoints import KEYS, LEAST_KEYS, SavepointWorkload, measure_savepoints
from benchmarks.savepoints.savepoints import NAME as SAVEPOINTS
from tidemark.errors import DefinitionError, SetupError, TidemarkError

DEFAULT_ROWS = 20_000_000
DEFAULT_RUNS = 3
LEAST_ROWS = 2_000
LEAST_EPOCHS = 10
LEAST_SECONDS = 5
LATENCY = "latency"
SCRATCH = CHECKOUT / ".tidemark" / "bench"
RESULTS = Path("benchmarks") / "results.json"
PAGE = Path("docs") / "reference" / "performance.md"

EMPTY_EPOCHS = (EmptyEpochs(due=False), EmptyEpochs(due=True))

Live = LatencyWorkload | SavepointWorkload | EmptyEpochs | None
"""A workload whose job runs on; None is that of starting."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; returns 0 if every engine gave the right results."""
    console = Console(stderr=True)
    try:
        asked = _parser().parse_args(arguments)
        rows = _number("BENCH_ROWS", DEFAULT_ROWS, least=LEAST_ROWS)
        epochs = _number("BENCH_EPOCHS", MANY_EPOCHS, least=LEAST_EPOCHS)
        seconds = _number("BENCH_SECONDS", SECONDS, least=LEAST_SECONDS)
        savepoints = SavepointWorkload(_number("BENCH_KEYS", KEYS, least=LEAST_KEYS))
        drained, live = chosen(standard_workloads(rows, epochs=epochs), latency_workloads(seconds), asked.workload, savepoints=savepoints)
        engines = tuple(map(parse_engine, asked.engine)) if asked.engine else KNOWN_ENGINES
        runs = _number("BENCH_RUNS", DEFAULT_RUNS, least=1)
        comparison = Comparison(workloads=drained, engines=available(engines, drained, console), runs=runs, scratch=SCRATCH)
        root = None if asked.output is None and asked.engine else Path(asked.output or CHECKOUT)
        records: list[Record] = []
        for measured in chain(run_shown(comparison, console), measure_live(live, comparison, console)):
            records += measured
            if root is not None:
                write_documents(beside_earlier(measured, root), root)
    except TidemarkError as error:
        console.print(f"[red]{error}[/red]", soft_wrap=True, markup=False)
        return 1
    for line in headline(records):
        console.print(line)
    if root is None:
        console.print("Not all engines were measured side by side, so no file is written; --output FOLDER writes both somewhere else.")
    else:
        console.print(f"Written: {RESULTS}, {PAGE}")
    return 0


def available(engines: Sequence[Engine], workloads: Sequence[Workload], console: Console) -> tuple[Engine, ...]:
    """Return engines without PyFlink where no workload needs it, or, with a word on why, where it cannot be installed."""
    others = tuple(engine for engine in engines if not engine.startswith("pyflink"))
    if len(others) == len(engines) or not any(
        engine in workload.engines for workload in workloads for engine in set(engines) - set(others)
    ):
        return others
    try:
        flink_python(SCRATCH)
    except SetupError as error:
        console.print(f"PyFlink is left out: {error}", soft_wrap=True, markup=False)
        return others
    return tuple(engines)


def beside_earlier(records: Sequence[Record], root: Path) -> tuple[Record, ...]:
    """Return records with those that a folder's documents have of other workloads, in the order of the workloads."""
    earlier = read_records(root / RESULTS) if (root / RESULTS).exists() else ()
    measured = {record.workload for record in records}
    kept = [record for record in earlier if record.workload not in measured]
    order = [workload.name for workload in standard_workloads(DEFAULT_ROWS)]
    order += [*(workload.name for workload in latency_workloads()), START, *(workload.name for workload in EMPTY_EPOCHS), SAVEPOINTS]
    return tuple(sorted([*kept, *records], key=lambda record: order.index(record.workload)))


def write_documents(records: Sequence[Record], root: Path) -> None:
    """Write ``benchmarks/results.json`` and ``docs/reference/performance.md`` below a folder."""
    write_records(root / RESULTS, records)
    page = root / PAGE
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(render(records), encoding="utf-8")


def run_shown(comparison: Comparison, console: Console) -> Iterator[tuple[Record, ...]]:
    """Run a comparison with a progress display; yields the records of each workload.

    Raises:
        MeasurementError: a process failed.
        DisagreementError: an engine's results are not what the input says.
    """
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("making the inputs", total=comparison.measurements)

        def show(step: Step) -> None:
            name = f"{step.workload.name} on {step.engine}, run {step.run}"
            if step.figures is None:
                progress.update(task, description=name)
                return
            progress.advance(task)
            kept, lost = step.figures.late_kept, step.figures.late_lost
            console.print(f"{name}: {step.figures.seconds:.1f} s, late rows kept {kept:,}, lost {lost:,}")

        yield from compare(comparison, show)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Compare Tidemark with stock Spark.")
    known = ", ".join(KNOWN_ENGINES)
    parser.add_argument("--workload", action="append", help="only this workload; may be given more than once")
    parser.add_argument("--engine", action="append", help=f"only this engine, of {known}; may be given more than once")
    parser.add_argument("--output", metavar="FOLDER", help="write both documents below this folder")
    return parser


def chosen(
    drained: Sequence[Workload],
    latency: Sequence[LatencyWorkload],
    names: Sequence[str] | None,
    *,
    savepoints: SavepointWorkload = SavepointWorkload(),  # noqa: B008 - frozen
) -> tuple[tuple[Workload, ...], tuple[Live, ...]]:
    """Return the workloads to drain, and those that run on, None for that of starting; without names all that are drained.

    Raises:
        DefinitionError: there is no workload of a name.
    """
    live: dict[str, tuple[Live, ...]] = {
        LATENCY: tuple(latency),
        **{item.name: (item,) for item in latency},
        START: (None,),
        EMPTY: EMPTY_EPOCHS,
        SAVEPOINTS: (savepoints,),
    }
    known = [*(workload.name for workload in drained), *live]
    unknown = set(names or ()) - set(known)
    if unknown:
        raise DefinitionError(f"there is no workload {', '.join(sorted(unknown))}", fix=f"use some of {', '.join(known)}")
    wanted = tuple(workload for workload in drained if not names or workload.name in names)
    return wanted, tuple(dict.fromkeys(item for name in names or () for item in live.get(name, ())))


def measure_live(workloads: Sequence[Live], comparison: Comparison, console: Console) -> Iterator[tuple[Record, ...]]:
    """Measure workloads whose job runs on, on each engine that can; yields the records of each.

    Raises:
        MeasurementError: a process failed.
        DisagreementError: an engine's results are not what the input says.
    """
    for workload in workloads:
        found: list[Record] = []
        for engine in comparison.engines:
            if engine not in _engines_of(workload):
                continue
            console.print(f"{START if workload is None else workload.name} on {engine}")
            found.append(_measured(workload, engine, comparison))
        yield tuple(found)


def _engines_of(workload: Live) -> tuple[Engine, ...]:
    match workload:
        case SavepointWorkload() | EmptyEpochs():
            return ("tidemark",)
        case LatencyWorkload():
            return ENGINES
        case None:
            return (*ENGINES, *START_ENGINES)


def _measured(workload: Live, engine: Engine, comparison: Comparison) -> Record:
    match workload:
        case SavepointWorkload():
            return measure_savepoints(workload, comparison.scratch, memory=comparison.memory)
        case LatencyWorkload():
            return measure_latency(workload, engine, comparison.scratch, memory=comparison.memory)
        case EmptyEpochs():
            return measure_empty_epochs(workload, comparison.scratch, rounds=comparison.runs, memory=comparison.memory)
        case None:
            return measure_start(engine, comparison.scratch)


def _number(variable: str, default: int, *, least: int) -> int:
    text = os.environ.get(variable) or str(default)
    digits = text.replace("_", "").replace(",", "")
    if not digits.isdecimal() or int(digits) < least:
        raise DefinitionError(f"{variable}={text!r} is not a whole number of {least:,} or more", fix=f"set {variable}={default}")
    return int(digits)


if __name__ == "__main__":
    # Without this a plain `kill` would leave the measuring process and its JVM behind.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.exit(main())
