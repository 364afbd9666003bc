"""Jobs that really run: files that land, drivers as processes of their own, the commands that people type, and a twin nobody disturbs."""

from __future__ import annotations

import json
import os
import runpy
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from click.testing import CliRunner
from deltalake import DeltaTable

import tidemark as tm
from tests.control.drivers import until
from tests.few_rows import FEW_ROWS
from tidemark.cli.program.main import main
from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.client.job_client import JobClient
from tidemark.control.launch.local_launcher import LocalLauncher
from tidemark.control.model.records import Lifecycle, ProcessHandle
from tidemark.control.model.spec import JobSpec
from tidemark.control.observed.observe import Observation, job_names, observe
from tidemark.spark.columns.few_rows import FEW_BYTES
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.records import EpochRecord
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
KEYS: Final = 100
"""So many that each of seven partitions has some of every minute."""

_ROWS: Final = 2 * KEYS
_SHOWN_LINES: Final = 60

CODE: Final = '''
"""Counts what lands in a folder: by key and minute, appended; by key and hour as far as it is known, upserted."""
import os
import tidemark as tm


def job_of(name, folder, out, *, files_per_epoch=2, wider=False, mended=False, breaks_at=None):
    files = tm.files(folder, format="json", schema="k STRING, t BIGINT, v BIGINT", max_files_per_epoch=files_per_epoch)
    landing = tm.source("landing", files, watermarks=tm.bounded_out_of_orderness("30 seconds", timestamp="t"))
    if breaks_at is not None:
        landing = landing.filter(f"1 / if(t < {breaks_at}, 1, 0) > 0")
    rows = landing.key_by("k")
    uid, total = ("per-minute", "amount") if mended else ("minutes", "total")
    more = {"filled": tm.count("v"), "largest": tm.max("v")} if wider else {}
    minutes = rows.window(tm.tumbling("1 minute")).aggregate(**{"n": tm.count(), total: tm.sum("v"), **more}).uid(uid)
    so_far = tm.event_time_trigger(early=tm.each_epoch_trigger())
    hours = rows.window(tm.tumbling("1 hour")).trigger(so_far).aggregate(n=tm.count(), total=tm.sum("v")).uid("hours")
    # Where it is not mended, the charge for each row is left out.
    shown = f"{total} + n AS total" if mended else total
    counted = minutes.select("k", "window_start", "window_end", "n", shown, "pane_timing", "pane_index")
    outputs = {"minutes": tm.delta(counted, out + "/minutes"), "hours": tm.delta(hours, out + "/hours", mode="upsert")}
    if wider:
        # A table takes no new columns, so what is new has one of its own.
        outputs["peaks"] = tm.delta(minutes.select("k", "window_start", "filled", "largest"), out + "/peaks")
    return tm.Job(name, outputs=outputs, retained_epochs=5)


def plain(**options):
    return job_of(os.environ["RUNNING_JOB"], os.environ["RUNNING_IN"], os.environ["RUNNING_OUT"], **options)


def again():
    return plain()


def wider():
    return plain(wider=True)


def mended():
    return plain(mended=True)


def mended_wider():
    return plain(mended=True, wider=True)


def broken():
    return plain(breaks_at=int(os.environ["BREAKS_AT"]))
'''

Row = tuple[Any, ...]
_Window = tuple[str, datetime, datetime]


@dataclass(frozen=True)
class Tables:
    """The rows of a job's tables, sorted: key, start of the window, and what was counted; ``peaks`` by key and start."""

    minutes: list[Row]
    hours: list[Row]
    peaks: Mapping[tuple[str, datetime], tuple[int, int | None]]

    @property
    def counts(self) -> tuple[list[Row], list[Row]]:
        """The tables that the job has from the beginning."""
        return self.minutes, self.hours

    def mended_since(self, before: Tables) -> Tables:
        """Return these with what mended code makes of them, where it has the job since some other tables were so."""
        old = set(before.minutes)
        minutes = [row if row in old else (*row[:3], n, total + n) for row in self.minutes for n, total in (row[3:],)]
        return replace(self, minutes=sorted(minutes))


@dataclass
class RunningJobs:
    """A folder that files land in, the store of the jobs that read them, and their tables in ``out/JOB``; for one test."""

    root: Path
    landed: int = 0

    def __post_init__(self) -> None:
        for name in ("in", "out", "code"):
            (self.root / name).mkdir()
        (self.root / "code" / "running_jobs.py").write_text(textwrap.dedent(CODE), encoding="utf-8")
        self.launcher = LocalLauncher(self.root / "logs")

    @property
    def store(self) -> JobStore:
        return JobStore.open(str(self.root / "store"))

    def files_read(self, job: str) -> int:
        """How many files a job's newest epoch has behind it."""
        return self.head(job).totals["sources"]["landing"]["read"] // _ROWS

    @property
    def rows(self) -> int:
        """How many rows have landed."""
        return self.landed * _ROWS

    def land(self, files: int) -> None:
        """Let files land, oldest first: two rows of each key in one minute each, of so many bytes that several tasks group them."""
        for minute in range(self.landed, self.landed + files):
            unseen = self.root / f"{minute}.json"
            rows = list(rows_of(minute))
            padding = " " * (FEW_BYTES // len(rows))
            lines = (json.dumps({"k": k, "t": t, "v": v, "padding": padding}) + "\n" for k, t, v in rows)
            unseen.write_text("".join(lines), encoding="utf-8")
            # Spark takes the oldest first.
            os.utime(unseen, (1_600_000_000 + minute,) * 2)
            unseen.rename(self.root / "in" / unseen.name)
        self.landed += files

    def submit(self, job: str, *, cores: int) -> None:
        """Submit a job; whoever reconciles next starts it."""
        spec = JobSpec(
            job,
            "running_jobs:plain",
            trigger_ms=300,
            parallelism=2,
            master=f"local[{cores}]",
            conf={**FEW_ROWS, "spark.ui.enabled": "false"},
            code_paths=(str(self.root / "code"),),
            variables={"RUNNING_JOB": job, "RUNNING_IN": str(self.root / "in"), "RUNNING_OUT": str(self.root / "out" / job)},
        )
        JobClient(self.store, "ada").submit(spec)

    def type_in(self, *words: str, code: int = 0) -> str:
        """Give a command as it is typed, and return what it said; ``code`` is the exit code that it is to end with."""
        done = CliRunner().invoke(main, [*words, "--store", self.store.uri], terminal_width=200)
        assert done.exit_code == code, f"tidemark {' '.join(words)}: {done.output} {done.exception!r}"
        return done.output

    def seen(self, job: str) -> Observation:
        return observe(self.store, job, {"local": self.launcher})

    def process(self, job: str) -> ProcessHandle:
        """Return the process of a job's driver, which lives."""
        found = self.seen(job)
        assert found.handle is not None
        assert found.process == "alive", self.log(job)
        return found.handle

    def log(self, job: str) -> str:
        """Return the newest lines of a driver's log."""
        handle = self.seen(job).handle
        return "\n".join(self.launcher.logs(handle, _SHOWN_LINES)) if handle is not None else "no process"

    def head(self, job: str) -> EpochRecord:
        """Return the newest epoch."""
        found = self.joblog(job).load().epoch
        assert found is not None
        return found

    def joblog(self, job: str) -> JobLog:
        return JobLog(self.store.at(job), job)

    def wait_for(self, job: str, true: Callable[[], object], what: str) -> None:
        """Wait until something of a job is true; say what its driver said where that does not come."""
        try:
            until(true, f"{job}: {what}", seconds=180)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log(job)}") from error

    def wait_for_rows(self, job: str, *, after_failures: bool = False) -> None:
        """Wait until the driver that a job has now has published all that landed; none may have failed, unless that is said."""

        def read() -> bool:
            seen = self.seen(job)
            assert after_failures or seen.control is None or seen.control.failures == ()
            driver = seen.current_driver_status
            return driver is not None and driver.totals["sources"].get("landing", {}).get("read", 0) >= self.rows

        self.wait_for(job, read, "the input's end")

    def wait_for_lifecycle(self, job: str, wanted: Lifecycle) -> None:
        """Wait until reconcilers say that a job is somewhere."""
        self.wait_for(job, lambda: (status := self.seen(job).control) is not None and status.lifecycle == wanted, wanted)

    def wait_for_word(self, job: str, text: str) -> None:
        """Wait until a driver's log says something."""
        self.wait_for(job, lambda: text in self.log(job), f"the word {text!r}")

    def expected(self) -> Tables:
        """Return what the tables of a job hold that has read what has landed, and has all that the wider code counts, by plain counting."""
        read = [row for minute in range(self.landed) for row in rows_of(minute)]
        # The last minute that landed is not over by the watermark.
        minutes, hours = _counted(read, MINUTE, until=(self.landed - 1) * MINUTE), _counted(read, HOUR)
        peaks = {(key, start): (len(values), max(values)) for (key, start, _), values in minutes.items()}
        found = [sorted((*key, len(values), sum(values)) for key, values in each.items()) for each in (minutes, hours)]
        return Tables(found[0], found[1], peaks)

    def tables(self, job: str) -> Tables:
        return tables_in(self.root / "out" / job)

    def end(self) -> None:
        """End all drivers, whatever happened."""
        for job in job_names(self.store):
            handle = self.seen(job).handle
            if handle is not None:
                self.launcher.kill(handle)


@dataclass
class Undisturbed:
    """The job on the same input in longer epochs, with all that the wider code counts, drained in a session of this process."""

    jobs: RunningJobs
    spark: SparkSession

    def __post_init__(self) -> None:
        code = runpy.run_path(str(self.jobs.root / "code" / "running_jobs.py"))
        self._out = self.jobs.root / "undisturbed"
        self._job: tm.Job = code["job_of"]("undisturbed", str(self.jobs.root / "in"), str(self._out), files_per_epoch=100, wider=True)

    def tables(self, *, end_of_input: bool = False) -> Tables:
        """Read what has landed, and return what the tables hold then."""
        store = str(self.jobs.root / "undisturbed-store")
        tm.run(self._job, store=store, spark=self.spark, end_of_input=end_of_input, handle_signals=False)
        return tables_in(self._out)


def rows_of(minute: int) -> Iterator[tuple[str, int, int]]:
    """Yield the rows of one file: key, event time in milliseconds, value."""
    for row in range(_ROWS):
        yield f"k{row % KEYS:02}", minute * MINUTE + row * MINUTE // _ROWS, (31 * minute + 7 * row) % 1_000


def _counted(rows: Iterable[tuple[str, int, int]], size: int, *, until: int | None = None) -> dict[_Window, list[int]]:
    """Return the values of each key and window, where the window ends by then."""
    found: dict[_Window, list[int]] = {}
    for key, time, value in rows:
        start = time // size * size
        if until is None or start + size <= until:
            found.setdefault((key, _moment(start), _moment(start + size)), []).append(value)
    return found


def _moment(time: int) -> datetime:
    return datetime.fromtimestamp(time / 1000, UTC)


def tables_in(out: Path) -> Tables:
    """Return the rows of the tables in a folder."""
    minutes, hours = (sorted(_rows(out / name, "k", "window_start", "window_end", "n", "total")) for name in ("minutes", "hours"))
    peaks = _rows(out / "peaks", "k", "window_start", "filled", "largest") if (out / "peaks").exists() else []
    found = {(key, start): (filled, largest) for key, start, filled, largest in peaks}
    assert len(found) == len(peaks), "a window is there twice"
    return Tables(minutes, hours, found)


def require_widened(found: Tables, expected: Tables, before: Tables, *, minutes: int) -> None:
    """Check what was added to the state: in windows that were open it covers what came since, in later ones all.

    Args:
        found: the tables with what was added.
        expected: those of a job that had it from the beginning.
        before: the tables when it was added.
        minutes: so many had landed then.
    """
    closed = {(row[0], row[1]) for row in before.minutes}
    starts = sorted({start for _, start in expected.peaks})
    since = {key: peak for key, peak in expected.peaks.items() if key not in closed}
    old = {key for key in since if key[1] < starts[minutes]}
    assert old, "some windows were open"
    assert set(found.peaks) == set(since)
    assert {found.peaks[key] for key in old} == {(0, None)}
    assert {key: found.peaks[key] for key in since.keys() - old} == {key: since[key] for key in since.keys() - old}


def seconds_for(call: Callable[[], object]) -> float:
    """Return how long a call took."""
    begun = SYSTEM_CLOCK.monotonic()
    call()
    return SYSTEM_CLOCK.monotonic() - begun


def typed(*words: str) -> None:
    """Give a command in a process of its own, which is killed on the way."""
    main(list(words))


def _rows(folder: Path, *columns: str) -> list[Row]:
    found = DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
    return [tuple(row[column] for column in columns) for row in found]
