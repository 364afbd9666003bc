"""What many continuous jobs cost Dagster: ``python -m benchmarks.operation.code_location [--jobs 10] [--minutes 60]``.

The jobs are those of ``benchmarks.operation.control``, each with an epoch every ten seconds. Counted are the Dagster jobs, sensors and
schedules of a code location with all of them, and how long its definitions take to load: with a Dagster job for each operation on each job
and sensors of each job, with the former alone, with one Dagster job for all operations, and with one for the whole store. Then what
Dagster's daemon would write, with sensors of each job and with those of the store: the ticks of the sensors by their intervals, the events
that they report and the runs that they request. The clock is set forward, so an hour takes as long as its ticks do. Times are those of the
process on a processor, so that other work on the machine does not count.

``--write`` writes the page ``docs/reference/code-location.md``, too.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Final

import dagster as dg

from benchmarks.harness.processes import CHECKOUT
from benchmarks.operation.control import NoLauncher, fill
from benchmarks.operation.sensors import StandingClock, commit
from tidemark.assets import build_output_asset_specs, build_source_asset_specs
from tidemark.assets.streams.translator import group_of
from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control import RULES, Launcher, load_job
from tidemark.graph import Job
from tidemark.operations import build_job_definitions, control_jobs, savepoint_jobs
from tidemark.sensors import SensorOptions, build_check_sensor, build_job_health_sensor, build_progress_sensor, build_reconcile_sensor
from tidemark.state.log.heartbeat import read_heartbeat, write_heartbeat
from tidemark.state.store.store import JobStore

STEP_S: Final = 15
"""Seconds by which the clock is set forward; the intervals of the sensors are multiples of it."""

PAGE: Final = "docs/reference/code-location.md"

EACH_JOB: Final = "each job"
THE_STORE: Final = "the store"

_EVENTS: Final = ("AssetObservation", "AssetCheckEvaluation")

_PAGE: Final = """\
# What continuous jobs cost Dagster

{jobs} continuous jobs of one store in one code location, each with one output and an epoch every ten seconds, all of them well. The
definitions are those of `build_job_definitions` ([Dagster with continuous jobs](../how-to/dagster-running-on.md#many-jobs)).
`python -m benchmarks.operation.code_location --write` measured this and wrote this page.

## The code location

| operations | sensors of | Dagster jobs | sensors | schedules | definitions load in |
|---|---|---:|---:|---:|---:|
{ways}

In the first two rows operations are as they were before one Dagster job had all of a streaming job; `single_jobs=True` still adds these to
the third row, which is the default. The last is `operations="store"`. Sensors of each job are those of a call for each with
`own_sensors=True`, as [Components](../how-to/components.md) have them. Dagster's own jobs over assets are not counted. The code of the
streaming jobs is imported before the clock starts.

## An hour

| sensors of | ticks | observations of outputs | evaluations of checks | runs requested | all events | time of ticks |
|---|---:|---:|---:|---:|---:|---:|
{hours}

All events, which the daemon writes, are the ticks, what they report, and the runs. The runs are the check of each job's stored state, once
for its code; checks are reported when their result changes. Operations add no tick: each row of the first table has its sensors' hour.
With sensors of the store the number of ticks does not depend on the number of jobs:

| sensor | ticks |
|---|---:|
{ticks}

Ticks were called one after the other in one process, over a store on a local disk, with the clock set forward. Times are the process's on
a processor. What Dagster's daemon and its storage add is not in them. {system}
"""

_MODULE: Final = """
    import tidemark as tm

    files = tm.files({place!r}, format="json", schema="k STRING, t TIMESTAMP")
    source = tm.source({source!r}, files, watermarks=tm.ascending(timestamp="t"))
    hourly = source.key_by("k").window(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("window-0")
    job = tm.Job({name!r}, outputs={{"output_0": tm.delta(hourly, "/lake/{name}/0")}})
"""


@dataclass(frozen=True)
class Loaded:
    """What a code location has, and how many seconds of a processor its definitions took to load."""

    way: str
    sensors_of: str
    jobs: int
    sensors: int
    schedules: int
    seconds: float


@dataclass
class Written:
    """What Dagster's daemon writes: ticks by sensor, events by type, runs requested; and seconds of a processor."""

    sensors_of: str
    ticks: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    seconds: float = 0.0


def write_codes(folder: Path, jobs: int) -> list[str]:
    """Write the code of so many jobs, whose names are those of ``fill``; returns each as ``module:job``, to be imported from the folder."""
    for number in range(jobs):
        name, source = f"job-{number:04}", f"source_{number}"
        text = textwrap.dedent(_MODULE.format(name=name, source=source, place=f"/landing/{name}"))
        (folder / f"located_{number:04}.py").write_text(text)
    return [f"located_{number:04}:job" for number in range(jobs)]


def measure_loading(codes: Sequence[str], store: str) -> Iterator[Loaded]:
    """Load a code location with these jobs in each way. The code is imported before that."""
    jobs = [load_job(code) for code in codes]
    ways: Mapping[tuple[str, str], Callable[[], dg.Definitions]] = {
        ("a Dagster job for each operation", EACH_JOB): lambda: _singly(jobs, store, own_sensors=True),
        ("a Dagster job for each operation", THE_STORE): lambda: _singly(jobs, store, own_sensors=False),
        ("one for all operations", THE_STORE): lambda: _definitions(codes, store, own_sensors=False),
        ("one for the store", THE_STORE): lambda: build_job_definitions(*codes, store=store, alert_key=None, operations="store"),
    }
    for (way, sensors_of), build in ways.items():
        begun = time.process_time()
        defs = build()
        names = [name for name in defs.get_repository_def().job_names if not name.startswith("__")]
        seconds = time.process_time() - begun
        yield Loaded(way, sensors_of, len(names), len(list(defs.sensors or ())), len(list(defs.schedules or ())), seconds)


def measure_ticks(codes: Sequence[str], store: JobStore, minutes: int, *, own_sensors: bool = False) -> Written:
    """Let so many minutes pass over a store with these jobs, in which all run well, with sensors of the store or of each job."""
    clock, found = StandingClock(fill(store, len(codes)).now_ms()), Written(EACH_JOB if own_sensors else THE_STORE)
    jobs = [load_job(code) for code in codes]
    repository = _definitions(codes, store.uri, own_sensors=own_sensors).get_repository_def()
    sensors = _sensors(jobs, store.uri, clock, own=own_sensors)
    intervals = {sensor.name: sensor.minimum_interval_seconds for sensor in sensors}
    if intervals != {sensor.name: sensor.minimum_interval_seconds for sensor in repository.sensor_defs}:
        raise ValueError("the sensors that tick are not those of the code location")
    cursors: dict[str, str | None] = {}
    with dg.DagsterInstance.local_temp(overrides={"telemetry": {"enabled": False}}) as instance:
        for second in range(0, 60 * minutes, STEP_S):
            _work(store, [job.name for job in jobs], clock)
            for sensor in sensors:
                if second % (sensor.minimum_interval_seconds or STEP_S) == 0:
                    begun = time.process_time()
                    with dg.build_sensor_context(instance=instance, cursor=cursors.get(sensor.name), repository_def=repository) as context:
                        result = sensor(context)
                    found.seconds += time.process_time() - begun
                    if not isinstance(result, dg.SensorResult):
                        raise TypeError(f"{sensor.name} returned {result!r}")
                    cursors[sensor.name] = result.cursor
                    _note(found, sensor.name, result, instance)
    return found


def _note(found: Written, sensor: str, result: dg.SensorResult, instance: dg.DagsterInstance) -> None:
    found.ticks[sensor] += 1
    for request in result.run_requests or ():
        found.runs += 1
        # As if the run had executed them.
        for check in request.asset_check_keys or ():
            made = dg.AssetCheckEvaluation(asset_key=check.asset_key, check_name=check.name, passed=True)
            instance.report_runless_asset_event(made)
    for event in result.asset_events or ():
        found.events[type(event).__name__] += 1
        instance.report_runless_asset_event(event)


def _definitions(codes: Sequence[str], store: str, *, own_sensors: bool) -> dg.Definitions:
    """Return the definitions of one call for all jobs, or of a call for each, with sensors of its own."""
    if not own_sensors:
        return build_job_definitions(*codes, store=store, alert_key=None)
    # The jobs' sources have names of their own.
    return dg.Definitions.merge(*(build_job_definitions(code, store=store, alert_key=None, own_sensors=True) for code in codes))


def _singly(jobs: Sequence[Job], store: str, *, own_sensors: bool) -> dg.Definitions:
    """Return the definitions with a Dagster job for each operation on each job."""
    assets = [*build_source_asset_specs(*jobs), *(spec for job in jobs for spec in build_output_asset_specs(job))]
    operations = [defs for job in jobs for defs in (control_jobs(job, store=store), savepoint_jobs(job, store=store))]
    sensors = _sensors(jobs, store, SYSTEM_CLOCK, own=own_sensors)
    return dg.Definitions.merge(dg.Definitions(assets=assets, sensors=sensors), *operations)


def _sensors(jobs: Sequence[Job], store: str, clock: Clock, *, own: bool) -> list[dg.SensorDefinition]:
    """Return the sensors of ``build_job_definitions`` with a clock: of the store, or of each job."""
    if own:
        return [sensor for job in jobs for sensor in _sensors_of([job], store, clock, names=[job.name], stem=group_of(job.name))]
    return _sensors_of(jobs, store, clock, names=None, stem="tidemark")


def _sensors_of(jobs: Sequence[Job], store: str, clock: Clock, *, names: Sequence[str] | None, stem: str) -> list[dg.SensorDefinition]:
    specs = [spec for job in jobs for spec in build_output_asset_specs(job)]
    return [
        build_progress_sensor(specs, name=f"{stem}_progress", options=SensorOptions(store=store), clock=clock),
        build_reconcile_sensor(store, jobs=names, name=f"{stem}_reconcile", launchers=_launchers, clock=clock),
        build_job_health_sensor(
            store, jobs=names, name=f"{stem}_job_health", rules=RULES, alert_key=None, launchers=_launchers, clock=clock
        ),
        build_check_sensor(store, jobs=names, name=f"{stem}_checks", clock=clock),
    ]


def _launchers() -> Mapping[str, Launcher]:
    return {"local": NoLauncher()}


def _work(store: JobStore, names: Sequence[str], clock: StandingClock) -> None:
    """Let the time pass, and each job commit an epoch every ten seconds and give a sign of life."""
    clock.advance(STEP_S * 1000)
    for name in names:
        commit(store, name, 1 + clock.now_ms() // (STEP_S * 1000) % 2, clock)
        beat = read_heartbeat(store.at(name))
        if beat is None:
            raise ValueError(f"{name} has no heartbeat")
        write_heartbeat(store.at(name), replace(beat, at=clock.now_ms()))


def render(loaded: Sequence[Loaded], hours: Sequence[Written], *, jobs: int, minutes: int) -> str:
    """Return the page, in Markdown; the last of the hours is that with sensors of the store."""
    hour = 60 / minutes
    ways = "\n".join(
        f"| {way.way} | {way.sensors_of} | {way.jobs:,} | {way.sensors} | {way.schedules} | {way.seconds:.2f} s |" for way in loaded
    )
    return _PAGE.format(
        jobs=jobs,
        ways=ways,
        hours="\n".join(_row(written, hour) for written in hours),
        ticks="\n".join(f"| `{name}` | {round(count * hour):,} |" for name, count in hours[-1].ticks.items()),
        system=f"Python {platform.python_version()}, Dagster {version('dagster')}, {os.cpu_count()} cores.",
    )


def _row(written: Written, hour: float) -> str:
    counts = (written.ticks.total(), *(written.events[name] for name in _EVENTS), written.runs)
    numbers = " | ".join(f"{round(count * hour):,}" for count in (*counts, sum(counts)))
    tick_ms = 1000 * written.seconds / written.ticks.total()
    return f"| {written.sensors_of} | {numbers} | {written.seconds * hour:.0f} s, {tick_ms:.0f} ms each |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operation.code_location", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE}")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        codes = write_codes(Path(folder), given.jobs)
        sys.path.insert(0, folder)
        ways, hours = list[Loaded](), list[Written]()
        for loaded in measure_loading(codes, folder):
            ways.append(loaded)
            print(
                f"{loaded.way}, sensors of {loaded.sensors_of}: {loaded.jobs} Dagster jobs, {loaded.sensors} sensors, "
                f"{loaded.schedules} schedules, loaded in {loaded.seconds:.2f} s",
                flush=True,
            )
        for own in (True, False):
            found = measure_ticks(codes, JobStore.open(f"{folder}/store-{own}"), given.minutes, own_sensors=own)
            hours.append(found)
            events = ", ".join(f"{count} {name}" for name, count in found.events.items())
            print(
                f"{given.minutes} minutes, sensors of {found.sensors_of}: {found.ticks.total()} ticks in {found.seconds:.1f} s, "
                f"{events}, {found.runs} runs requested",
                flush=True,
            )
    if given.write:
        (CHECKOUT / PAGE).write_text(render(ways, hours, jobs=given.jobs, minutes=given.minutes), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
