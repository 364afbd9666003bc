"""A real standalone cluster on loopback: a driver by ``spark-submit``, its code shipped as a wheel, a worker killed, results exact."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from tests.control.drivers import Landing, until
from tidemark.control.driver.driver import FINISHED
from tidemark.control.launch.processes import kill_session, reap, session_members, spawn
from tidemark.control.launch.spark_submit import SparkSubmitLauncher
from tidemark.spark.env.class_archive import archive_options
from tidemark.spark.env.java import ensure_java

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HOME = Path(pyspark.__file__).parent
SPARK_CLASS = str(HOME / "bin" / "spark-class")
SHORT = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {archive_options()}".rstrip()
"""Options of JVMs that do little: seven start here."""
CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": SHORT,
}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass
class Cluster:
    """A master and its workers."""

    master: str
    workers: list[int]


@contextmanager
def server(out: Path, name: str, *arguments: str, ready: str) -> Iterator[int]:
    """Run one of Spark's servers, once it says that it is ready; yields its pid, which leads a session that its executors are in."""
    settings = {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": SHORT}
    # A server is no part of a driver that these tests may run in.
    variables = {key: value for key, value in os.environ.items() if key != "SPARK_ENV_LOADED"} | settings
    pid = spawn((SPARK_CLASS, f"org.apache.spark.deploy.{name}", *arguments), variables, out=out)

    def said() -> bool:
        text = out.read_text(encoding="utf-8", errors="replace") if out.exists() else ""
        assert session_members(pid), f"{name} has ended:\n{text[-4_000:]}"
        return ready in text

    try:
        until(said, f"{name}'s word that it is ready")
        yield pid
    finally:
        kill_session(pid)
        reap(pid)


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[Cluster]:
    """Run a master and some workers on loopback."""
    ensure_java()
    port, stack = free_port(), ExitStack()
    with stack:
        places = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port()))
        stack.enter_context(server(folder / "master.out", "master.Master", *places, ready="I have been elected leader"))
        address = f"spark://127.0.0.1:{port}"
        pids = [
            stack.enter_context(
                server(
                    folder / f"worker-{number}.out",
                    "worker.Worker",
                    "--host",
                    "127.0.0.1",
                    "--webui-port",
                    str(free_port()),
                    "--cores",
                    "1",
                    "--memory",
                    "1g",
                    "--work-dir",
                    str(folder / f"work-{number}"),
                    address,
                    ready="Successfully registered with master",
                )
            )
            for number in range(workers)
        ]
        yield Cluster(address, pids)


def has_executor(worker: int) -> bool:
    """Say whether a worker runs an executor."""
    commands = (Path(f"/proc/{member.pid}/cmdline") for member in session_members(worker))
    return any(b"CoarseGrainedExecutorBackend" in command.read_bytes() for command in commands if command.exists())


def test_a_job_on_a_standalone_cluster_loses_a_worker(tmp_path: Path) -> None:
    launcher = SparkSubmitLauncher(tmp_path / "logs")
    landing = Landing(tmp_path, launcher, conf=CONF)
    with cluster(tmp_path, workers=2) as spark:
        spec = landing.want(launcher="spark-submit", master=spark.master, code_paths=(str(landing.wheel()),))
        landing.land(3)
        handle = landing.start(spec)
        landing.wait_for_rows(handle)
        until(lambda: all(map(has_executor, spark.workers)), "an executor on each worker")
        victim = spark.workers[0]
        landing.land(3)
        assert kill_session(victim)
        landing.wait_for_rows(handle)
        landing.want(wanted="suspended", stop="drain")
        landing.wait_for_end(handle)
        assert launcher.exit_code(handle) == FINISHED, launcher.logs(handle, 60)
        status = landing.status
        assert status is not None
        assert status.last is not None
        assert (status.state, status.last.end_of_input) == ("finished", True)
        assert landing.table() == landing.expected(6)
        assert handle.pid is not None
        assert session_members(handle.pid) == ()
