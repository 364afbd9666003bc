"""Processes of this machine that outlive who started them: each leads a session of its own, which is found and ended as a whole.

A driver's Python, its JVM and Spark's Python workers are several processes and process groups, but one session.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.state.log.process_identity import ProcessInfo, process_info

_PROC: Final = Path("/proc")
_ROUNDS: Final = 100
_PAUSE_SECONDS: Final = 0.05
_DEFAULT_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)


def spawn(command: Sequence[str], environment: Mapping[str, str], *, out: Path, folder: Path | None = None) -> int:
    """Start a process that leads a session of its own, and return its pid at once.

    It reads nothing, appends what it prints to a file, inherits no other open file, and handles signals as a fresh process does.

    Args:
        command: an absolute path, and arguments.
        environment: all of its variables.
        out: the file for what it prints.
        folder: its working directory; that of this process by default.

    Raises:
        OSError: it cannot be started.
    """
    if folder is not None:
        # A process that is spawned cannot be given a working directory; the shell goes there and becomes the command.
        command = ("/bin/sh", "-c", 'cd "$0" && exec "$@"', str(folder), *command)
    return os.posix_spawn(
        command[0],
        list(command),
        environment,
        file_actions=(
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(out), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ),
        setsid=True,
        setsigmask=(),
        setsigdef=_DEFAULT_SIGNALS,
    )


def session_members(leader: int) -> tuple[ProcessInfo, ...]:
    """Return the living processes of a session."""
    with suppress(OSError):
        pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()]
        found = (process_info(pid) for pid in pids if _session_of(pid) == leader)
        return tuple(info for info in found if info is not None and info.session == leader and not info.is_zombie)
    return ()


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def reap(pid: int) -> int | None:
    """Take note of the end of a child of this process, so that nothing is left of it; returns its exit code, negative for a signal.

    None where it lives, or is no child of this process.
    """
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except OSError:
        return None
    return os.waitstatus_to_exitcode(status) if ended else None


def kill_session(leader: int, *, mark: str | None = None, clock: Clock = SYSTEM_CLOCK) -> bool:
    """End all processes of a session at once; False where some cannot be ended.

    Processes that are just being started come and go while they are counted, so they are counted until there are none.

    Args:
        leader: number of the session.
        mark: end only those that were started with this variable, ``NAME=value``: none where the system does not show that.
        clock: for the pauses between two counts.
    """
    if not (_PROC / "self").exists():
        if mark is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(leader, signal.SIGKILL)
        return True
    known: set[tuple[int, str]] = set()
    for _ in range(_ROUNDS):
        members = [
            member
            for member in session_members(leader)
            # One that is ending does not show its variables any more.
            if mark is None or (member.pid, member.started) in known or _was_started_with(member.pid, mark)
        ]
        if not members:
            return True
        for member in members:
            known.add((member.pid, member.started))
            with suppress(ProcessLookupError, PermissionError):
                os.kill(member.pid, signal.SIGKILL)
        clock.sleep(_PAUSE_SECONDS)
    return False


def _was_started_with(pid: int, variable: str) -> bool:
    try:
        return os.fsencode(variable) in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
