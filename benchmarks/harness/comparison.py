"""Runs workloads on engines side by side: one run of each engine, then the next run of each, and checks every result."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.checks.agreement import Truth, truth_of
from benchmarks.data.fares import ensure_fares
from benchmarks.harness.engines import DRIVER_MEMORY, Engine, cores
from benchmarks.harness.measurement import Request, measured_folder
from benchmarks.harness.processes import run_measurement
from benchmarks.harness.records import Growth, Record, RunFigures, Spread, epoch_lengths, growth_of, throughput
from benchmarks.harness.workloads import Workload
from tidemark.errors import EngineError


@dataclass(frozen=True)
class Comparison:
    """What to compare.

    Args:
        workloads: what is drained.
        engines: on which engines, in this order within each round.
        runs: rounds, of workloads that have no fewer.
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
        return sum(workload.rounds_of(self.runs) * len(self.engines_of(workload)) for workload in self.workloads)

    def engines_of(self, workload: Workload) -> Sequence[Engine]:
        """Return the engines that a workload is measured on."""
        return [engine for engine in self.engines if engine in workload.engines]


@dataclass(frozen=True)
class Step:
    """What the comparison is at: ``figures`` once the run is done, none before."""

    workload: Workload
    engine: Engine
    run: int
    figures: RunFigures | None = None


def compare(comparison: Comparison, report: Callable[[Step], None]) -> Iterator[tuple[Record, ...]]:
    """Measure everything; yields the records of a workload, one per engine, as soon as it is done.

    Args:
        comparison: what to measure.
        report: called before and after each measurement.

    Raises:
        MeasurementError: a process failed.
        DisagreementError: an engine's results are not what the input says.
    """
    for workload in comparison.workloads:
        files = ensure_fares(workload.fares, comparison.scratch)
        warm = ensure_fares(workload.warm_fares, comparison.scratch)
        truth = truth_of(workload.fares, files, workload.shape)
        engines = comparison.engines_of(workload)
        found: dict[Engine, list[RunFigures]] = {engine: [] for engine in engines}
        for run in range(1, workload.rounds_of(comparison.runs) + 1):
            # Each has its turn at being first: what is measured later finds a warmer machine.
            turn = (run - 1) % max(len(engines), 1)
            for engine in (*engines[turn:], *engines[:turn]):
                report(Step(workload, engine, run))
                figures = _measure(comparison, workload, engine, truth, (files, warm))
                found[engine].append(figures)
                report(Step(workload, engine, run, figures))
        yield tuple(_record(comparison, workload, engine, runs) for engine, runs in found.items())


def _measure(comparison: Comparison, workload: Workload, engine: Engine, truth: Truth, inputs: tuple[Path, Path]) -> RunFigures:
    comparison.scratch.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=comparison.scratch))
    files, warm = inputs
    try:
        request = Request(engine, workload.shape, str(files), str(warm), str(folder), workload.files_per_epoch, comparison.memory)
        watched = run_measurement(request)
        verdict = truth.judge(engine, measured_folder(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    measured = watched.measurement
    if len(measured.epoch_ms) < workload.least_epochs:
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
        cells_checked=verdict.compared,
        versions=measured.versions,
        state_rows=measured.state_rows,
        state_files=measured.state_files,
    )


def _record(comparison: Comparison, workload: Workload, engine: Engine, runs: Sequence[RunFigures]) -> Record:
    last = runs[-1]
    speed, epochs, growth = _measures(workload, runs)
    return Record(
        workload=workload.name,
        engine=engine,
        title=workload.title,
        rows=workload.fares.total_rows,
        runs=len(runs),
        events_per_second=speed,
        epoch_ms=epochs,
        peak_memory_bytes=max(run.peak_memory_bytes for run in runs),
        late_kept=last.late_kept,
        late_lost=last.late_lost,
        cells_checked=last.cells_checked,
        cores=cores(),
        driver_memory=comparison.memory,
        versions=dict(last.versions),
        growth=growth,
    )


def _measures(workload: Workload, runs: Sequence[RunFigures]) -> tuple[Spread | None, Spread | None, Growth | None]:
    """Return events per second, lengths of epochs, and their growth: the one that the workload measures, and None for the others."""
    if workload.measure == "throughput":
        return throughput(runs, workload.fares.total_rows), None, None
    first, last = workload.phases[0], workload.phases[-1]
    if workload.measure == "epochs":
        return None, epoch_lengths(runs, skip=first.skip, take=first.take), None
    return None, None, growth_of(runs, first=(first.skip, first.take), last=(last.skip, last.take))
