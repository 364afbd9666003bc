"""What is measured: the data of each workload, how much of it an epoch reads, and what warms the process up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benchmarks.fares import FaresPlan

Measure = Literal["throughput", "epochs"]

WARM_EPOCHS = 10
MEASURED_EPOCHS = 40
SMALL_EPOCH_ROWS = 1_000
_SMALL_EPOCH_HOURS = 1 / 6
_WARM_ROWS = 1_000_000


@dataclass(frozen=True)
class Workload:
    """Fares summed and counted by driver in windows of an hour.

    Args:
        name: as it stands in the records.
        measure: ``throughput``, events per second of a whole drain, or ``epochs``, milliseconds of one epoch.
        fares: the input.
        warm_fares: what the process drains before the clock starts.
        files_per_epoch: greatest number of files that one epoch reads.
        title: one line for readers.
    """

    name: str
    measure: Measure
    fares: FaresPlan
    warm_fares: FaresPlan
    files_per_epoch: int
    title: str


def standard_workloads(rows: int) -> tuple[Workload, ...]:
    """Return the workloads of ``make bench``; ``rows`` is the size of those that measure throughput."""
    return (_tumbling("tumbling-1k", rows, 1_000), _tumbling("tumbling-200k", rows, 200_000), _small_epochs())


def _tumbling(name: str, rows: int, drivers: int) -> Workload:
    fares = FaresPlan(rows=rows, drivers=drivers)
    title = f"{fares.total_rows:,} fares of {drivers:,} drivers, {fares.files} files, 4 of them per epoch"
    return Workload(name, "throughput", fares, _warm(rows, drivers), 4, title)


def _small_epochs() -> Workload:
    # One epoch more than is measured: an epoch lasts until the next one starts.
    epochs = WARM_EPOCHS + MEASURED_EPOCHS + 1
    fares = FaresPlan(rows=epochs * SMALL_EPOCH_ROWS, drivers=1_000, files=epochs, hours=epochs * _SMALL_EPOCH_HOURS)
    title = f"{SMALL_EPOCH_ROWS:,} fares per epoch, ten minutes of event time each, 1,000 drivers"
    return Workload("small-epochs", "epochs", fares, _warm(SMALL_EPOCH_ROWS * 20, 1_000), 1, title)


def _warm(rows: int, drivers: int) -> FaresPlan:
    return FaresPlan(rows=min(rows, _WARM_ROWS), drivers=drivers, seed=2)
