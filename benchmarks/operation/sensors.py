"""How long Dagster's sensors take over many jobs that run well: ``python -m benchmarks.operation.sensors [--jobs 1000] [--epochs 30]``.

The jobs are those of ``benchmarks.operation.control``, each with a history and one output with hourly partitions. Ticked are the
reconciler, the health sensor with all its rules, and the progress sensor: for the first time, with nothing new, and when each job has
committed so many epochs since (30 are five minutes of epochs, ten seconds apart), until all are observed. What Dagster then does with the
events is not in it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import dagster as dg

import tidemark as tm
from benchmarks.operation.control import NoLauncher, fill
from tidemark.assets import build_output_asset_specs
from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.alerts.model.alert_settings import RULES
from tidemark.control.model.launcher import Launcher
from tidemark.sensors import SensorOptions, build_job_health_sensor, build_progress_sensor, build_reconcile_sensor
from tidemark.state.log.progress import EpochProgress
from tidemark.state.status.history import HistoryWriter
from tidemark.state.status.status import read_status, write_status
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Ticked:
    """One tick: of which sensor, in which situation, how many seconds it took, how many events it reported, and what it said."""

    sensor: str
    situation: str
    seconds: float
    events: int
    said: str


class StandingClock(ManualClock):
    """The time stands still, so that all jobs are well; how long a tick takes is measured all the same."""

    def monotonic(self) -> float:
        """Return the time that passes."""
        return SYSTEM_CLOCK.monotonic()


def measure(store: JobStore, jobs: int, epochs: int) -> Iterator[Ticked]:
    """Fill a store, and tick."""
    clock = StandingClock(fill(store, jobs).now_ms())
    for number in range(jobs):
        commit(store, f"job-{number:04}", 1, clock)
    uri = store.uri
    with dg.DagsterInstance.local_temp(overrides={"telemetry": {"enabled": False}}) as instance:
        for name, sensor in (
            ("reconcile", build_reconcile_sensor(uri, launchers=_launchers, clock=clock)),
            ("health", build_job_health_sensor(uri, rules=RULES, alert_key=None, launchers=_launchers, clock=clock)),
        ):
            for situation in ("first", "again"):
                yield _tick(sensor, instance, None, (name, situation))[0]
        specs = [spec for number in range(jobs) for spec in _specs(f"job-{number:04}", clock.now_ms())]
        sensor = build_progress_sensor(specs, options=SensorOptions(store=uri), clock=clock)
        cursor: str | None = None
        for situation in ("first", "all due"):
            found, cursor = _tick(sensor, instance, cursor, ("progress", situation))
            yield found
            while "wait for the next tick" in found.said:
                found, cursor = _tick(sensor, instance, cursor, ("progress", f"{situation}, goes on"))
                yield found
            found, cursor = _tick(sensor, instance, cursor, ("progress", "nothing new"))
            yield found
            for number in range(jobs):
                commit(store, f"job-{number:04}", epochs, clock)
            clock.advance(300_000)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operation.sensors", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--epochs", type=int, default=30)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        for found in measure(JobStore.open(folder), given.jobs, given.epochs):
            print(f"{found.sensor}, {found.situation}: {found.seconds:.2f} s, {found.events} events ({found.said[:120]})")
    return 0


def _tick(
    sensor: dg.SensorDefinition, instance: dg.DagsterInstance, cursor: str | None, what: tuple[str, str]
) -> tuple[Ticked, str | None]:
    with dg.build_sensor_context(instance=instance, cursor=cursor) as context:
        begun = SYSTEM_CLOCK.monotonic()
        result = sensor(context)
        seconds = SYSTEM_CLOCK.monotonic() - begun
    if not isinstance(result, dg.SensorResult):
        raise TypeError(f"{what[0]} returned {result!r}")
    said = str(result.skip_reason.skip_message if result.skip_reason is not None else "")
    return Ticked(*what, seconds, len(result.asset_events or ()), said), result.cursor


def _launchers() -> Mapping[str, Launcher]:
    return {"local": NoLauncher()}


def _specs(name: str, now: int) -> list[dg.AssetSpec]:
    """Return the asset of a job whose one output and window have the names that the filled store has."""
    start = now - now % HOUR_MS
    files = tm.files(f"/landing/{name}", format="json", schema="k STRING, t TIMESTAMP")
    source = tm.source("source_0", files, watermarks=tm.ascending(timestamp="t"))
    hourly = source.key_by("k").window(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("window-0")
    job = tm.Job(name, outputs={"output_0": tm.delta(hourly, f"/lake/{name}/0")})
    return build_output_asset_specs(job, partitions=_hours(start - HOUR_MS))


def _hours(start_ms: int) -> dg.HourlyPartitionsDefinition:
    return dg.HourlyPartitionsDefinition(datetime.fromtimestamp(start_ms / 1000, UTC))


def commit(store: JobStore, name: str, epochs: int, clock: ManualClock) -> None:
    """Add epochs to a job's history, and the last of them to its status."""
    status = read_status(store, name)
    if status is None or status.last is None:
        raise ValueError(f"{name} is not there")
    first = status.last.epoch + 1
    made = [replace(status.last, epoch=first + number, processing_time=clock.now_ms()) for number in range(epochs)]
    HistoryWriter(store, name).backfill(map(_Record, reversed(made)))  # type: ignore[arg-type]
    write_status(store, replace(status, last=made[-1]))


@dataclass(frozen=True)
class _Record:
    """What of a record the history takes."""

    progress: EpochProgress


if __name__ == "__main__":
    sys.exit(main())
