"""Does what the reader of a page does in a terminal: command after command, with real drivers, while files land."""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from click.testing import CliRunner
from deltalake import DeltaTable

from tests.control.drivers import until
from tests.few_rows import FEW_ROWS
from tidemark.cli.program.main import main
from tidemark.control.launch.launchers import launchers_here
from tidemark.control.observed.observe import job_names, observe
from tidemark.state.log.progress import EpochProgress
from tidemark.state.status.history import read_history
from tidemark.state.status.status import read_status
from tidemark.state.store.store import JobStore

FASTER: Final = ("--trigger", "300 ms", *(part for name, value in FEW_ROWS.items() for part in ("--conf", f"{name}={value}")))
"""Added to what is typed: a test need not wait for a trigger of two seconds."""

ROWS: Final = 9
"""In each file that lands."""

_PACE_SECONDS: Final = 0.3
_BLOCK: Final = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Step:
    """What is typed, and what the page shows below it."""

    command: str
    shown: str

    @property
    def verb(self) -> str:
        """Return the command without its arguments; of others than Tidemark's, all of it."""
        words = shlex.split(self.command)
        if words[0] != "tidemark":
            return self.command
        return " ".join(words[1:3]) if words[1] == "savepoint" else words[1]


def steps_of(text: str) -> list[Step]:
    """Return what a page types in its console blocks, in order."""
    found = []
    for block in _BLOCK.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            found.append(Step(command, shown))
    return found


@dataclass
class Walk:
    """One run of the page's commands in the working folder.

    Args:
        land: lands a file, by its number.
    """

    land: Callable[[int], None]
    code: int = 0
    landed: int = 0
    _rest: threading.Event = field(default_factory=threading.Event)
    _lander: threading.Thread | None = None

    @property
    def store(self) -> JobStore:
        return JobStore.open(str(Path.cwd() / "store"))

    def do(self, step: Step) -> str:
        """Do what a step says, and return what comes of it."""
        words = shlex.split(step.command)
        match words:
            case ["export", assigned]:
                os.environ["TIDEMARK_STORE"] = str(Path.cwd() / assigned.rpartition("/")[2])
            case ["mkdir", name]:
                Path(name).mkdir()
            case ["echo", "$?"]:
                return f"{self.code}\n"
            case ["python", "land.py", *_]:
                self._land_next()
                until(lambda: read_history(self.store, "tips"), "the first epoch")
                self.go_on()
            case ["python", "show.py"]:
                return self._shown()
            case ["tidemark", *given]:
                return self._typed(given, step.verb)
            case _:
                raise AssertionError(f"nobody knows how to do {step.command!r}")
        return ""

    def wait_for_hours(self, hours: int) -> None:
        """Wait until the table has so many."""
        table = "warehouse/hourly"

        def there() -> bool:
            return DeltaTable.is_deltatable(table) and len(set(DeltaTable(table).to_pyarrow_table()["window_start"].to_pylist())) >= hours

        until(there, f"{hours} hours in the table")

    def rest(self, *jobs: str) -> None:
        """Let nothing more land, and wait until some jobs have read and published all that has."""
        self._rest.set()
        if self._lander is not None:
            self._lander.join()
        for job in jobs:
            until(lambda job=job: self._has_read_all(job), f"the end of the input of {job}")  # type: ignore[misc]

    def go_on(self) -> None:
        """Let files land, one after the other."""
        if self._lander is None or not self._lander.is_alive():
            self._rest.clear()
            self._lander = threading.Thread(target=self._land_on, daemon=True)
            self._lander.start()

    def end(self) -> None:
        """End all that was started."""
        self.rest()
        launchers = launchers_here()
        for job in job_names(self.store):
            handle = observe(self.store, job, launchers).handle
            if handle is not None:
                launchers["local"].kill(handle)

    def _has_read_all(self, job: str) -> bool:
        status = read_status(self.store, job)
        return status is not None and status.totals["sources"].get("trips", {}).get("read", 0) == ROWS * self.landed

    def _land_next(self) -> None:
        self.land(self.landed)
        self.landed += 1

    def _land_on(self) -> None:
        while not self._rest.wait(_PACE_SECONDS):
            self._land_next()

    def _shown(self) -> str:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            runpy.run_path("show.py")
        return said.getvalue()

    def _typed(self, words: list[str], verb: str) -> str:
        if verb == "submit":
            words = [*words, *FASTER]
        if verb == "savepoint trigger":
            # The page says to give the number that the history says.
            before = max(epoch.epoch for epoch in self._before_results())
            words[words.index("--epoch") + 1] = str(before)
        done = CliRunner().invoke(main, words, terminal_width=200)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        self.code = done.exit_code
        return done.output

    def _before_results(self) -> Iterator[EpochProgress]:
        for epoch in read_history(self.store, "tips"):
            if epoch.rows_out:
                return
            yield epoch


def like(text: str) -> list[str]:
    """Return what was said without what differs from run to run: times, given names, folders, numbers of epochs, hours and rows."""
    for pattern, name in (
        (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
        (r"upgrade-[0-9a-f]{8}", "UPGRADE"),
        (r"sp-\d+-\w+", "SAVEPOINT"),
        (r"\b[0-9a-f]{16}\b", "LINEAGE"),
        (r"[\w.-]+@[\w.-]+(/[0-9a-f]{8})?", "WHO"),
        (r"\b(epoch|attempt) \d+", r"\1 N"),
        (r"\b\d+ good epochs", "N good epochs"),
        (r"\b[1-9][\d,]* (rows|changed|hours)", r"N \1"),
        (r"to \d\d \w{3} \d\d:\d\d", "to HOUR"),
        (r"(deleted) .*/store/", r"\1 STORE/"),
        (r"at [^\s)]*/(\w+\.py:\d+)", r"at \1"),
        (r" {2,}", "  "),
    ):
        text = re.sub(pattern, name, text)
    lines = [line.strip() for line in text.splitlines()]
    # Where a job is on its way is said as often as somebody looked.
    return [line for line in lines if not re.match(r"tips(-percent)?: (starting|running|draining)", line)]
