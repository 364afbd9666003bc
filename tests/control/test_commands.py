"""The commands on real processes, which beat and commit but need no JVM."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.control.sparkless_driver import SparklessLauncher
from tests.savepoints.stored_jobs import StoredJob
from tidemark.cli.program.console_log import ConsoleLines
from tidemark.cli.program.main import main
from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.launch.log_follower import follow_log
from tidemark.control.model.paths import ALERT_LEASES
from tidemark.control.observed.observe import job_names, observe, read_control_status
from tidemark.errors import RewindError
from tidemark.savepoints.rewind.rewinding import rewind
from tidemark.state.store.store import JobStore


class Terminal:
    """Types commands for one store."""

    def __init__(self, folder: Path, store: JobStore | None = None) -> None:
        self.store = store or JobStore.open(str(folder / "store"))
        self.launcher = SparklessLauncher(folder)

    def __call__(self, *arguments: str, code: int = 0) -> Result:
        done = CliRunner().invoke(main, [*arguments, "--store", self.store.uri], terminal_width=200)
        assert done.exit_code == code, (done.output, done.exception)
        return done

    def submit(self, *arguments: str, name: str = "fares", code: int = 0) -> Result:
        return self("submit", "fares:job", "--name", name, "--why", "a test", "--by", "ada", *arguments, code=code)

    def pid(self, job: str = "fares") -> int:
        handle = observe(self.store, job, {"local": self.launcher}).handle
        assert handle is not None
        assert handle.pid is not None
        return handle.pid

    def json(self, *arguments: str) -> list[dict[str, object]]:
        return [json.loads(line) for line in self(*arguments, "--json").stdout.splitlines()]

    def kill_all(self) -> None:
        for job in job_names(self.store):
            seen = observe(self.store, job, {"local": self.launcher})
            if seen.handle is not None:
                self.launcher.kill(seen.handle)


@pytest.fixture
def place() -> JobStore | None:
    """The store; None for one on disk."""
    return None


@pytest.fixture
def tidemark_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: JobStore | None) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, place)
    modules = (
        "cli.jobs.start_stop",
        "cli.jobs.submitting",
        "cli.jobs.supervising",
        "cli.show.status",
        "cli.top.feed",
        "control.view.job_views",
    )
    for module in modules:
        monkeypatch.setattr(f"tidemark.{module}.launchers_here", lambda: {"local": terminal.launcher})
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(tmp_path)
    yield terminal
    terminal.kill_all()


def test_a_driver_finds_its_store_whatever_the_folder_is_called(tidemark_: Terminal, tmp_path: Path) -> None:
    tidemark_.store = JobStore.open(str(tmp_path / "Anna's jobs, 50%20 é"))
    tidemark_.submit()
    assert tidemark_("stop", "fares").stdout.splitlines()[-1].startswith("fares: stopped")


def test_state_in_the_encoded_folder_of_an_earlier_build_is_not_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rides_there.py").write_text(
        "import tidemark as tm\n"
        "trips = tm.source('trips', tm.from_elements([], schema='id INT, at TIMESTAMP'), watermarks=tm.ascending(timestamp='at'))\n"
        "job = tm.Job('rides', outputs={'out': tm.delta(trips, 'out')})\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    StoredJob(JobStore.open(str(tmp_path / "my%20jobs")), "rides").commit()
    said = CliRunner().invoke(main, ["run", "rides_there:job", "--store", str(tmp_path / "my jobs")])
    assert said.exit_code == 1
    assert f"mv {tmp_path}/my%20jobs/rides '{tmp_path}/my jobs/rides'" in said.stderr, said.output
    StoredJob(JobStore.open(str(tmp_path / "my jobs")), "rides").commit()
    said = CliRunner().invoke(main, ["run", "rides_there:job", "--store", str(tmp_path / "my jobs")])
    assert "my%20jobs" not in said.output, "the folder beside it is another's, once the job has state of its own"


def test_the_life_of_a_job(tidemark_: Terminal) -> None:
    assert tidemark_("list").stdout.startswith(f"no jobs in {tidemark_.store.uri}")
    submitted = tidemark_.submit()
    assert submitted.stderr.splitlines()[0] == "fares: starting (a test (ada))"
    assert submitted.stdout.startswith("fares: running, epoch ")
    header, row = tidemark_("list").stdout.splitlines()
    assert header.split()[:5] == ["job", "state", "health", "gen", "attempt"]
    assert row.split()[:5] == ["fares", "running", "ok", "1", "1"]
    assert tidemark_("logs", "fares").stdout == "attempt 1 drives fares\n"

    shown = tidemark_("status", "fares", "--check").stdout
    assert shown.startswith("fares: running, ok, since ")
    assert f"attempt 1: process {tidemark_.pid()} on host" in shown
    [status] = tidemark_.json("status", "fares")
    assert (status["job"], status["lifecycle"], status["health"]) == ("fares", "running", "ok")

    first = tidemark_.pid()
    tidemark_("restart", "fares")
    assert tidemark_.pid() != first
    assert tidemark_("stop", "fares").stdout.splitlines()[-1].startswith("fares: stopped")
    tidemark_("start", "fares")
    assert tidemark_("cancel", "fares", "--why", "enough").stdout.splitlines()[-1].split(" (")[1].startswith("enough")
    tidemark_("start", "fares")
    assert tidemark_("stop", "fares", "--drain").stdout.splitlines()[-1].startswith("fares: finished")

    started = tidemark_("start", "fares", code=3).stderr
    assert "its input has ended for good" in started
    assert "Fix: nothing, if all is read; to continue, rewind it to before that end (`tidemark rewind fares --to SAVEPOINT`)" in started

    changes = tidemark_("history", "fares", "--changes", "--limit", "50").stdout
    for text in ("generation 1 asked", "ada", "restarts 0 -> 1", "attempt 2 started", "stop finish -> now", "enough"):
        assert text in changes
    events = tidemark_.json("history", "fares", "--changes")
    assert {event["kind"] for event in events} == {"asked", "started"}
    epochs = tidemark_.json("history", "fares", "--limit", "5")
    assert epochs[-1]["end_of_input"] is True


def test_a_log_is_followed_until_ctrl_c(tidemark_: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    def for_a_line(path: Path, lines: int) -> Iterator[str]:
        yield from islice(follow_log(path, lines), 1)
        raise KeyboardInterrupt

    monkeypatch.setattr("tidemark.cli.show.status.follow_log", for_a_line)
    tidemark_.submit()
    assert tidemark_("logs", "fares", "--follow").stdout == "attempt 1 drives fares\n"


def test_a_killed_driver_comes_back_with_the_supervisor(tidemark_: Terminal) -> None:
    tidemark_.submit()
    os.kill(tidemark_.pid(), signal.SIGKILL)
    for _ in range(100):
        tidemark_("supervise", "--once")
        if tidemark_.json("list")[0]["attempt"] == 2:
            break
        SYSTEM_CLOCK.sleep(0.05)
    tidemark_("start", "fares")
    status = read_control_status(tidemark_.store, "fares")
    assert status is not None
    assert (status.attempt, status.lifecycle, len(status.failures)) == (2, "running", 1)
    assert "attempt 1 failed" in tidemark_("history", "fares", "--changes").stdout


def test_a_job_that_fails_for_good_says_why_by_text_and_exit_code(tidemark_: Terminal) -> None:
    done = tidemark_.submit("--env", "BEATING=fails", code=3)
    assert done.stderr.splitlines()[-1].startswith("tidemark: [TM200] the folder is gone")
    assert done.stdout.startswith("fares: failed (attempt 1 failed, and is not restarted")
    assert "last error (permanent): [TM200]" in tidemark_("status", "fares", "--check", code=3).stdout
    tidemark_("start", "fares", code=3)
    assert tidemark_.json("list")[0]["health"] == "failed"


def test_a_job_that_fails_in_its_first_epoch_was_never_submitted_well(tidemark_: Terminal) -> None:
    """Its heartbeat comes long before its first expression is run; the driver's own error ends the command."""
    done = tidemark_.submit("--env", "BEATING=fails-later", code=3)
    assert "fares: running (its first epoch is not published yet)" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("tidemark: [TM200] the folder is gone")
    assert tidemark_.json("list")[0]["state"] == "failed"
    assert tidemark_.submit("--env", "BEATING=fails-later", "--no-wait", name="other").stdout == "other: generation 1, wanted running\n"


def test_what_died_where_no_supervisor_runs_is_shown_as_that_with_the_way_out(tidemark_: Terminal) -> None:
    tidemark_.submit("--env", "BEATING=fails-in-the-end")
    while tidemark_.json("list")[0]["state"] == "running":
        SYSTEM_CLOCK.sleep(0.05)
    status = read_control_status(tidemark_.store, "fares")
    assert status is not None
    assert status.lifecycle == "running", "no reconciler has seen it"
    shown = tidemark_("status", "--check", code=3).stdout
    assert shown.startswith("fares: failed, since ")
    assert shown.count("[TM200] the folder is gone") == 1
    assert f"to do: it is not restarted: correct what the error names, then `tidemark start fares --store {tidemark_.store.uri}`" in shown
    assert tidemark_("list").stdout.splitlines()[1].split()[:3] == ["fares", "failed", "failed"]
    # And that command does start it, though nobody had written that it failed; it fails at once, as it is beyond that epoch.
    tidemark_("start", "fares", "--no-wait")
    tidemark_("supervise", "--once")
    assert tidemark_.json("list")[0]["attempt"] == 2

    tidemark_.submit(name="killed")
    os.kill(tidemark_.pid("killed"), signal.SIGKILL)
    while tidemark_.json("status", "killed")[0]["process_state"] != "gone":
        SYSTEM_CLOCK.sleep(0.05)
    shown = tidemark_("status", "killed", "--check", code=3).stdout
    assert shown.startswith("killed: dead, silent, since ")
    assert "`tidemark supervise --store" in shown
    assert "`tidemark start killed --store" in shown


def test_what_is_only_asked_for_is_left_to_the_supervisor(tidemark_: Terminal) -> None:
    assert tidemark_.submit("--suspended").stdout == "fares: generation 1, wanted suspended\n"
    assert tidemark_("resume", "fares").stdout == "fares: generation 2, wanted running\n"
    assert tidemark_("suspend", "fares", "--json").stdout.startswith('{"generation": 3')
    tidemark_("supervise", "--once")
    status = read_control_status(tidemark_.store, "fares")
    assert status is not None
    assert (status.lifecycle, status.attempt) == ("suspended", 0)
    assert tidemark_("start", "fares", "--no-wait").stdout == "fares: generation 4, wanted running\n"


def test_a_supervisor_that_was_given_no_file_leaves_alerts_to_others(tidemark_: Terminal, tmp_path: Path) -> None:
    tidemark_.submit("--suspended")
    tidemark_("supervise", "--once")
    assert tidemark_.store.list("_alerts") == (), "nor does it take the lease"
    (tmp_path / "alerts.toml").write_text("")
    tidemark_("supervise", "--once", "--alerts", str(tmp_path / "alerts.toml"))
    assert tidemark_.store.list(ALERT_LEASES) != ()


def test_waiting_ends_with_a_code_that_says_try_again(tidemark_: Terminal) -> None:
    done = tidemark_.submit("--timeout", "1 ms", code=75)
    assert "[TM416] job 'fares' is starting after 1ms, and not yet working" in done.stderr
    assert "the request stays in effect" in done.stderr


def test_a_savepoint_s_name_is_looked_at_before_the_job_is_stopped_for_it(tidemark_: Terminal) -> None:
    tidemark_.submit()
    pid = tidemark_.pid()
    tidemark_.store.put("fares/refs/pins/before.json", b"{}")
    for name, says in (("../x", "[TM104] savepoint name '../x' is not allowed"), ("before", "there is a savepoint 'before' already")):
        assert says in tidemark_("stop", "fares", "--savepoint", name, code=1).stderr
        [job] = tidemark_.json("list")
        assert (job["lifecycle"], job["generation"], tidemark_.pid()) == ("running", 1, pid)


def test_what_a_command_logs_holds_no_credentials() -> None:
    error = OSError("cannot read https://hunter2@lake/x")
    record = logging.LogRecord("tidemark", logging.ERROR, "", 0, "DB_PASS=%s failed", ("hunter2",), (OSError, error, None))
    said = ConsoleLines().format(record)
    assert "hunter2" not in said
    assert "OSError: cannot read https://<hidden>@lake/x" in said


def test_top_shows_all_jobs_or_one(tidemark_: Terminal) -> None:
    tidemark_.submit()
    tidemark_.submit("--suspended", name="bikes")
    tidemark_("supervise", "--once")
    shown = tidemark_("top", "--frames", "1").stdout
    assert "bikes" in shown
    assert "stopped" in shown
    page = tidemark_("top", "fares", "--frames", "2", "--every", "10 ms").stdout
    for text in ("fares: running, ok", "epoch", "watermark"):
        assert text in page
    assert tidemark_("top", "nobody", "--frames", "1", code=1).stderr.startswith("tidemark: [TM414]")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("start", "nobody"), "[TM414] no job 'nobody' was submitted"),
        (("logs", "nobody"), "[TM414] there is no job 'nobody'"),
        (("stop", "../fares"), "[TM104]"),
        (("submit", "fares", "--name", "fares"), "[TM100] code='fares' does not name a job"),
        (("submit", "fares:job", "--name", "fares", "--conf", "spark.x"), "[TM100] --conf 'spark.x' is not KEY=VALUE"),
        (("submit", "fares:job", "--name", "fares", "--env", "TOKEN_SECRET=hunter2"), "looks like a secret"),
        (("submit", "no.such.module:job"), "[TM100] module 'no.such.module' cannot be imported"),
    ],
)
def test_what_cannot_be_is_one_line_and_an_exit_code(arguments: tuple[str, ...], says: str, tidemark_: Terminal) -> None:
    done = tidemark_(*arguments, code=1)
    assert says in done.stderr
    assert "Fix: " in done.stderr
    assert "hunter2" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_rewind_makes_no_job_of_a_name_that_is_none(tidemark_: Terminal) -> None:
    done = tidemark_("rewind", "nobody", "--to", "x", code=2)
    assert "[TM414] there is no job 'nobody'" in done.stderr
    with pytest.raises(RewindError, match="no epoch to rewind from"):
        rewind(tidemark_.store, "nobody", "x")
    assert [file.path for file in tidemark_.store.list("")] == []


def test_a_bad_duration_is_a_usage_error(tidemark_: Terminal) -> None:
    done = tidemark_.submit("--trigger", "soon", code=2)
    assert "'soon' is not a duration" in done.stderr


def test_a_supervisor_runs_until_it_is_told_to_stop(tmp_path: Path) -> None:
    program = [sys.executable, "-c", "from tidemark.cli.program.main import main; main()", "supervise", "--store", str(tmp_path / "store")]
    log = tmp_path / "log"
    with log.open("w") as out:
        process = subprocess.Popen([*program, "--every", "50 ms", "--metrics", "0"], stdout=out, stderr=out)
    try:
        while "supervises the jobs of file:///" not in log.read_text():
            assert process.poll() is None, log.read_text()
            SYSTEM_CLOCK.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    said = log.read_text()
    assert "metrics at http://127.0.0.1:" in said
    assert said.rstrip().endswith("ends; drivers keep running")
