"""The demo: trips arrive wave by wave, and after each wave Dagster materializes the example's assets.

Run it with ``make demo``; it uses its own folder, and ``make ui`` then shows the runs. At the end it compares the tables
with the generator's counts, and fails if a single record is unaccounted for.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from examples.taxi.dispatch import dispatch_job
from examples.taxi.dispatch_events import count_dispatch, write_events
from examples.taxi.generator import LatenessRule, TripPlan, WaveCounts, count_late, write_wave
from examples.taxi.job import ALLOWED_LATENESS_MINUTES, BOUND_MINUTES, FILES_PER_EPOCH, example_home, job
from examples.taxi.report import print_dispatch, print_report
from tidemark.clock import SYSTEM_CLOCK, format_ms
from tidemark.durations import short_duration
from tidemark.errors import EngineError, SetupError, TidemarkError
from tidemark.state import JobStatus, JobStore, read_status

WAVES = 6
WAVES_PER_EVENTS = 2
"""The events of airport rides come with every second wave."""

LOG = "demo.log"
_PARTS = ("landing", "events", "warehouse", "store")
_MARK = "made-by-demo"


def main() -> int:
    """Run the demo; returns 0 if every record is accounted for."""
    console = Console(width=None if sys.stdout.isatty() else 140)
    try:
        return 0 if show(console, TripPlan(), waves=WAVES) else 1
    except TidemarkError as error:
        console.print(f"[red]{error}[/red]", soft_wrap=True)
        return 1


def show(console: Console, plan: TripPlan, *, waves: int) -> bool:
    """Write and materialize some waves of a plan's trips, and print the report; returns whether all records are accounted for.

    Raises:
        SetupError: the example's folder holds data that no demo made.
        TidemarkError: a materialization failed.
    """
    home = prepare_home(example_home())
    console.print(f"[bold]Tidemark[/bold]: {waves} waves of taxi trips, {plan.wave_hours} hours each, into {home}\n", soft_wrap=True)
    stopwatch = Stopwatch()
    counts, checks = run_waves(console, home, plan, waves=waves, stopwatch=stopwatch)
    late = count_late(waves, LatenessRule(FILES_PER_EPOCH, BOUND_MINUTES * 60, ALLOWED_LATENESS_MINUTES * 60), plan=plan)
    status = read_status(JobStore.open(str(home / "store")), job.name)
    if status is None:
        console.print("[red]The job left no status.[/red]")
        return False
    dispatched = read_status(JobStore.open(str(home / "store")), dispatch_job.name)
    holds = print_report(console, home, status, checks, expected=counts, expected_late=sum(late))
    holds &= dispatched is not None and print_dispatch(
        console, home, dispatched, count_dispatch(waves // WAVES_PER_EVENTS, plan=events_plan(plan))
    )
    console.print("\nThe same in Dagster: [bold]make ui[/bold], then http://127.0.0.1:3000/asset-groups")
    stopwatch.lap("the report")
    console.print(str(stopwatch), soft_wrap=True)
    return holds


def events_plan(plan: TripPlan) -> TripPlan:
    """Return the plan of the events of airport rides: the same trips in fewer waves."""
    return dataclasses.replace(plan, wave_hours=plan.wave_hours * WAVES_PER_EVENTS)


def prepare_home(home: Path) -> Path:
    """Delete an earlier demo's data from the demo's folder, and return the folder; a folder with other data is refused.

    Raises:
        SetupError: the folder holds data that no demo made, or a symbolic link in place of its data.
    """
    mark = home / _MARK
    if not mark.exists() and any((home / part).is_dir() and any((home / part).iterdir()) for part in _PARTS):
        raise SetupError(
            "the example's folder has data that is not the demo's", fix="set TIDEMARK_EXAMPLE_HOME to an empty folder", place=str(home)
        )
    if linked := next((home / part for part in _PARTS if (home / part).is_symlink()), None):
        raise SetupError(
            f"{linked} is a symbolic link, and what lies behind it is not deleted",
            fix="remove the link, or set TIDEMARK_EXAMPLE_HOME to another folder",
            place=str(home),
        )
    home.mkdir(parents=True, exist_ok=True)
    mark.touch()
    for part in _PARTS:
        shutil.rmtree(home / part, ignore_errors=True)
    (home / "landing").mkdir()
    return home


class Stopwatch:
    """How long the parts of the demo took, in their order."""

    def __init__(self) -> None:
        self._laps: dict[str, float] = {}
        self._last = SYSTEM_CLOCK.monotonic()

    def lap(self, part: str) -> None:
        """Record that a part is done; parts of one name are added up."""
        now = SYSTEM_CLOCK.monotonic()
        self._laps[part] = self._laps.get(part, 0.0) + now - self._last
        self._last = now

    def __str__(self) -> str:
        """Return all of it in one line."""
        parts = ", ".join(f"{part} {short_duration(round(took) * 1000)}" for part, took in self._laps.items())
        return f"It took {short_duration(round(sum(self._laps.values())) * 1000)}: {parts}"


def run_waves(
    console: Console, home: Path, plan: TripPlan, *, waves: int, stopwatch: Stopwatch
) -> tuple[WaveCounts, Sequence[dg.AssetCheckEvaluation]]:
    """Write and materialize the waves; returns what was written, and the checks of the last materialization.

    Raises:
        TidemarkError: a materialization failed.
    """
    with errors_in(home / LOG), showing(console, home) as progress:
        step = progress.add_task("starting Dagster and Spark", total=waves)
        from examples.taxi.definitions import BOTH, DRAIN, defs

        trips, both = (defs.resolve_job_def(name) for name in (DRAIN.job_name, BOTH.name))
        written = WaveCounts()
        checks: Sequence[dg.AssetCheckEvaluation] = ()
        stopwatch.lap("loading Dagster")
        with instance_of_demo() as instance:
            for wave in range(waves):
                progress.update(step, description=f"wave {wave + 1}: trips arrive")
                counts = write_wave(home / "landing", wave, plan=plan)
                of_rides, is_last = divmod(wave, WAVES_PER_EVENTS)
                has_events = is_last == WAVES_PER_EVENTS - 1
                if has_events:
                    write_events(home / "events", of_rides, plan=events_plan(plan))
                progress.update(step, description=f"wave {wave + 1}: Dagster materializes")
                result = (both if has_events else trips).execute_in_process(instance=instance, raise_on_error=False)
                if not result.success:
                    raise failure_of(result, home / LOG)
                written += counts
                checks = result.get_asset_check_evaluations()
                progress.advance(step)
                stopwatch.lap("the first wave, with Spark's start," if wave == 0 else "the other waves")
                status = read_status(JobStore.open(str(home / "store")), job.name)
                console.print(wave_line(wave, counts, status, checks), soft_wrap=True)
    return written, checks


@contextmanager
def errors_in(log: Path) -> Iterator[None]:
    """Send this process's and its children's standard error to a file, so that Java's and Dagster's logs leave the display alone."""
    sys.stderr.flush()
    before = os.dup(2)
    with log.open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)


@contextmanager
def showing(console: Console, home: Path) -> Iterator[Progress]:
    """Show a bar over the waves, and the job's current epoch, while the body runs."""
    store = JobStore.open(str(home / "store"))
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description:<32}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[epoch]}"),
        console=console,
        auto_refresh=False,
    )

    def render() -> Progress:
        status = read_status(store, job.name)
        for task in progress.tasks:
            progress.update(task.id, epoch=epoch_text(status))
        return progress

    with Live(get_renderable=render, console=console, refresh_per_second=4, transient=True):
        yield progress


def epoch_text(status: JobStatus | None) -> str:
    """Return the job's newest epoch, for the display."""
    if status is None or status.last is None:
        return ""
    last = status.last
    rate = last.rows_in * 1000 / max(last.duration_ms, 1)
    return f"epoch {last.epoch}, {rate:,.0f} rows/s, watermark {format_ms(last.watermark)[:16].replace('T', ' ')}"


@contextmanager
def instance_of_demo() -> Iterator[dg.DagsterInstance]:
    """Yield the instance that ``make ui`` shows, or an ephemeral one if ``DAGSTER_HOME`` is not set."""
    if os.environ.get("DAGSTER_HOME"):
        with dg.DagsterInstance.get() as instance:
            yield instance
    else:
        with dg.DagsterInstance.ephemeral() as instance:
            yield instance


def failure_of(result: dg.ExecuteInProcessResult, log: Path) -> EngineError:
    """Return why a materialization failed."""
    causes = [event.step_failure_data.error for event in result.all_events if event.is_step_failure]
    texts = [(cause.cause or cause).message.strip().partition(" Fix: ")[0] for cause in causes if cause is not None]
    return EngineError("; ".join(texts) or "a materialization failed", fix=f"see the run in Dagster (make ui) and {log}", job=job.name)


def wave_line(wave: int, counts: WaveCounts, status: JobStatus | None, checks: Sequence[dg.AssetCheckEvaluation]) -> str:
    """Return one line on a finished wave."""
    late = sum(operator["late"] for operator in status.totals["operators"].values()) if status else 0
    passed = sum(check.passed for check in checks)
    return (
        f"wave {wave + 1}: {counts.total:>6,} trips, of them {counts.delayed:>3} delayed, {counts.rejected:>3} refunds, "
        f"{counts.malformed:>2} malformed | late so far {late:>3} | checks {passed} of {len(checks)} | {epoch_text(status)}"
    )


if __name__ == "__main__":
    sys.exit(main())
