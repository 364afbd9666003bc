"""Projects of ``tidemark new`` run: every generated row is in a table, and the first command of the README starts the job.

Rows are counted in the session of the tests; the command starts what it starts for a user, with Java of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from tests.command_line.test_new_project import make, run
from tidemark.cli.program.main import main
from tidemark.control.launch.launchers import launchers_here
from tidemark.control.observed.observe import observe
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAMS = Path(sys.executable).parent
ROWS, FILES = 100, 3


def table(project: Path, name: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = DeltaTable(str(project / "data" / "warehouse" / name)).to_pyarrow_table().to_pylist()
    return rows


def counted(project: Path, name: str, key: str, column: str) -> int:
    """Return the sum of a column over the newest pane of each window."""
    newest: dict[tuple[object, object], dict[str, object]] = {}
    for row in sorted(table(project, name), key=lambda row: str(row["pane_index"])):
        newest[row[key], row["window_start"]] = row
    return sum(int(str(row[column])) for row in newest.values())


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """The folder of a project; its driver, if there is one, ends with the test."""
    folder = tmp_path / "rides"
    yield folder
    store = folder / ".tidemark" / "jobs"
    if store.is_dir():
        launchers = launchers_here()
        handle = observe(JobStore.open(str(store)), "rides", launchers).handle
        if handle is not None:
            launchers["local"].kill(handle)


@pytest.fixture
def drain(project: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """What generates rows for the project and runs its job to the end of them."""
    assert spark.getActiveSession() is not None, "the command takes the session that is there"
    monkeypatch.delenv("TIDEMARK_STORE", raising=False)

    def drained() -> None:
        monkeypatch.chdir(project)
        monkeypatch.syspath_prepend(str(project))
        generator = import_module("rides.generator").Generator(seed=3)
        for _ in range(FILES):
            generator.write(ROWS)
        done = CliRunner().invoke(main, ["run", "rides.job:job", "--end-of-input", "--master", "local[2]"])
        assert done.exit_code == 0, (done.output, done.exception)
        assert f"{ROWS * FILES} rows read" in done.stdout

    yield drained
    for name in [name for name in sys.modules if name.partition(".")[0] == "rides"]:
        del sys.modules[name]


def test_every_event_of_the_minimal_project_is_counted(project: Path, drain: Callable[[], None]) -> None:
    make(project.parent, "rides", "--template", "minimal")
    drain()
    assert counted(project, "counts", "key", "events") == ROWS * FILES


def test_every_trip_of_the_taxi_project_is_in_a_table(project: Path, drain: Callable[[], None]) -> None:
    make(project.parent, "rides")
    drain()
    rides = counted(project, "by_minute", "zone", "rides")
    others = {name: len(table(project, name)) for name in ("late", "refunds", "malformed")}
    assert rides + sum(others.values()) == ROWS * FILES, others
    assert others["refunds"] > 0
    assert others["malformed"] > 0


def test_the_first_command_submits_the_job_and_writes_until_it_is_interrupted(project: Path) -> None:
    make(project.parent, "rides")
    environment = {**os.environ, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}", "TIDEMARK_LOGS": str(project.parent / "logs")}
    environment.pop("TIDEMARK_STORE", None)
    first = subprocess.Popen(
        [sys.executable, "-u", "-m", "rides"], cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert first.stdout is not None
        lines = []
        for line in first.stdout:
            lines.append(line)
            if line.startswith("writes trips into"):
                break
        assert any(line.startswith("rides: running, epoch") for line in lines), lines
        first.send_signal(signal.SIGINT)
        assert first.stdout.read().endswith("no more trips; the job keeps running\n")
        assert first.wait(60) == 0
    finally:
        first.kill()
        first.wait()
        if first.stdout is not None:
            first.stdout.close()
    assert len(list((project / "data" / "landing").glob("trips-*.json"))) >= 1
    tidemark = str(PROGRAMS / "tidemark")
    assert "rides: running, ok" in run(tidemark, "status", "rides", cwd=project)
    assert "rides: stopped" in run(tidemark, "stop", "rides", cwd=project)
