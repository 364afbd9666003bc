"""Which processes of this machine are a job's running driver: its Python, its JVM, Spark's Python workers."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import psutil  # type: ignore[import-untyped]  # ships no types

from tidemark.errors import ProfileError
from tidemark.spark.resources.process_meter import is_python
from tidemark.state.log.heartbeat import Heartbeat
from tidemark.state.log.process_identity import is_known_dead
from tidemark.state.log.records import OwnerInfo

_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
"""Environment variable by which ``spark-submit`` names its JVM to the Python that it starts."""


@dataclass(frozen=True)
class DriverProcesses:
    """A running driver's processes.

    Args:
        job: the job's name.
        python: the process id of the driver's Python.
        jvm: that of its JVM.
        java: the JVM's program.
        roots: of the Python processes that have no other of these above them; all others are below one of them.
        owner: the driver's Python as the job's heartbeat names it, with the start that tells it from a later process of the same id.
    """

    job: str
    python: int
    jvm: int
    java: str
    roots: tuple[int, ...]
    owner: OwnerInfo


def driver_processes(job: str, beat: Heartbeat | None) -> DriverProcesses:
    """Return the processes of the driver that gave a job's last heartbeat.

    Args:
        job: the job's name.
        beat: its last heartbeat.

    Raises:
        ProfileError: no driver runs, or it runs on another machine or as another user.
    """
    if beat is None or beat.released or is_known_dead(beat.owner):
        raise ProfileError("no driver of the job runs", fix=f"start it: tidemark start {job}", job=job)
    owner, here = beat.owner, socket.gethostname()
    if owner.host != here:
        raise ProfileError(
            f"its driver runs on host {owner.host!r}, and this is {here!r}", fix=f"run tidemark profile {job} on that host", job=job
        )
    try:
        python = psutil.Process(owner.pid)
        if python.uids().effective != os.geteuid():
            user = python.username()
            raise ProfileError(
                f"its driver runs as user {user!r}", fix=f"profile it as that user: sudo -u {user} tidemark profile {job}", job=job
            )
        jvm = _jvm_of(python)
        if jvm is None:
            raise ProfileError(f"process {owner.pid} has no JVM yet", fix="wait until the job runs: tidemark status", job=job)
        below = [child.pid for child in jvm.children() if is_python(child) and child.pid != python.pid]
        return DriverProcesses(job, python.pid, jvm.pid, jvm.exe(), (python.pid, *(() if python in jvm.parents() else below)), owner)
    except psutil.Error as error:
        raise ProfileError(
            f"process {owner.pid} cannot be looked at: {error}", fix="try again; if it was restarted meanwhile, its status says so", job=job
        ) from error


def _jvm_of(python: psutil.Process) -> psutil.Process | None:
    """Return the driver's JVM: above its Python where ``spark-submit`` started that, else below it."""
    if _GATEWAY in python.environ():
        return _first_java(python.parents())
    # Java above it is another program, such as a scheduler that started it.
    return _first_java(python.children()) or _first_java(python.children(recursive=True))


def _first_java(processes: Iterable[psutil.Process]) -> psutil.Process | None:
    return next((process for process in processes if process.name() == "java"), None)
