"""Launchers: processes that lead a session, outlive who started them, are found again, end as a whole and leave nothing. No JVM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.control.drivers import until
from tidemark.control.launch.code_packaging import package_code
from tidemark.control.launch.local_launcher import LocalLauncher
from tidemark.control.launch.processes import session_members, spawn
from tidemark.control.launch.run_folder import RunFolder
from tidemark.control.launch.spark_submit import SparkSubmitLauncher
from tidemark.control.model.launcher import Launcher
from tidemark.control.model.records import Attempt, ProcessHandle
from tidemark.control.model.spec import JobSpec, SpecGeneration
from tidemark.errors import LaunchError
from tidemark.state.log.process_identity import process_info

STORE = "file:///jobs"

PARENT = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
# As Spark's Python workers: a process group of its own.
child = subprocess.Popen([sys.executable, "-c", "import os, time; os.setpgid(0, 0); print('child', flush=True); time.sleep(600)"])
print("cwd", os.getcwd(), "own", os.getsid(0) == os.getpid(), "set", os.environ.get("SET"), "tmp", os.environ["TMPDIR"], flush=True)
while True:
    signal.pause()
"""


class StandInLauncher(LocalLauncher):
    """Starts a small program in a driver's place."""

    program = PARENT

    def command(self, spec: SpecGeneration, attempt: Attempt, store_uri: str, files: RunFolder) -> Sequence[str]:
        super().command(spec, attempt, store_uri, files)
        return (sys.executable, "-c", self.program)


def generation(**fields: object) -> SpecGeneration:
    return SpecGeneration(1, 0, "ada", "", replace(JobSpec("fares", "fares:job"), **fields))  # type: ignore[arg-type]


def attempt(number: int = 1) -> Attempt:
    return Attempt(number, 1, 0, "ada", "a test")


def printed(handle: ProcessHandle) -> str:
    assert handle.log is not None
    return Path(handle.log).with_name("driver.out").read_text()


def is_up(handle: ProcessHandle) -> bool:
    return "cwd" in printed(handle) and "child" in printed(handle)


def require_nothing_left(handle: ProcessHandle) -> None:
    assert handle.pid is not None
    assert session_members(handle.pid) == ()
    assert process_info(handle.pid) is None, "not even a process that its parent took no note of"


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalLauncher:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "4711")
    return StandInLauncher(tmp_path / "logs")


def test_a_process_is_started_asked_to_stop_and_found_gone(launcher: LocalLauncher, tmp_path: Path) -> None:
    (tmp_path / "work place").mkdir()
    handle = launcher.launch(generation(folder=str(tmp_path / "work place"), variables={"SET": "so"}), attempt(), STORE)
    until(lambda: is_up(handle), "the process")
    words = printed(handle)
    assert f"cwd {tmp_path / 'work place'} own True set so tmp {tmp_path / 'tmp'}" in words
    assert (launcher.probe(handle), launcher.exit_code(handle)) == ("alive", None)
    assert handle.pid is not None
    assert len(session_members(handle.pid)) == 2
    launcher.ask_to_stop(handle)
    until(lambda: launcher.probe(handle) == "gone", "the end")
    assert launcher.exit_code(handle) == 7
    assert handle.pid is not None
    assert len(session_members(handle.pid)) == 1, "who only looks ends nothing"
    launcher.kill(handle)
    require_nothing_left(handle)
    again = StandInLauncher(tmp_path / "logs")
    assert (again.probe(handle), again.exit_code(handle)) == ("gone", 7), "as any other process sees it later"
    assert launcher.logs(handle, 5), "a process that wrote no log: what it printed"
    launcher.ask_to_stop(handle)
    launcher.kill(handle)


def test_a_killed_process_takes_all_it_started_with_it(launcher: LocalLauncher) -> None:
    handle = launcher.launch(generation(), attempt(), STORE)
    until(lambda: is_up(handle), "the process")
    launcher.kill(handle)
    assert launcher.probe(handle) == "gone"
    assert launcher.exit_code(handle) == -9
    require_nothing_left(handle)


def test_a_process_outlives_who_started_it(launcher: LocalLauncher, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.control.test_launchers import StandInLauncher, attempt, generation\n"
        "handle = StandInLauncher(Path(sys.argv[1])).launch(generation(), attempt(), 'file:///jobs')\n"
        "print(handle.pid, handle.started, handle.log)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "logs")], check=True, capture_output=True, text=True)
    pid, started, log = done.stdout.split()
    handle = ProcessHandle("local", os.uname().nodename, int(pid), started=started, log=log)
    until(lambda: is_up(handle), "the process")
    assert launcher.probe(handle) == "alive"
    launcher.kill(handle)
    until(lambda: launcher.probe(handle) == "gone", "the end")
    assert session_members(int(pid)) == ()


def test_another_process_with_the_number_is_left_alone(launcher: LocalLauncher) -> None:
    handle = launcher.launch(generation(), attempt(), STORE)
    until(lambda: is_up(handle), "the process")
    stranger = replace(handle, started="boot:1")
    assert launcher.probe(stranger) == "gone"
    launcher.ask_to_stop(stranger)
    launcher.kill(stranger)
    assert launcher.exit_code(stranger) is None
    assert launcher.probe(handle) == "alive"
    elsewhere = replace(handle, host="another-host")
    assert (launcher.probe(elsewhere), launcher.exit_code(elsewhere), launcher.logs(elsewhere, 5)) == ("unknown", None, ())
    launcher.kill(elsewhere)
    assert launcher.probe(handle) == "alive"
    launcher.kill(handle)


def test_a_session_of_others_with_the_number_is_left_alone(launcher: LocalLauncher, tmp_path: Path) -> None:
    """As a daemon is that forks and whose parent ends: a session without its leader, whose number an old handle has."""
    code = "import os, time; os.setsid()\nif os.fork() == 0: print(os.getpid(), flush=True); os.close(1); time.sleep(600)"
    for marked in (False, True):
        environment = {**os.environ, "TIDEMARK_DRIVER": str(tmp_path / "another.log")} if marked else None
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment) as leader:
            assert leader.stdout is not None
            worker = int(leader.stdout.readline())
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        handles = [
            ProcessHandle("local", os.uname().nodename, leader.pid, started=started, log=str(log) if log is not None else None)
            for started in ("an-older-boot:123456", f"{boot}:1", "")
            for log in (tmp_path / "driver.log", None)
        ]
        try:
            for handle in handles:
                assert launcher.probe(handle) == "gone"
                launcher.kill(handle)
            assert [member.pid for member in session_members(leader.pid)] == [worker]
        finally:
            os.kill(worker, signal.SIGKILL)


def test_what_a_driver_left_running_is_known_by_its_mark_and_of_this_boot(launcher: LocalLauncher) -> None:
    handle = launcher.launch(generation(), attempt(), STORE)
    until(lambda: is_up(handle), "the process")
    launcher.ask_to_stop(handle)
    until(lambda: launcher.probe(handle) == "gone", "the end")
    assert handle.pid is not None
    for other in (replace(handle, log="/elsewhere/driver.log"), replace(handle, log=None), replace(handle, started="an-older-boot:1")):
        launcher.kill(other)
        assert len(session_members(handle.pid)) == 1
    launcher.kill(handle)
    require_nothing_left(handle)


@pytest.mark.usefixtures("launcher")
def test_what_earlier_attempts_left_stays_bounded(tmp_path: Path) -> None:
    class Short(StandInLauncher):
        program = "import os, pathlib; pathlib.Path(os.environ['SPARK_LOCAL_DIRS'], 'left').touch(); print('printed')"

    short = Short(tmp_path / "logs")
    for number in range(1, 7):
        handle = short.launch(generation(), attempt(number), STORE)
        until(lambda handle=handle: short.probe(handle) == "gone", "the end")  # type: ignore[misc]
        assert short.exit_code(handle) == 0
    left = list((tmp_path / "tmp").rglob("left"))
    assert [path.parent.name for path in left] == ["attempt-6"]
    outs = sorted(path.name for path in (tmp_path / "logs").rglob("driver.out*"))
    assert outs == ["driver.out", "driver.out.1", "driver.out.2"]


def test_a_driver_that_ends_at_once_leaves_its_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(StandInLauncher):
        program = "raise SystemExit(3)"

    def spawn_and_wait(*args: Any, **options: Any) -> int:
        pid = spawn(*args, **options)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return pid

    monkeypatch.setattr("tidemark.control.launch.local_launcher.spawn", spawn_and_wait)
    failing = Failing(tmp_path / "logs")
    handle = failing.launch(generation(), attempt(), STORE)
    assert failing.probe(handle) == "gone"
    assert failing.exit_code(handle) == 3


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"folder": "/nowhere"}, "/nowhere"),
        ({"code_paths": ("missing.whl",)}, "missing.whl"),
        ({"folder": "~no-such-user/x"}, "home directory"),
        ({"code_paths": ("~no-such-user/x",)}, "home directory"),
        ({"folder": "/" + "x" * 5000}, "cannot be started|does not exist"),
        ({"variables": {"X": "\ud800"}}, "surrogates not allowed"),
        ({"variables": {"X=Y": "z"}}, "environment variable name"),
    ],
)
def test_what_cannot_be_started_says_why(launcher: LocalLauncher, fields: dict[str, object], words: str) -> None:
    with pytest.raises(LaunchError, match=words):
        launcher.launch(generation(**fields), attempt(), STORE)


def test_a_log_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    with pytest.raises(LaunchError, match="cannot be started"):
        StandInLauncher(tmp_path / "logs").launch(generation(), attempt(), STORE)


def test_a_folder_that_somebody_else_made(launcher: LocalLauncher, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "theirs").mkdir()
    (tmp_path / "tmp" / f"tidemark-{os.getuid()}").symlink_to(tmp_path / "theirs")
    with pytest.raises(LaunchError, match="belongs to another user"):
        launcher.launch(generation(), attempt(), STORE)


def test_the_command_and_the_variables_of_a_local_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "4711")
    monkeypatch.setenv("PYTHONPATH", "/theirs")
    (tmp_path / "code").mkdir()
    launcher, files = LocalLauncher(tmp_path), RunFolder(tmp_path / "logs", tmp_path / "scratch")
    found = generation(folder=str(tmp_path), code_paths=("code",), variables={"A": "b"})
    command = launcher.command(found, attempt(4), STORE, files)
    assert command[:3] == (sys.executable, "-m", "tidemark.control.driver")
    assert list(command[3:]) == f"--store {STORE} --job fares --attempt 4 --launcher local --log {tmp_path}/logs/driver.log".split()
    variables = launcher.environment(found.spec, tmp_path / "scratch")
    assert variables["PYTHONPATH"] == f"{tmp_path}/code{os.pathsep}/theirs"
    assert variables["A"] == "b"
    assert "PYSPARK_GATEWAY_PORT" not in variables
    described = json.loads(launcher.session(replace(found.spec, master="local[2]", conf={"a": "b"}), files)["TIDEMARK_SESSION"])
    assert described == {"master": "local[2]", "app_name": "tidemark fares", "conf": {"a": "b"}, "output": f"{tmp_path}/logs/driver.out"}
    assert launcher.session(replace(found.spec, master="spark://host:7077"), files) == {}
    assert SparkSubmitLauncher(tmp_path).session(replace(found.spec, master="local[2]"), files) == {}


def test_spark_submit_ships_code_and_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    wheel = tmp_path / "fares-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("fares.py", "job = None")
    launcher: Launcher = SparkSubmitLauncher(tmp_path / "logs", program="/bin/true")
    assert isinstance(launcher, SparkSubmitLauncher)
    files = RunFolder(tmp_path / "logs", tmp_path / "scratch")
    spec = generation(launcher="spark-submit", master="spark://host:7077", conf={"spark.cores.max": "4"}, code_paths=(str(wheel),))
    command = list(launcher.command(spec, attempt(2), STORE, files))
    assert command[:7] == ["/bin/true", "--master", "spark://host:7077", "--name", "tidemark fares", "--conf", "spark.cores.max=4"]
    archive_path = Path(command[command.index("--py-files") + 1])
    assert (archive_path.suffix, archive_path.read_bytes()) == (".zip", wheel.read_bytes())
    program = command.index("--py-files") + 2
    assert command[program].endswith("tidemark/control/driver/driver.py")
    assert command[program + 1 :][:6] == ["--store", STORE, "--job", "fares", "--attempt", "2"]
    assert launcher.environment(spec.spec, tmp_path)["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert launcher.conf(replace(spec.spec, variables={"ROOT": "/lake"}))["spark.executorEnv.ROOT"] == "/lake"
    local = launcher.conf(replace(spec.spec, master="local[2]", conf={"spark.ui.enabled": "true"}))
    assert (local["spark.driver.bindAddress"], local["spark.ui.enabled"]) == ("127.0.0.1", "true")


def test_drivers_on_the_cluster(tmp_path: Path) -> None:
    launcher = SparkSubmitLauncher(tmp_path / "logs", program="/bin/true")
    cluster = {"spark.submit.deployMode": "cluster"}
    with pytest.raises(LaunchError, match="does not run drivers in Python"):
        launcher.launch(generation(master="spark://host:7077", conf=cluster), attempt(), "s3://bucket/jobs")
    with pytest.raises(LaunchError, match="cannot read the job store"):
        launcher.launch(generation(master="yarn", conf=cluster), attempt(), STORE)
    handle = launcher.launch(generation(master="yarn", conf=cluster), attempt(), "s3://bucket/jobs")
    assert (handle.pid, handle.application) == (None, "fares attempt-1")
    assert (launcher.probe(handle), launcher.exit_code(handle)) == ("unknown", None)
    launcher.kill(handle)
    launcher.ask_to_stop(handle)
    assert launcher.conf(generation(master="yarn", conf=cluster).spec)["spark.yarn.submit.waitAppCompletion"] == "false"
    there = launcher.conf(generation(master="k8s://https://host", conf=cluster, variables={"ROOT": "/lake"}).spec)
    assert (there["spark.kubernetes.driverEnv.ROOT"], there["spark.executorEnv.ROOT"]) == ("/lake", "/lake")
    files = RunFolder(tmp_path / "logs", tmp_path / "scratch")
    assert "--log" not in launcher.command(generation(master="k8s://https://host", conf=cluster), attempt(), "s3://bucket/jobs", files)


def test_shipped_code_is_named_by_what_it_holds(tmp_path: Path) -> None:
    code = tmp_path / "code"
    (code / "pack" / "__pycache__").mkdir(parents=True)
    (code / "pack" / "__init__.py").write_text("x = 1")
    (code / "pack" / "__pycache__" / "junk.pyc").write_bytes(b"junk")
    (first,) = package_code([code], tmp_path / "out")
    os.utime(code / "pack" / "__init__.py", (1, 1))
    (again,) = package_code([code], tmp_path / "out")
    assert again == first
    assert zipfile.ZipFile(first).namelist() == ["pack/__init__.py"]
    (code / "pack" / "__init__.py").write_text("x = 2")
    assert package_code([code], tmp_path / "out") != (first,)


def test_settings_and_keys_that_lie_beside_the_code_stay_here(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    code = tmp_path / "code"
    for name, text in {
        "fares/__init__.py": "marker = '-----BEGIN PRIVATE KEY-----'",
        "fares/zones.csv": "1,north",
        "fares/ca.pem": "-----BEGIN CERTIFICATE-----",
        "fares/own.pem": "-----BEGIN RSA PRIVATE KEY-----",
        "id_rsa": "-----BEGIN OPENSSH PRIVATE KEY-----",
        "lake.key": "hunter2",
        "store.p12": "hunter2",
        ".env": "DB_PASS=hunter2",
        ".env.local": "DB_PASS=hunter2",
        ".aws/credentials": "hunter2",
        ".git/config": "https://hunter2@host",
    }.items():
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text(text)
    (archive,) = package_code([code], tmp_path / "out")
    assert zipfile.ZipFile(archive).namelist() == ["fares/__init__.py", "fares/ca.pem", "fares/zones.csv"]
    told = [record.getMessage().split()[0] for record in caplog.records]
    assert sorted(told) == ["id_rsa", "lake.key", "own.pem", "store.p12"]


def test_code_that_cannot_be_shipped(tmp_path: Path) -> None:
    compiled = tmp_path / "fast-1.0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(compiled, "w") as archive:
        archive.writestr("fast/core.so", "")
    with pytest.raises(LaunchError, match=r"fast/core\.so"):
        package_code([compiled], tmp_path / "out")
    (tmp_path / "note.txt").write_text("no code")
    with pytest.raises(LaunchError, match="neither a folder nor"):
        package_code([tmp_path / "note.txt"], tmp_path / "out")
    (tmp_path / "broken.zip").write_text("no zip")
    with pytest.raises(LaunchError, match="cannot be shipped"):
        package_code([tmp_path / "broken.zip"], tmp_path / "out")


def test_the_end_of_a_driver_that_was_seen_alive_is_told_once(tmp_path: Path) -> None:
    """Without that anybody else took note of it; of one that was not looked at, nothing is said."""
    launcher = StandInLauncher(tmp_path)
    seen, other = (launcher.launch(generation(), attempt(number), STORE) for number in (1, 2))
    assert launcher.probe(seen) == "alive"
    assert not launcher.any_driver_ended()
    launcher.kill(other)
    assert not launcher.any_driver_ended()
    assert seen.pid is not None
    os.kill(seen.pid, signal.SIGKILL)
    until(launcher.any_driver_ended, "the end of the driver")
    assert not launcher.any_driver_ended()
    assert launcher.probe(seen) == "gone"
    launcher.kill(seen)
