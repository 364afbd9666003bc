"""Processes of this machine that outlive their parent: each leads a separate session, which is found and killed as a whole.

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
    """Start a process as the leader of a new session, and return its pid at once.

    It reads nothing, appends its output to a file, inherits no other open file, and has the default signal handlers.

    Args:
        command: an absolute path, and arguments.
        environment: its complete environment.
        out: the file for its output.
        folder: its working directory; that of this process by default.

    Raises:
        OSError: it cannot be started.
    """
    if folder is not None:
        # posix_spawn cannot set a working directory; the shell changes to it and executes the command.
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
    """Reap a child of this process that has ended; returns its exit code, negative for a signal.

    None if it is alive, or not a child of this process.
    """
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except OSError:
        return None
    return os.waitstatus_to_exitcode(status) if ended else None


def kill_session(leader: int, *, mark: str | None = None, clock: Clock = SYSTEM_CLOCK) -> bool:
    """Kill all processes of a session; False if some cannot be killed.

    Processes may be started while they are listed, so they are listed until there are none.

    Args:
        leader: the session's number.
        mark: kill only those that were started with this variable, ``NAME=value``; none if the system does not show that.
        clock: for the pauses between two listings.
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
            # A process that is ending no longer shows its variables.
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
