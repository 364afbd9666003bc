"""A standby takes a job over that its driver left, and nothing that keeps two drivers apart depends on it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.control.drivers import Landing, until
from tests.seeds import only_long
from tidemark.cli.program.main import main
from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.desired.attempts import abandon_attempt, claim_attempt, create_attempt, newest_attempt, read_claim
from tidemark.control.desired.spec_checks import checked_spec
from tidemark.control.desired.spec_store import change_spec, read_spec
from tidemark.control.driver.driver import FENCED, FINISHED
from tidemark.control.launch.local_launcher import LocalLauncher
from tidemark.control.launch.processes import session_members
from tidemark.control.launch.run_folder import run_folder
from tidemark.control.launch.standby import StandbyKeeper
from tidemark.control.model.records import Attempt, ProcessHandle
from tidemark.control.model.spec import JobSpec, SpecGeneration
from tidemark.control.model.standby_files import Standby, assign_attempt, assigned_attempt, read_standby, write_standby
from tidemark.errors import DefinitionError
from tidemark.state.log.process_identity import process_start_token
from tidemark.state.store.store import JobStore

SPEC = SpecGeneration(3, 0, "ada", "", JobSpec("landing", "nowhere:job", standby=True))
ATTEMPT = Attempt(7, 3, 0, "ada", "a test")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that may pass for a standby."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as found:
        yield found
        found.kill()


def offered(folder: Path, pid: int, *, generation: int = 3, ready: bool = True) -> Standby:
    folder.mkdir(parents=True, exist_ok=True)
    standby = Standby(pid, process_start_token(pid) or "", generation, ready=ready)
    write_standby(folder, standby)
    return standby


def test_an_attempt_is_handed_to_the_process_that_stands_by_once(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    store = f"file://{tmp_path}/store"
    launcher, folder = LocalLauncher(tmp_path / "logs"), run_folder(store, "landing", tmp_path / "logs").logs
    standby = offered(folder, process.pid)
    handle = launcher.launch(SPEC, ATTEMPT, store)
    assert (handle.pid, handle.started, launcher.probe(handle)) == (process.pid, standby.started, "alive")
    assert assigned_attempt(folder, standby) == 7
    assert read_standby(folder) is None
    assert not assign_attempt(folder, standby, 8), "nobody is asked twice"
    assert assigned_attempt(folder, Standby(process.pid, "another birth", 3)) is None


@pytest.mark.parametrize("case", ["another generation", "not ready", "dead", "not wanted"])
def test_else_a_process_is_started_as_ever(tmp_path: Path, process: subprocess.Popen[bytes], case: str) -> None:
    store = f"file://{tmp_path}/store"
    launcher, folder = LocalLauncher(tmp_path / "logs"), run_folder(store, "landing", tmp_path / "logs").logs
    offered(folder, process.pid, generation=2 if case == "another generation" else 3, ready=case != "not ready")
    if case == "dead":
        process.kill()
        process.wait()
    spec = SpecGeneration(3, 0, "ada", "", JobSpec("landing", "nowhere:job", standby=case != "not wanted"))
    handle = launcher.launch(spec, ATTEMPT, store)
    assert handle.pid not in {None, process.pid}
    until(lambda: launcher.probe(handle) == "gone", "the end of a driver whose attempt is not there")


@pytest.mark.parametrize("state", ["ready", "starting"])
def test_the_status_says_whether_it_is_ready(tmp_path: Path, process: subprocess.Popen[bytes], state: str) -> None:
    root, handle = driven(tmp_path)
    ready = state == "ready"
    standby = offered(Path(handle.log or "").parent, process.pid, generation=1, ready=ready)
    words = "is ready to take over" if ready else "is starting"
    assert f"  standby: process {standby.pid} {words}\n" in said(root)
    assert shown(root) == {"state": state, "pid": standby.pid, "host": handle.host}


@pytest.mark.parametrize("case", ["nobody", "dead", "an earlier spec", "elsewhere", "not wanted"])
def test_the_status_says_that_there_is_none(tmp_path: Path, process: subprocess.Popen[bytes], case: str) -> None:
    root, handle = driven(tmp_path, host="elsewhere" if case == "elsewhere" else None, standby=case != "not wanted")
    if case != "nobody":
        offered(Path(handle.log or "").parent, process.pid, generation=0 if case == "an earlier spec" else 1)
    if case == "dead":
        process.kill()
        process.wait()
    if case == "not wanted":
        assert "standby" not in said(root)
        assert shown(root) is None
    elif case == "elsewhere":
        assert "  standby: visible on host 'elsewhere' only\n" in said(root)
        assert shown(root) == {"state": "unseen", "pid": None, "host": "elsewhere"}
    else:
        assert "  standby: none; the driver starts one after its first epoch\n" in said(root)
        assert shown(root) == {"state": "none", "pid": None, "host": handle.host}


def driven(folder: Path, *, host: str | None = None, standby: bool = True) -> tuple[JobStore, ProcessHandle]:
    """Return a store with a job that this process seems to drive, and the process as the store has it."""
    root, log = JobStore.open(str(folder / "store")), folder / "logs" / "landing" / "attempt.log"
    spec = JobSpec("landing", "nowhere:job", standby=standby)
    change_spec(root, "landing", lambda _: spec, by="ada", why="a test", clock=SYSTEM_CLOCK)
    handle = ProcessHandle("local", host or socket.gethostname(), os.getpid(), started=process_start_token(os.getpid()) or "", log=str(log))
    create_attempt(root, "landing", Attempt(1, 1, 0, "ada", "a test"))
    claim_attempt(root, "landing", 1, process=handle, at=0)
    return root, handle


def said(root: JobStore, *options: str) -> str:
    done = CliRunner().invoke(main, ["status", "landing", "--store", root.uri, *options])
    assert done.exit_code == 0, done.output
    return done.output


def shown(root: JobStore) -> object:
    return json.loads(said(root, "--json"))["standby"]


def test_a_standby_is_for_local_drivers() -> None:
    with pytest.raises(DefinitionError, match="standby=True requires the launcher 'local'"):
        checked_spec(JobSpec("landing", "nowhere:job", launcher="spark-submit", master="yarn", standby=True))


@pytest.mark.parametrize("temporary", [None, "/tmp", "/"], ids=["as it is", "/tmp", "the root"])  # noqa: S108 - what a spec may give
def test_a_standbys_temporary_files_lie_beside_the_job_s_whatever_the_spec_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temporary: str | None
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    files = run_folder("file:///jobs", "landing")
    own = files.new_scratch(3)
    other = run_folder("file:///jobs", "landing.standby-x").new_scratch(1)
    # A driver of attempt 3, whose spec gives it another folder.
    monkeypatch.setenv("TIDEMARK_SCRATCH", str(own))
    monkeypatch.setattr("tempfile.tempdir", temporary or str(own))
    files = run_folder("file:///jobs", "landing")
    made = [files.new_standby_scratch(3)]
    assert all(folder.is_relative_to(tmp_path / "tmp" / f"tidemark-{os.getuid()}") for folder in made)
    # The standby has taken over as attempt 4, and makes room for its own.
    monkeypatch.setenv("TIDEMARK_SCRATCH", str(made[0]))
    made += [run_folder("file:///jobs", "landing").new_standby_scratch(4)]
    assert all(folder.is_dir() for folder in (own, other, *made))
    monkeypatch.setenv("TIDEMARK_SCRATCH", str(made[1]))
    run_folder("file:///jobs", "landing").new_standby_scratch(5)
    assert [folder.is_dir() for folder in (own, other, *made)] == [True, True, False, True]
    # Another attempt that no standby was handed leaves those that stand by alone.
    run_folder("file:///jobs", "landing").new_scratch(6)
    assert [folder.is_dir() for folder in (own, other, *made)] == [False, True, False, True]


def test_the_spec_s_variables_do_not_move_where_a_standby_lives(tmp_path: Path) -> None:
    job = JobSpec("landing", "nowhere:job", standby=True, variables={"TMPDIR": "/tmp", "TIDEMARK_SCRATCH": "/"})  # noqa: S108
    variables = LocalLauncher(tmp_path).standby_environment(job, tmp_path / "scratch", tmp_path / "driver.log")
    assert (variables["TMPDIR"], variables["TIDEMARK_SCRATCH"]) == ("/tmp", str(tmp_path / "scratch"))  # noqa: S108


def test_a_keeper_starts_a_standby_of_a_job_with_a_folder_for_temporary_files_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []

    def spawned(command: object, *_: object, **__: object) -> int:
        started.append(command)
        return os.getpid()

    monkeypatch.setattr("tempfile.tempdir", "/tmp")  # noqa: S108
    monkeypatch.setenv("TIDEMARK_SCRATCH", str(tmp_path / "tidemark-1" / "store" / "landing" / "attempt-1"))
    monkeypatch.setattr("tidemark.control.launch.standby.spawn", spawned)
    root, handle = driven(tmp_path)
    spec = read_spec(root, "landing")
    assert spec is not None
    log = tmp_path / "logs" / "store" / "landing" / "driver.log"
    log.parent.mkdir(parents=True)
    StandbyKeeper(root, spec, 1, log, lambda: True).ensure_standby()
    assert len(started) == 1
    found = read_standby(log.parent)
    assert found is not None
    assert found.pid == handle.pid


@only_long
@pytest.mark.spark
@pytest.mark.slow
def test_a_standbys_life(tmp_path: Path) -> None:
    """It takes over at once, has its own standby then, refuses an attempt that was given up, and ends with its job."""
    landing = Landing(tmp_path, LocalLauncher(tmp_path / "logs"))
    spec = landing.want(standby=True)
    folder = run_folder(landing.store.uri, "landing", tmp_path / "logs").logs
    landing.land(3)
    first = landing.start(spec)
    landing.wait_for_rows(first)
    ready = ready_standby(folder)
    assert read_claim(landing.store, "landing", 2) is None, "it has claimed nothing"
    assert shown(landing.store) == {"state": "ready", "pid": ready.pid, "host": first.host}
    landing.land(2)
    kill(first, landing)
    second = landing.start(spec)
    assert second.pid == ready.pid
    landing.wait_for_rows(second)
    claim = read_claim(landing.store, "landing", 2)
    assert claim is not None
    assert claim.process is not None
    assert claim.process.pid == ready.pid
    next_ready = ready_standby(folder)
    assert next_ready.pid != ready.pid
    landing.launcher.ask_to_stop(second)
    landing.wait_for_end(second)
    assert landing.launcher.exit_code(second) == FINISHED
    # A reconciler that has given the attempt up before the standby claims it.
    number = newest_attempt(landing.store, "landing") + 1
    attempt = Attempt(number, spec.generation, SYSTEM_CLOCK.now_ms(), "ada", "a test")
    assert create_attempt(landing.store, "landing", attempt)
    assert abandon_attempt(landing.store, "landing", number, by="ada", at=SYSTEM_CLOCK.now_ms())
    third = landing.launcher.launch(spec, attempt, landing.store.uri)
    assert third.pid == next_ready.pid
    landing.wait_for_end(third)
    assert landing.launcher.exit_code(third) == FENCED
    fourth = landing.start(spec)
    landing.land(1)
    landing.wait_for_rows(fourth)
    last = ready_standby(folder)
    landing.want(wanted="suspended", stop="drain")
    landing.wait_for_end(fourth)
    until(lambda: not last.is_alive and session_members(last.pid) == (), "the end of the standby")
    assert landing.table() == landing.expected(6)


def ready_standby(folder: Path) -> Standby:
    def there() -> bool:
        found = read_standby(folder)
        return found is not None and found.ready and found.is_alive

    until(there, "a standby", seconds=240)
    found = read_standby(folder)
    assert found is not None
    return found


def kill(handle: ProcessHandle, landing: Landing) -> None:
    assert handle.pid is not None
    os.kill(handle.pid, signal.SIGKILL)
    until(lambda: landing.launcher.probe(handle) != "alive", "the end of the killed driver")
