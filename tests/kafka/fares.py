"""A job over a topic of fares, and what the element-by-element reference makes of the same records."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deltalake import DeltaTable

import tidemark as tm
from tests.kafka.broker import Topics
from tidemark.semantics.reference.reference import Epoch, EpochResult, ReferenceJob, run_reference
from tidemark.semantics.reference.reference_results import Element, Fold
from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK, WatermarkStrategy
from tidemark.semantics.windows.assigners import Tumbling
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.offset_log import positions
from tidemark.state.log.progress import EpochProgress
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE: Final = 60_000
START: Final = 1_700_000_040_000 // (10 * MINUTE) * 10 * MINUTE
MALFORMED, LATE, BROKEN = tm.OutputTag("malformed_fares"), tm.OutputTag("late_fares"), tm.OutputTag("broken_fares")
TIMESTAMP: Final = "try_cast(get_json_object(CAST(value AS STRING), '$.at') AS BIGINT)"
WATERMARKS: Final = tm.bounded_out_of_orderness("1 minute", timestamp=TIMESTAMP)


@dataclass(frozen=True)
class Fare:
    """A record: where it stands, and what it says; ``at`` is its event time, None for a record that is no JSON."""

    partition: int
    offset: int
    zone: int
    at: int | None
    amount: int


@dataclass
class Fares:
    """A topic, and all that was sent to it."""

    topics: Topics
    topic: str
    sent: list[Fare] = field(default_factory=list)

    def send(self, partition: int, *times: int, zone: int = 7) -> None:
        """Send records with event times in milliseconds since ``START``."""
        for time in times:
            offset = sum(fare.partition == partition for fare in self.sent)
            fare = Fare(partition, offset, zone, START + time, 1 + (offset * 31 + partition) % 90)
            value = json.dumps({"zone": fare.zone, "at": fare.at, "amount": fare.amount})
            self.sent.append(fare)
            self.topics.send(self.topic, partition, value)
        self.topics.flush()

    def send_raw(self, partition: int, *values: str | bytes | None) -> None:
        """Send records that are no fares."""
        for value in values:
            offset = sum(fare.partition == partition for fare in self.sent)
            self.sent.append(Fare(partition, offset, 0, None, 0))
            self.topics.send(self.topic, partition, value)
        self.topics.flush()


@dataclass
class FareJob:
    """The job, its tables, and the positions after each epoch that ran here."""

    folder: Path
    topic: str
    address: str
    options: Mapping[str, str] = field(default_factory=dict)
    watermarks: WatermarkStrategy = WATERMARKS
    name: str = "fares"
    format: str = "kafka"
    lateness: str = "2 minutes"
    tick: Callable[[], None] = lambda: None
    seen: list[EpochProgress] = field(default_factory=list)
    read: list[Mapping[str, int]] = field(default_factory=list)

    @property
    def store(self) -> str:
        return str(self.folder / "store")

    @property
    def log(self) -> JobLog:
        return JobLog(JobStore.open(self.store).at(self.name), self.name)

    def job(self) -> tm.Job:
        options = {"kafka.bootstrap.servers": self.address, "subscribe": self.topic, "startingOffsets": "earliest", **self.options}
        fares = tm.source("fares", tm.streaming_format(self.format, options=options), watermarks=self.watermarks, malformed_to=MALFORMED)
        parsed = fares.with_columns(fare="from_json(CAST(value AS STRING), 'zone INT, amount BIGINT')").select(
            "partition", "offset", zone="fare.zone", amount="fare.amount"
        )
        windows = (
            parsed.key_by("zone")
            .window(tm.tumbling("10 minutes"))
            .allowed_lateness(self.lateness)
            .late_to(LATE)
            .aggregate(n=tm.count(), total=tm.sum("amount"), last=tm.last("amount"))
            .uid("windows")
        )
        out = self.folder / self.name
        outputs = {
            "windows": tm.delta(windows, f"{out}/windows"),
            "late": tm.delta(windows.side_output(LATE), f"{out}/late"),
            "malformed": tm.delta(fares.side_output(MALFORMED), f"{out}/malformed"),
        }
        return tm.Job(self.name, outputs=outputs)

    def run(self, spark: SparkSession, **options: object) -> tm.RunResult:
        """Run the job, and note what each epoch read."""
        return tm.run(self.job(), spark=spark, store=self.store, on_epoch=self._note, handle_signals=False, **options)  # type: ignore[arg-type]

    def _note(self, progress: EpochProgress) -> None:
        self.seen.append(progress)
        head = self.log.load().epoch
        assert head is not None
        found = positions(head.offsets).get("fares")
        assert isinstance(found, Mapping)
        self.read.append(dict(found.get(self.topic, {})))
        self.tick()

    def rows(self, table: str) -> list[dict[str, object]]:
        folder = self.folder / self.name / table
        return DeltaTable(str(folder)).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(str(folder)) else []

    def panes(self) -> list[tuple[object, ...]]:
        """Return all panes: zone, start, timing, index and results."""
        found = self.rows("windows")
        return sorted(
            (r["zone"], millis(r["window_start"]), r["pane_timing"], r["pane_index"], r["n"], r["total"], r["last"]) for r in found
        )

    def late(self) -> list[tuple[object, object]]:
        return sorted((row["partition"], row["offset"]) for row in self.rows("late"))

    def expected(self, sent: Sequence[Fare], *, ended: bool = False) -> tuple[EpochResult, ...]:
        """Return what the reference makes of the same records with the same cuts."""
        epochs, before = [], dict[str, int]()
        for number, (progress, now) in enumerate(zip(self.seen, self.read, strict=True)):
            taken = [f for f in sent if before.get(str(f.partition), 0) <= f.offset < now.get(str(f.partition), 0)]
            elements = tuple(self._element(fare) for fare in taken)
            epochs.append(Epoch(elements, progress.processing_time, end_of_input=ended and number + 1 == len(self.seen)))
            before = dict(now)
        fold = Fold(
            create=tuple[int, ...],
            add=lambda taken, value, _time, _position: (*taken, int(str(value))),
            result=lambda taken: (len(taken), sum(taken), taken[-1]),
        )
        minutes = int(self.lateness.split()[0])
        job = ReferenceJob({"fares": self.watermarks}, Tumbling(10 * MINUTE), fold, allowed_lateness_ms=minutes * MINUTE)
        return run_reference(job, epochs)

    def _element(self, fare: Fare) -> Element:
        split = f"{self.topic}-{fare.partition}"
        return Element((fare.zone,), fare.at, fare.amount, "fares", split, (fare.partition, fare.offset))


def require_agreement(job: FareJob, sent: Sequence[Fare], *, ended: bool = False) -> None:
    """Hold tables, watermarks and counts of a job against the reference's."""
    expected = job.expected(sent, ended=ended)
    for number, (progress, epoch) in enumerate(zip(job.seen, expected, strict=True)):
        source = progress.sources["fares"]
        counts = epoch.source_counts["fares"]
        assert (source.rows_read, source.rows_malformed) == (counts.read, counts.malformed), f"epoch {number}"
        state = epoch.sources["fares"]
        assert source.watermark == _known(state.watermark), f"epoch {number}"
        splits = {name: (_known(split.watermark), split.idle) for name, split in state.splits.items()}
        assert {name: (split.watermark, split.idle) for name, split in source.splits.items()} == splits, f"epoch {number}"
    panes = [pane for epoch in expected for pane in epoch.panes]
    found = sorted((pane.key[0], pane.window.start, pane.timing, pane.index, *pane.result) for pane in panes)  # type: ignore[misc]
    assert job.panes() == found
    assert job.late() == sorted((e.position[0], e.position[1]) for epoch in expected for e in epoch.late)
    malformed = [entry for epoch in expected for entry in epoch.malformed]
    assert len(job.rows("malformed")) == len(malformed)


def millis(value: object) -> int:
    assert isinstance(value, datetime)
    return round(value.timestamp() * 1000)


def _known(watermark: int) -> int | None:
    return None if watermark == MIN_WATERMARK else watermark
