"""A job whose driver's records are written by a generator: the graph, epochs, status, heartbeat; no JVM. Its clock is the world's."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

import tidemark as tm
from tests.control.worlds import FakeLauncher, World
from tidemark.control.model.launcher import Launcher
from tidemark.errors import SourceError
from tidemark.savepoints.model.stored_graph import graph_of
from tidemark.state.log.progress import (
    EpochProgress,
    FilterProgress,
    OperatorProgress,
    OutputProgress,
    SourceProgress,
    SplitProgress,
)
from tidemark.state.log.totals import add_epoch
from tidemark.state.status.driver_load import Backlog, EpochSample, load_of
from tidemark.state.status.history import HistoryWriter
from tidemark.state.status.job_graph import write_job_graph
from tidemark.state.status.status import read_status, write_status

HOSTILE = "<img src=x onerror=\"document.title='broken'\">"
"""Text that a page must show as text."""

TRIGGER_MS = 5_000
PARTITIONS = 4
SCHEMA = "zone STRING, ride STRING, fare DOUBLE, at TIMESTAMP"
REJECTED, LATE, MALFORMED = tm.OutputTag("refunds"), tm.OutputTag("late_fares"), tm.OutputTag("unreadable")


def taxi_job(name: str = "fares", remark: str = HOSTILE) -> tm.Job:
    """Return a job with two sources, a filter, a window, a deduplication and five outputs; its texts contain a remark."""
    fares = tm.source(
        "fares",
        tm.kafka_source(
            servers="127.0.0.1:9092", topics="fares", format="json", schema="zone STRING, ride STRING, fare DOUBLE, at TIMESTAMP"
        ),
        watermarks=tm.bounded_out_of_orderness("30 seconds", timestamp="value.at"),
        malformed_to=MALFORMED,
    )
    rides = tm.source(
        "rides",
        tm.files("/lake/rides", format="json", schema="ride STRING, zone STRING, at TIMESTAMP"),
        watermarks=tm.bounded_out_of_orderness("1 minute", timestamp="at"),
    )
    rows = fares.select("value.zone AS zone", "value.ride AS ride", "value.fare AS fare")
    paid = rows.filter(f"fare >= 0 AND zone <> '{remark.replace(chr(39), chr(39) * 2)}'", rejects_to=REJECTED)
    hourly = paid.key_by("zone").window(tm.tumbling("1 hour")).allowed_lateness("10 minutes").late_to(LATE)
    totals = hourly.aggregate(fares=tm.count(), dollars=tm.sum("fare")).uid("hourly")
    first = rides.key_by("ride").deduplicate(within="1 hour").uid("first-ride")
    return tm.Job(
        name,
        outputs={
            "hourly": tm.delta(totals, "/lake/hourly", description=f"Fares by zone and hour {remark}"),
            "rides": tm.delta(first, "/lake/first_rides"),
            "late": tm.parquet(totals.side_output(LATE), "/lake/late"),
            "refunds": tm.parquet(paid.side_output(REJECTED), "/lake/refunds"),
            "unreadable": tm.parquet(fares.side_output(MALFORMED), "/lake/unreadable"),
        },
        description=f"Fares and rides of the city {remark}",
    )


@dataclass
class RecordedJob:
    """Writes what the driver of ``taxi_job`` would, epoch by epoch.

    Args:
        world: store, clock, processes.
        name: the job's name.
        is_graph_stored: whether the driver stores the graph, as builds before it did not.
        remark: of ``taxi_job``.
    """

    world: World
    name: str = "fares"
    is_graph_stored: bool = True
    remark: str = HOSTILE
    epochs: list[EpochProgress] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random, self._samples, self._waiting = Random(7), list[EpochSample](), 900_000
        self.world.submit(self.name, code="city.jobs:fares", trigger_ms=TRIGGER_MS, adaptive_intake=True)
        self.world.run(self.world.reconciler(), 10)
        self.world.driver(self.name).idle = True
        if self.is_graph_stored:
            write_job_graph(self.world.store, graph_of(taxi_job(self.name, self.remark)))
        self._writer = HistoryWriter(self.world.store, self.name)

    @property
    def launchers(self) -> dict[str, Launcher]:
        return {"local": FakeLauncher(self.world, "host-a")}

    def commit(self, count: int = 1, *, late: int = 3, malformed: int = 1) -> EpochProgress:
        """Let time pass and commit epochs, with so many late and malformed rows each; returns the last.

        The lag falls and rises between 70 and 124 seconds.
        """
        for _ in range(count):
            self.world.tick(TRIGGER_MS // 1000)
            progress = self._progress(len(self.epochs), late, malformed)
            self._writer.append(progress)
            self._write_status(progress)
            self.epochs.append(progress)
        return self.epochs[-1]

    def end(self) -> None:
        """Let the driver's process die, without a word."""
        self.world.driver(self.name).end(-9)

    def fail(self, what: str) -> None:
        """Let the driver end with a permanent error, and a reconciler see that."""
        self.world.driver(self.name).doomed = SourceError(what, fix="bring it back")
        self.world.run(self.world.reconciler(), 10)

    def _write_status(self, progress: EpochProgress) -> None:
        known = read_status(self.world.store, self.name)
        assert known is not None
        now = self.world.clock.now_ms()
        self._samples.append(EpochSample(now - progress.duration_ms, now, progress.rows_in, progress.rows_out))
        self._waiting = max(0, self._waiting - progress.rows_in // 4)
        splits = {f"fares-{number}": self._waiting // PARTITIONS for number in range(PARTITIONS)}
        waiting = {"fares": Backlog(rows=self._waiting, splits=splits), "rides": Backlog(files=3, bytes=40_000)}
        load = load_of(self._samples[-20:], TRIGGER_MS, intake=0.75, waiting=waiting, catch_up_ms=95_000)
        totals = add_epoch(known.totals, progress)
        write_status(
            self.world.store, replace(known, last=progress, totals=totals, load=load, heartbeat_at=now, lineage="a1", state="running")
        )

    def _progress(self, number: int, late: int, malformed: int) -> EpochProgress:
        now, fares = self.world.clock.now_ms(), 20_000 + self._random.randrange(4_000) + 9_000 * (number % 9 == 4)
        behind, rejected = 70_000 + 9_000 * abs(number % 12 - 6), fares // 100
        watermark = now - behind
        marks = {f"fares-{n}": watermark + 12_000 * n for n in range(PARTITIONS)}
        splits = {name: SplitProgress(fares // PARTITIONS, mark, mark + 30_001, idle=name == "fares-3") for name, mark in marks.items()}
        whole = SplitProgress(fares // 5, now - 61_000, now, idle=False)
        accepted, rides, panes = fares - malformed - rejected - late, fares // 5, 40 if number % 3 == 0 else 0
        took = 3_600 + self._random.randrange(900) + 1_500 * (number % 9 == 4)
        return EpochProgress(
            self.name,
            "a1",
            number,
            now,
            took,
            rows_in=fares + rides,
            rows_out=panes + rides - 60,
            sources={
                "fares": SourceProgress(fares, fares - malformed, malformed, watermark, behind, "fares-0", splits),
                "rides": SourceProgress(rides, rides, 0, now - 61_000, 61_000, None, {"": whole}),
            },
            filters={"refunds": FilterProgress(fares - malformed, fares - malformed - rejected, rejected, "refunds")},
            operators={
                "hourly": OperatorProgress(
                    accepted + late, accepted, late, watermark, panes, 0, 48_000 + 50 * number, 5_300_000, 6, "late_fares",
                    oldest_open_window=watermark // 3_600_000 * 3_600_000,
                ),
                "first-ride": OperatorProgress(
                    rides, rides - 60, 0, now - 61_000, 0, 0, 81_000, 2_900_000, 4, counters={"duplicates": 60}, kind="deduplicate"
                ),
            },
            outputs={
                "hourly": OutputProgress(panes, 1, 100 * panes, "delta"),
                "rides": OutputProgress(rides - 60, 1, 90 * rides, "delta"),
                "late": OutputProgress(late, 1, 10 * late, "parquet"),
                "refunds": OutputProgress(rejected, 1, 10 * rejected, "parquet"),
                "unreadable": OutputProgress(malformed, 1, 10 * malformed, "parquet"),
            },
            stages={
                "absorb hourly": took // 4, "absorb first-ride": took // 9, "count": took // 10, "fire hourly": took // 7,
                "output hourly": took // 12, "output rides": took // 11, "check": took // 40, "publish": took // 8,
            },
        )  # fmt: skip
