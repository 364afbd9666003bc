"""What is measured: the windows and the data of each workload, how much of it an epoch reads, and what warms the process up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benchmarks.data.fares import FaresPlan, Plan
from benchmarks.data.growth import EPOCH_MS, GrowthPlan, Stage
from benchmarks.harness.engines import ENGINES, FUNCTION_ENGINES, Engine
from benchmarks.harness.shapes import Shape

Measure = Literal["throughput", "epochs", "growth"]

SKIPPED_EPOCHS = 10
MEASURED_EPOCHS = 40
SMALL_EPOCH_ROWS = 1_000
MANY_EPOCHS = 300
SMALL_STATE = 10_000
LARGE_STATE = 1_000_000

_SMALL_EPOCH_HOURS = 1 / 6
_WARM_ROWS = {1_000: 20_000_000, 200_000: 5_000_000}
"""By drivers: the compilers of a JVM are done with the code that each row runs through after so many; a stream runs for months after that.

With few drivers an engine takes little time for a row, and the compilers more rows until they are done.
"""
_WARM_EPOCHS = 60
"""After so many they are nearly done with what plans and commits an epoch, too."""
_LOADING_FILES = 4
_TOUCHES = 35
_SETTLING = 5
BREAKS = 0.2
FEW_LATE = 0.000_01

_HOURLY = Shape("tumbling", "1 hour")
_DAY_SLIDING = Shape("sliding", "24 hours", "15 minutes")
_SESSIONS = Shape("session", "5 minutes")


@dataclass(frozen=True)
class Phase:
    """Epochs that are measured: so many, behind those skipped at the start."""

    skip: int
    take: int


@dataclass(frozen=True)
class Workload:
    """Fares summed and counted by driver and window.

    Args:
        name: as it stands in the records.
        measure: ``throughput``, events per second of a whole drain; ``epochs``, milliseconds of one epoch; ``growth``, the same with
            little open state and with much.
        shape: the windows.
        fares: the input.
        warm_fares: what the process drains before the clock starts.
        files_per_epoch: greatest number of files that one epoch reads.
        title: one line for readers.
        phases: the epochs that are measured: none for ``throughput``, one phase for ``epochs``, first and last for ``growth``.
        rounds: greatest number of rounds, of workloads that take stock Spark long; None for no limit.
        engines: on which it is measured.
    """

    name: str
    measure: Measure
    shape: Shape
    fares: Plan
    warm_fares: Plan
    files_per_epoch: int
    title: str
    phases: tuple[Phase, ...] = ()
    rounds: int | None = None
    engines: tuple[Engine, ...] = ENGINES

    def rounds_of(self, runs: int) -> int:
        """Return how many rounds are run where ``runs`` are asked for."""
        return runs if self.rounds is None else min(runs, self.rounds)

    @property
    def least_epochs(self) -> int:
        """Number of epochs whose lengths must be known."""
        return max((phase.skip + phase.take for phase in self.phases), default=0)


def standard_workloads(rows: int, *, epochs: int = MANY_EPOCHS) -> tuple[Workload, ...]:
    """Return the workloads of ``make bench``.

    Args:
        rows: size of those that measure throughput; sliding windows of many drivers, where stock Spark updates 96 windows for each row,
            have a part of it.
        epochs: of ``many-epochs``.
    """
    return (
        _throughput("tumbling-1k", _HOURLY, FaresPlan(rows, 1_000), _warm(rows, 1_000)),
        _throughput("tumbling-200k", _HOURLY, FaresPlan(rows, 200_000), _warm(rows, 200_000)),
        # A late row may be late for 96 windows: one in 2,000 would leave hardly a window of a driver in which all engines must agree.
        _throughput("sliding-1k", _DAY_SLIDING, FaresPlan(rows, 1_000, late_share=FEW_LATE), _warm(rows // 10, 1_000), rounds=1),
        _throughput(
            "sliding-200k",
            _DAY_SLIDING,
            FaresPlan(rows // 10, 200_000, late_share=FEW_LATE),
            _warm(rows // 1_000, 200_000),
            rounds=1,
            engines=("tidemark", "spark-rocksdb"),
        ),
        _throughput("sliding-sparse", _DAY_SLIDING, FaresPlan(rows // 200, 200_000), _warm(rows // 1_000, 200_000), rounds=1),
        # Drivers that never rest would have one session each, which never closes.
        _throughput("session-1k", _SESSIONS, FaresPlan(rows, 1_000, breaks=BREAKS), _warm(rows, 1_000, breaks=BREAKS), rounds=2),
        _throughput("session-200k", _SESSIONS, FaresPlan(rows, 200_000), _warm(rows, 200_000), rounds=2),
        _functions("function-1k", FaresPlan(rows // 10, 1_000), _warm(rows // 10, 1_000)),
        # The engines whose time allows it, with as many fares in an epoch as windows have.
        _functions(
            "function-1k-large",
            FaresPlan(rows, 1_000),
            _warm(rows // 10, 1_000),
            rounds=1,
            engines=("tidemark-process", "tidemark-process-batch", "spark-tws-rows"),
        ),
        _functions("function-200k", FaresPlan(rows // 10, 200_000), _warm(rows // 20, 200_000)),
        _small_epochs(),
        _growing("growing-windows", Shape("tumbling", "30 days")),
        _growing("growing-sessions", Shape("session", "30 days")),
        _many_epochs(epochs),
    )


def _throughput(
    name: str, shape: Shape, fares: FaresPlan, warm: FaresPlan, *, rounds: int | None = None, engines: tuple[Engine, ...] = ENGINES
) -> Workload:
    title = (
        f"{fares.total_rows:,} fares of {fares.drivers:,} drivers, {shape.describe()}, {fares.files} files, 4 of them per epoch, "
        f"after a warm-up of {warm.files} epochs"
    )
    return Workload(name, "throughput", shape, fares, warm, 4, title, rounds=rounds, engines=engines)


def _functions(
    name: str, fares: FaresPlan, warm: FaresPlan, *, rounds: int = 2, engines: tuple[Engine, ...] = FUNCTION_ENGINES
) -> Workload:
    title = (
        f"{fares.total_rows:,} fares of {fares.drivers:,} drivers, counted by hour in a process function in Python with state and timers, "
        f"{fares.files} files, 4 of them per epoch, after a warm-up of {warm.files} epochs"
    )
    return Workload(name, "throughput", _HOURLY, fares, warm, 4, title, rounds=rounds, engines=engines)


def _small_epochs() -> Workload:
    phase = Phase(SKIPPED_EPOCHS, MEASURED_EPOCHS)
    # One epoch more than is measured: an epoch lasts until the next one starts.
    epochs = phase.skip + phase.take + 1
    fares = FaresPlan(rows=epochs * SMALL_EPOCH_ROWS, drivers=1_000, files=epochs, hours=epochs * _SMALL_EPOCH_HOURS)
    warm = FaresPlan(
        rows=_WARM_EPOCHS * SMALL_EPOCH_ROWS, drivers=1_000, files=_WARM_EPOCHS, hours=_WARM_EPOCHS * _SMALL_EPOCH_HOURS, seed=2
    )
    title = f"{SMALL_EPOCH_ROWS:,} fares per epoch, ten minutes of event time each, 1,000 drivers, {_HOURLY.describe()}"
    return Workload("small-epochs", "epochs", _HOURLY, fares, warm, 1, title, (phase,))


def _growing(name: str, shape: Shape) -> Workload:
    fares = GrowthPlan(
        (
            Stage("load", 1, (0, SMALL_STATE)),
            Stage("touch", _TOUCHES, (0, SMALL_STATE), SMALL_EPOCH_ROWS),
            Stage("load", _LOADING_FILES, (SMALL_STATE, LARGE_STATE)),
            Stage("touch", _TOUCHES, (0, LARGE_STATE), SMALL_EPOCH_ROWS),
            Stage("close", 1, (0, SMALL_STATE), SMALL_EPOCH_ROWS),
        ),
        close_after_ms=3 * shape.size_ms,
    )
    phases = (
        Phase(1 + _SETTLING, _TOUCHES - _SETTLING),
        Phase(1 + _TOUCHES + _LOADING_FILES + _SETTLING, _TOUCHES - _SETTLING),
    )
    title = (
        f"{SMALL_EPOCH_ROWS:,} fares of as many drivers per epoch, {shape.describe()}, "
        f"while {SMALL_STATE:,} and then {LARGE_STATE:,} drivers have one open"
    )
    return Workload(name, "growth", shape, fares, _warm_epochs(shape), 1, title, phases, rounds=1)


def _many_epochs(epochs: int) -> Workload:
    shape = Shape("tumbling", "24 hours")
    tenth = max(1, epochs // 10)
    fares = GrowthPlan(
        (
            Stage("touch", epochs, (0, 10 * SMALL_EPOCH_ROWS), SMALL_EPOCH_ROWS),
            Stage("close", 1, (0, SMALL_EPOCH_ROWS), SMALL_EPOCH_ROWS),
        ),
        close_after_ms=3 * shape.size_ms,
    )
    phases = (Phase(0, tenth), Phase(epochs - tenth, tenth))
    title = (
        f"{epochs:,} epochs of {SMALL_EPOCH_ROWS:,} fares, {EPOCH_MS // 1000} seconds of event time each, {shape.describe()}: "
        f"the first and the last {tenth:,} epochs"
    )
    return Workload("many-epochs", "growth", shape, fares, _warm_epochs(shape), 1, title, phases, rounds=1)


def _warm(rows: int, drivers: int, *, breaks: float = 0.0) -> FaresPlan:
    """Return other fares of the same kind: where sessions end in what is measured, they do so here, too."""
    return FaresPlan(rows=min(rows, _WARM_ROWS[drivers]), drivers=drivers, files=_WARM_EPOCHS, seed=2, breaks=breaks)


def _warm_epochs(shape: Shape) -> GrowthPlan:
    """Return as many small epochs as other warm-ups have, and one that closes windows."""
    stages = (Stage("touch", 20, (0, SMALL_STATE), SMALL_EPOCH_ROWS), Stage("close", 1, (0, SMALL_STATE), SMALL_EPOCH_ROWS))
    return GrowthPlan(stages, close_after_ms=3 * shape.size_ms, seed=2)
