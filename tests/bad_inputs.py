"""Bad input of every kind, each with the error it must give. A case prepares a place and returns the act that must fail."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidemark as tm
from tidemark.errors import TidemarkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOUR = 3_600_000
ROWS: list[tuple[object, ...]] = [("a", 1 * HOUR, 4), ("b", 2 * HOUR, 0), ("a", 5 * HOUR, 2)]
SCHEMA = "zone STRING, at BIGINT, fare BIGINT"

Act = Callable[[], object]
Prepare = Callable[["Lab"], Act]


@dataclass
class Lab:
    """A folder of a case's own, and a session that runs jobs."""

    folder: Path
    spark: SparkSession
    name: str = "fares"
    settings: dict[str, str] = field(default_factory=dict)

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def source(self, *epochs: list[tuple[object, ...]], timestamp: str = "at", schema: str = SCHEMA) -> tm.Stream:
        elements = tm.from_elements(epochs=list(epochs) or [ROWS], schema=schema)
        return tm.source("fares", elements, watermarks=tm.bounded_out_of_orderness("0 seconds", timestamp=timestamp))

    def files(self, format: str, schema: str = SCHEMA) -> tm.Stream:
        spec = tm.files(self.path("landing"), format=format, schema=schema)  # type: ignore[arg-type]
        return tm.source("fares", spec, watermarks=tm.bounded_out_of_orderness("0 seconds", timestamp="at"))

    def hourly(self, stream: tm.Stream | None = None, *, by: str = "zone", uid: str = "hourly", **aggregates: tm.Aggregate) -> tm.Stream:
        chosen = aggregates or {"total": tm.sum("fare")}
        return (self.source() if stream is None else stream).key_by(by).window(tm.tumbling("1 hour")).aggregate(**chosen).uid(uid)

    def job(self, **outputs: tm.Output) -> tm.Job:
        return tm.Job(self.name, outputs=outputs, store=self.path("store"))

    def run(self, job: tm.Job, **options: Any) -> tm.RunResult:
        session = self.spark.newSession() if self.settings else self.spark
        for key, value in self.settings.items():
            session.conf.set(key, value)
        return tm.run(job, spark=session, **options)

    def rows_out(self, stream: tm.Stream) -> Act:
        """Return the act of running a stream into a Delta table."""
        job = self.job(rows=tm.delta(stream, self.path("out")))
        return lambda: self.run(job)

    def windows_out(self, stream: tm.Stream) -> tm.Job:
        return self.job(hourly=tm.delta(stream, self.path("out")))

    def ran(self, stream: tm.Stream | None = None) -> Path:
        """Run a good windowed job over its first epoch; returns the job's folder."""
        self.run(self.windows_out(self.hourly() if stream is None else stream))
        return self.folder / "store" / self.name


@dataclass(frozen=True)
class BadInput:
    """A case: what is bad about the input, the error's class, and texts that its message must hold."""

    name: str
    error: type[TidemarkError]
    says: tuple[str, ...]
    prepare: Prepare


def newest_record(folder: Path) -> Path:
    """Return the newest record of a job's log."""
    return max((folder / "log").glob("*.json"))


def state_files(folder: Path) -> Iterator[Path]:
    """Return the Parquet files of a job's state."""
    return (folder / "state").rglob("*.parquet")


def rewrite(path: Path, change: Callable[[dict[str, Any]], Mapping[str, object]]) -> None:
    """Change a stored record."""
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def fails(*_: object) -> dict[str, object]:
    """Fail as a user's function may."""
    raise ValueError("fare 4 is not to my liking")


def without_engine_columns(frame: DataFrame) -> DataFrame:
    """Lose the rows' event time."""
    return frame.select("zone")
