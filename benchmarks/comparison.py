"""Runs workloads on engines side by side: one run of each engine, then the next run of each, and checks every result."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.agreement import Truth, judge, truth_of
from benchmarks.engines import DRIVER_MEMORY, Engine, cores
from benchmarks.fares import ensure_fares
from benchmarks.measurement import Request, measured_folder
from benchmarks.processes import run_measurement
from benchmarks.records import Record, RunFigures, epoch_lengths, throughput
from benchmarks.workloads import MEASURED_EPOCHS, WARM_EPOCHS, Workload
from tidemark.errors import EngineError


@dataclass(frozen=True)
class Comparison:
    """What to compare.

    Args:
        workloads: what is drained.
        engines: on which engines, in this order within each round.
        runs: rounds.
        scratch: folder of inputs, which are kept, and of outputs, which are not.
        memory: of each JVM.
    """

    workloads: Sequence[Workload]
    engines: Sequence[Engine]
    runs: int
    scratch: Path
    memory: str = DRIVER_MEMORY

    @property
    def measurements(self) -> int:
        """Number of processes that are going to be started."""
        return len(self.workloads) * len(self.engines) * self.runs


@dataclass(frozen=True)
class Step:
    """What the comparison is at: ``figures`` once the run is done, none before."""

    workload: Workload
    engine: Engine
    run: int
    figures: RunFigures | None = None


def compare(comparison: Comparison, report: Callable[[Step], None]) -> tuple[Record, ...]:
    """Measure everything; returns a record per workload and engine.

    Args:
        comparison: what to measure.
        report: called before and after each measurement.

    Raises:
        MeasurementError: a process failed.
        DisagreementError: an engine's results are not what the input says.
    """
    records: list[Record] = []
    for workload in comparison.workloads:
        files = ensure_fares(workload.fares, comparison.scratch)
        warm = ensure_fares(workload.warm_fares, comparison.scratch)
        truth = truth_of(workload.fares, files)
        found: dict[Engine, list[RunFigures]] = {engine: [] for engine in comparison.engines}
        for run in range(1, comparison.runs + 1):
            for engine in comparison.engines:
                report(Step(workload, engine, run))
                figures = _measure(comparison, workload, engine, truth, (files, warm))
                found[engine].append(figures)
                report(Step(workload, engine, run, figures))
        records += [_record(comparison, workload, engine, runs) for engine, runs in found.items()]
    return tuple(records)


def _measure(comparison: Comparison, workload: Workload, engine: Engine, truth: Truth, inputs: tuple[Path, Path]) -> RunFigures:
    comparison.scratch.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=comparison.scratch))
    files, warm = inputs
    try:
        watched = run_measurement(Request(engine, str(files), str(warm), str(folder), workload.files_per_epoch, comparison.memory))
        verdict = judge(engine, truth, measured_folder(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    measured = watched.measurement
    if workload.measure == "epochs" and len(measured.epoch_ms) < WARM_EPOCHS + MEASURED_EPOCHS:
        raise EngineError(
            f"{engine} reports {len(measured.epoch_ms)} epochs of {workload.name}, fewer than are to be measured",
            fix="see that one file is one epoch",
        )
    return RunFigures(
        seconds=measured.seconds,
        epoch_ms=measured.epoch_ms,
        peak_memory_bytes=watched.peak_memory_bytes,
        late_kept=verdict.late_kept,
        late_lost=verdict.late_lost,
        cells_checked=verdict.cells,
        versions=measured.versions,
    )


def _record(comparison: Comparison, workload: Workload, engine: Engine, runs: Sequence[RunFigures]) -> Record:
    by_epoch = workload.measure == "epochs"
    last = runs[-1]
    return Record(
        workload=workload.name,
        engine=engine,
        title=workload.title,
        rows=workload.fares.total_rows,
        runs=len(runs),
        events_per_second=None if by_epoch else throughput(runs, workload.fares.total_rows),
        epoch_ms=epoch_lengths(runs, skip=WARM_EPOCHS, take=MEASURED_EPOCHS) if by_epoch else None,
        peak_memory_bytes=max(run.peak_memory_bytes for run in runs),
        late_kept=last.late_kept,
        late_lost=last.late_lost,
        cells_checked=last.cells_checked,
        cores=cores(),
        driver_memory=comparison.memory,
        versions=dict(last.versions),
    )
