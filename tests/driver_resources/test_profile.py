"""``tidemark profile``: whom it looks at, what it says when it may not, and a real driver whose slow function it finds."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # ships no types
import pytest
from click.testing import CliRunner

from tests.control.drivers import until
from tidemark.cli.program.main import main
from tidemark.control.profile.driver_processes import DriverProcesses, driver_processes
from tidemark.control.profile.profile import profile_driver
from tidemark.errors import ProfileError, SetupError
from tidemark.state.log.heartbeat import Heartbeat
from tidemark.state.log.process_identity import current_owner, process_start_token
from tidemark.state.log.records import OwnerInfo
from tidemark.state.status.status import read_status
from tidemark.state.store.store import JobStore

HERE = socket.gethostname()
CODE = """
import tidemark as tm

def slow_fare(ride, ctx):
    total = 0.0
    for second in range(50_000):
        total += (second % 7) * 0.01
    yield {"ride": ride["value"], "fare": total}

rides = tm.source("rides", tm.rate(rows_per_second=100), watermarks=tm.ascending(timestamp="timestamp"))
job = tm.Job("fares", outputs={"fares": tm.memory(rides.process(slow_fare, returns="ride BIGINT, fare DOUBLE"), "fares")})

if __name__ == "__main__":
    tm.run(job, store="STORE", trigger="1 second")
"""


ABOVE = "import subprocess, sys; subprocess.run(sys.argv[1:2] + ['-c'] + sys.argv[2:])"
DRIVER = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.argv[1], "-c", "import time; time.sleep(60)"]).pid if len(sys.argv) > 1 else 0
print(os.getpid(), child, flush=True)
time.sleep(60)
"""


def beat(pid: int, *, host: str = HERE, released: bool = False, started: str = "") -> Heartbeat:
    return Heartbeat(1, OwnerInfo(host, pid, started), 0, 1, released)


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)


def someone(java: Path) -> DriverProcesses:
    return DriverProcesses("taxi", os.getpid(), os.getpid(), str(java), (os.getpid(),), current_owner())


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder whose programs are taken for those of the JDK and for py-spy."""
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    return tmp_path


@pytest.mark.parametrize("found", [None, beat(os.getpid(), released=True), beat(2**22 + 5), beat(os.getpid(), started="another")])
def test_a_driver_that_does_not_run_is_not_looked_at(found: Heartbeat | None) -> None:
    with pytest.raises(ProfileError, match=r"no driver of the job runs.*Fix: start it: tidemark start taxi"):
        driver_processes("taxi", found)


def test_a_driver_elsewhere_is_profiled_there() -> None:
    with pytest.raises(ProfileError, match=r"runs on host 'db-7'.*Fix: run tidemark profile taxi on that host"):
        driver_processes("taxi", beat(1, host="db-7"))


def test_a_driver_of_another_user_is_profiled_as_that_user(monkeypatch: pytest.MonkeyPatch) -> None:
    user = psutil.Process().username()
    monkeypatch.setattr(os, "geteuid", lambda: 54_321)
    with pytest.raises(ProfileError, match=rf"runs as user '{user}'.*Fix: .*sudo -u {user} tidemark profile taxi"):
        driver_processes("taxi", Heartbeat(1, current_owner(), 0, 1))


def test_without_a_jdk_or_py_spy_it_says_what_to_install(tools: Path) -> None:
    driver = someone(tools / "java")
    with pytest.raises(SetupError, match=r"no jcmd beside .*java.*Fix: install a JDK 17 or later.*--only python"):
        profile_driver(driver, seconds=1)
    with pytest.raises(SetupError, match=r"py-spy is not installed.*Fix: .*'\.\[profile\]'.*--only jvm"):
        profile_driver(driver, seconds=1, only="python")


def test_a_system_that_forbids_it_is_told_from_one_that_fails(tools: Path) -> None:
    driver = someone(tools / "java")
    program(tools, "py-spy", "echo 'Permission Denied: Try running again with elevated permissions' >&2; exit 1")
    with pytest.raises(SetupError, match=r"may not look into process.*Fix: .*ptrace_scope=0.*SYS_PTRACE.*--only jvm"):
        profile_driver(driver, seconds=30, only="python")
    program(tools, "py-spy", "echo 'Error: Failed to find python version from target process' >&2; exit 1")
    with pytest.raises(ProfileError, match=r"cannot sample process \d+: Error: Failed to find python version.*Fix: try again"):
        profile_driver(driver, seconds=30, only="python")


@pytest.mark.parametrize(
    ("jcmd", "says"),
    [
        ("echo 'com.sun.tools.attach.AttachNotSupportedException: no answer' >&2; exit 1", "does not answer: .*no answer"),
        ("echo 'java.lang.IllegalArgumentException: Unknown diagnostic command'", "cannot record: .*Unknown diagnostic command"),
        ("echo 'Started recording 1.'", "wrote no recording"),
    ],
)
def test_a_jvm_that_does_not_record_is_an_error(tools: Path, jcmd: str, says: str) -> None:
    program(tools, "jcmd", jcmd)
    program(tools, "jfr", "exit 0")
    with pytest.raises(ProfileError, match=rf"its JVM \(process \d+\) {says}.*Fix: look at Python alone"):
        profile_driver(someone(tools / "java"), seconds=1, only="jvm")


def test_a_recording_is_ended_where_the_other_fails(tools: Path) -> None:
    log = tools / "said"
    program(tools, "jcmd", f"echo $* >> {log}; echo 'Started recording 1.'")
    program(tools, "jfr", "exit 0")
    program(tools, "py-spy", "exit 1")
    with pytest.raises(ProfileError, match="cannot sample process"):
        profile_driver(someone(tools / "java"), seconds=30)
    commands = [line.split()[1] for line in log.read_text().splitlines()]
    assert commands == ["JFR.configure", "JFR.start", "JFR.stop"]
    assert "filename" not in log.read_text(), "what it has is dropped"
    assert " duration=330s " in log.read_text(), "without this process the JVM does not record for ever"


def test_the_folder_of_temporary_files_may_have_a_space(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tools / "my files").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tools / "my files"))
    # As the JVM, it takes the words after the last equals sign for one only in quotes.
    write = 'case "$*" in *filename=\\"*) file="${*##*filename=}"; file="${file#?}"; : > "${file%?}";; esac; echo "Started recording 1."'
    program(tools, "jcmd", write)
    program(tools, "jfr", "exit 0")
    assert profile_driver(someone(tools / "java"), seconds=1, only="jvm").stacks == {"jvm": {}}


@pytest.mark.parametrize(("idle", "frames"), [(False, {"f (fares.py:1)"}), (True, {"f (fares.py:1)", "wait (threading.py:3)"})])
def test_threads_that_wait_are_sampled_on_request(tools: Path, *, idle: bool, frames: set[str]) -> None:
    raw = f'process {os.getpid()}:"python";f (fares.py:1) 2\nprocess {os.getpid()}:"python";wait (threading.py:3) 5\n'
    (tools / "raw").write_text(raw)
    write = f'echo "$*" > {tools}/options; while [ "$1" != --output ]; do shift; done; cp {tools}/raw "$2"'
    program(tools, "py-spy", write)
    found = profile_driver(someone(tools / "java"), seconds=1, only="python", idle=idle)
    assert set(found.stacks) == {"python"}
    assert {frame for stack in found.stacks["python"] for frame in stack} == {"driver", *frames}
    options = (tools / "options").read_text().split()
    assert ("--idle" in options, "--nonblocking" in options, options[:3]) == (idle, True, ["record", "--pid", str(os.getpid())])


@pytest.mark.parametrize("how", ["ended", "zombie", "another process has its id"])
def test_a_driver_that_ends_meanwhile_has_no_profile(tools: Path, how: str) -> None:
    program(tools, "py-spy", "exit 0")
    with subprocess.Popen(["sleep", "60"]) as process:
        owner = OwnerInfo(HERE, process.pid, process_start_token(process.pid) or "")
        assert owner.started
        if how == "another process has its id":
            owner = replace(owner, started=f"{owner.started}1")
        else:
            process.kill()
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        if how == "ended":
            process.wait()
        with pytest.raises(ProfileError, match=r"its driver \(process \d+\) ended meanwhile.*Fix: .*tidemark status taxi"):
            profile_driver(DriverProcesses("taxi", process.pid, os.getpid(), "java", (process.pid,), owner), seconds=30, only="python")
        process.kill()


@pytest.mark.parametrize(("gateway", "child", "used"), [(False, True, "child"), (False, False, None), (True, False, "above")])
def test_the_jvm_is_that_of_the_driver_and_no_other_java_above_it(tmp_path: Path, *, gateway: bool, child: bool, used: str | None) -> None:
    """Two programs named java: one that started the driver, and one that the driver started."""
    java = tmp_path / "java"
    java.symlink_to(os.path.realpath(sys.executable))
    variables = {name: value for name, value in os.environ.items() if name != "PYSPARK_GATEWAY_PORT"}
    command = [str(java), "-c", ABOVE, sys.executable, DRIVER, *([str(java)] if child else [])]
    if gateway:
        variables["PYSPARK_GATEWAY_PORT"] = "1"
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=variables) as above:
        assert above.stdout is not None
        driver, below = map(int, above.stdout.readline().split())
        try:
            known = beat(driver, started=process_start_token(driver) or "")
            if used is None:
                with pytest.raises(ProfileError, match=r"has no JVM yet.*Fix: wait until the job runs"):
                    driver_processes("taxi", known)
            else:
                found = driver_processes("taxi", known)
                assert found.jvm == {"above": above.pid, "child": below}[used]
                assert found.python == driver
        finally:
            for pid in filter(None, (below, driver, above.pid)):
                os.kill(pid, signal.SIGKILL)


def test_an_unknown_job_is_an_error(tmp_path: Path) -> None:
    JobStore.open(str(tmp_path / "store"))
    done = CliRunner().invoke(main, ["profile", "taxi", "--store", str(tmp_path / "store")])
    assert (done.exit_code, "there is no job 'taxi'" in done.stderr) == (1, True)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a driver in a process of its own, with an epoch each second."""
    code = tmp_path / "fares_job.py"
    code.write_text(CODE.replace("STORE", str(tmp_path / "store")))
    with (tmp_path / "driver.out").open("wb") as out:
        process = subprocess.Popen([sys.executable, str(code)], cwd=tmp_path, stdout=out, stderr=out)
    store = JobStore.open(str(tmp_path / "store"))

    def runs() -> bool:
        assert process.poll() is None, (tmp_path / "driver.out").read_text()
        status = read_status(store, "fares")
        return status is not None and status.last is not None and status.last.rows_in > 0

    try:
        until(runs, "an epoch with rows")
        yield process
    finally:
        family = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait()
        for child in family:
            if child.is_running():
                child.kill()


@pytest.mark.slow
@pytest.mark.spark
def test_a_slow_function_of_a_running_driver_is_found(driver: subprocess.Popen[bytes], tmp_path: Path) -> None:
    store, page = str(tmp_path / "store"), tmp_path / "found"
    if shutil.which("jcmd") is None:
        pytest.skip("this machine has no JDK: jcmd and jfr are missing")
    done = CliRunner().invoke(main, ["profile", "fares", "--seconds", "6", "--output", str(page), "--store", store, "--json"])
    if done.exit_code and "may not look into process" in done.stderr:
        pytest.skip(f"py-spy may not attach here: {done.stderr.strip()}")
    assert done.exit_code == 0, done.stderr
    assert f"driver {driver.pid}" in done.stderr
    found = json.loads(done.stdout)
    assert (found["job"], found["seconds"], found["page"]) == ("fares", 6, str(page / "profile.html"))
    assert found["python"]["functions"][0]["name"].startswith("slow_fare (fares_job.py:")
    assert found["jvm"]["samples"] > 0
    assert stat.S_IMODE(page.stat().st_mode) == 0o700
    assert {file.name for file in page.iterdir()} == {"profile.html", "jvm.svg", "jvm.collapsed", "python.svg", "python.collapsed"}
    slow = [line for line in (page / "python.collapsed").read_text().splitlines() if "slow_fare (" in line]
    assert slow
    assert all(line.startswith("Python workers;") for line in slow)
    assert "java.lang.Thread.run" in (page / "jvm.collapsed").read_text()
    text = (page / "profile.html").read_text()
    assert text.count('class="flames"') == 2
    assert "slow_fare (fares_job.py:" in (page / "python.svg").read_text()
    assert driver.poll() is None, "the driver goes on"
    again = CliRunner().invoke(main, ["profile", "fares", "--seconds", "1", "--output", str(page), "--store", store])
    assert (again.exit_code, f"{page} exists already" in again.stderr) == (1, True)
