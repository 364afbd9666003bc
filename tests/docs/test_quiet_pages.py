"""A newcomer's first commands say what they do and nothing else: Spark's and Java's own lines are in a file that is named once."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.warm_jvm import CHECKOUT
from tests.docs.test_snippets import snippets, write_first_job
from tests.seeds import only_long

pytestmark = [pytest.mark.spark, pytest.mark.slow]

STARTING = re.compile(r"starting Spark \(about 20 s\); its log is (?P<log>/.+\.log)")
EPOCH = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} fares epoch \d+: in .*")
BAD = """
from first_job import fares
import tidemark as tm
bad = tm.Job("bad", outputs={"bad": tm.delta(fares.filter("CAST(zone AS INT) > 0").uid("bad"), "warehouse/bad")})
try:
    tm.run(bad)
except tm.TidemarkError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the first job was written, as its page says."""
    found = tmp_path_factory.mktemp("first-job")
    write_first_job(found)
    return found


def done_in(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Do a command as in a reader's terminal."""
    environment = {name: value for name, value in os.environ.items() if name not in {"TIDEMARK_STORE", "PYTHONWARNINGS"}}
    environment |= {"TIDEMARK_LOGS": str(folder / "logs"), **variables}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300)


def varied(line: str) -> str:
    """Return a line without what differs from run to run: the time of a heartbeat and the name of a lineage."""
    return re.sub(r"since \S+|lineage \w+", "", line)


def log_of(lines: Iterator[str]) -> str:
    """Return what is in the log that the next line names."""
    named = STARTING.fullmatch(next(lines))
    assert named is not None
    return Path(named["log"]).read_text(encoding="utf-8")


def test_the_page_in_python_says_only_where_the_log_is(folder: Path) -> None:
    code = "\n".join(snippet.code for snippet in snippets(CHECKOUT / "docs/how-to/first-job.md") if snippet.module is None)
    done = done_in(folder, sys.executable, "-c", code + BAD)
    assert done.returncode == 0, done.stderr
    lines = iter(done.stderr.splitlines())
    printed = log_of(lines)
    assert list(lines) == []
    assert "CAST_INVALID_INPUT" in done.stdout.splitlines()[-1]
    assert printed.count("CAST_INVALID_INPUT") >= 2, "what Java and PySpark log of an error is kept"
    assert "ERROR MicroBatchExecution" not in printed, "no query failed"
    assert "TorrentBroadcast" not in printed


@only_long
def test_the_page_in_the_shell_says_only_what_the_run_does(folder: Path) -> None:
    run = (sys.executable, "-c", "from tidemark.cli.program.main import main; main()", "run", "first_job:job", "--master", "local[2]")
    store = str(folder / "killed")
    # Another job's tables would be named on standard error.
    shutil.rmtree(folder / "warehouse", ignore_errors=True)
    killed = done_in(folder, *run, "--store", store, TIDEMARK_CRASH_AT="after-commit:2")
    assert killed.returncode == -9
    lines = iter(killed.stderr.splitlines())
    log_of(lines)
    assert [line for line in lines if not EPOCH.fullmatch(line)] == ["killed at crash point after-commit:2"]
    status = done_in(folder, *run[:3], "status", "fares", "--store", store)
    assert (status.returncode, status.stderr) == (0, "")
    shown = (CHECKOUT / "docs/how-to/first-job.md").read_text(encoding="utf-8").partition("head -4\n")[2].splitlines()[:4]
    assert [varied(line) for line in status.stdout.splitlines()[:4]] == [varied(line) for line in shown]
    again = done_in(folder, *run, "--store", store, "--max-epochs", "1")
    assert again.returncode == 0, again.stderr
    lines = iter(again.stderr.splitlines())
    assert "ERROR" not in log_of(lines)
    assert "epoch 1 was committed by a driver that ended before its publication was noted" in next(lines)
    assert [bool(EPOCH.fullmatch(line)) for line in lines] == [True]
    assert again.stdout.startswith("fares: 1 epochs, 2 rows read\n")
