"""Real drivers for tests: a small job in a module of its own, its input, and launchers that start processes which are waited for."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from deltalake import DeltaTable

from tests.few_rows import FEW_ROWS
from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.desired.attempts import create_attempt, newest_attempt
from tidemark.control.desired.spec_store import change_spec
from tidemark.control.launch.processes import session_members
from tidemark.control.model.launcher import Launcher
from tidemark.control.model.records import Attempt, ProcessHandle
from tidemark.control.model.spec import JobSpec, SpecGeneration
from tidemark.state.status.status import JobStatus, read_status
from tidemark.state.store.store import JobStore

MINUTE = 60_000

CODE = Path(__file__).with_name("landing_job.py")
"""The job's module, which a driver finds in a folder of its own."""


def until(true: Callable[[], object], what: str, *, seconds: float = 120) -> None:
    """Wait until something is true."""
    end = SYSTEM_CLOCK.monotonic() + seconds
    while not true():
        assert SYSTEM_CLOCK.monotonic() < end, f"{what} did not come in {seconds} s"
        SYSTEM_CLOCK.sleep(0.1)


@dataclass
class Landing:
    """A folder that files land in, the store of the job that reads them, and who starts its drivers."""

    root: Path
    launcher: Launcher
    conf: Mapping[str, str] = field(default_factory=dict)
    landed: list[tuple[str, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("in", "code"):
            (self.root / name).mkdir()
        shutil.copy(CODE, self.root / "code")

    @property
    def store(self) -> JobStore:
        return JobStore.open(str(self.root / "store"))

    def wheel(self) -> Path:
        """Return the job's code as a wheel, which is nothing but a zip of a certain name."""
        path = self.root / "landing_job-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.write(self.root / "code" / "landing_job.py", "landing_job.py")
            archive.writestr("landing_job-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: landing-job\nVersion: 1.0\n")
        return path

    def land(self, files: int, *, rows: int = 10) -> None:
        """Let files land, one minute of events each, oldest first."""
        for _ in range(files):
            number = len(self.landed) // rows
            made = [("ab"[row % 2], number * MINUTE + row, row) for row in range(rows)]
            unseen = self.root / f"{number}.json"
            unseen.write_text("".join(json.dumps({"k": key, "t": time, "v": value}) + "\n" for key, time, value in made))
            os.utime(unseen, (1_600_000_000 + number,) * 2)
            unseen.rename(self.root / "in" / unseen.name)
            self.landed += made

    def want(self, **fields: object) -> SpecGeneration:
        """Change the spec, or submit it."""

        def change(newest: SpecGeneration | None) -> JobSpec:
            first = JobSpec(
                "landing",
                "landing_job:job",
                trigger_ms=300,
                parallelism=2,
                master="local[2]",
                conf={**FEW_ROWS, **self.conf},
                code_paths=(str(self.root / "code"),),
                variables={"LANDING_ROOT": str(self.root)},
            )
            return replace(newest.spec if newest else first, **fields)  # type: ignore[arg-type]

        return change_spec(self.store, "landing", change, by="ada", why="a test", clock=SYSTEM_CLOCK)

    def start(self, spec: SpecGeneration, *, takeover: bool = False) -> ProcessHandle:
        """Make the next attempt and launch it."""
        number = newest_attempt(self.store, "landing") + 1
        attempt = Attempt(number, spec.generation, SYSTEM_CLOCK.now_ms(), "ada", "a test", takeover)
        assert create_attempt(self.store, "landing", attempt)
        return self.launcher.launch(spec, attempt, self.store.uri)

    @property
    def status(self) -> JobStatus | None:
        return read_status(self.store, "landing")

    def wait_for_rows(self, handle: ProcessHandle) -> None:
        """Wait until all that landed was read."""

        def read() -> bool:
            assert self.launcher.probe(handle) == "alive", "\n".join(self.launcher.logs(handle, 60))
            status = self.status
            return status is not None and status.totals["sources"].get("landing", {}).get("read", 0) >= len(self.landed)

        until(read, "the input's end")

    def wait_for_end(self, handle: ProcessHandle) -> None:
        until(lambda: self.launcher.probe(handle) == "gone", "the process's end")
        # As a reconciler does; a JVM may need a moment longer than its Python, and one that is ending already another.
        self.launcher.kill(handle)
        until(lambda: handle.pid is None or session_members(handle.pid) == (), "the end of all that it started")

    def table(self) -> list[tuple[str, int, int]]:
        """Return key, count and total of the windows in the table, in the order of time."""
        rows = DeltaTable(str(self.root / "minutes")).to_pyarrow_table().sort_by([("window_start", "ascending"), ("k", "ascending")])
        return [(row["k"], row["n"], row["total"]) for row in rows.to_pylist()]

    def expected(self, minutes: int) -> list[tuple[str, int, int]]:
        """Return what the table holds when so many minutes have closed."""
        found = []
        for minute in range(minutes):
            for key in "ab":
                values = [2 * value for k, time, value in self.landed if k == key and time // MINUTE == minute]
                found.append((key, len(values), sum(values)))
        return found
