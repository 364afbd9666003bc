"""Which process drives a job, and whether it still lives."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from tidemark.state.log.records import OwnerInfo


@dataclass(frozen=True)
class ProcessInfo:
    """A process as ``/proc`` shows it; ``started`` is the clock tick of its start."""

    pid: int
    state: str
    session: int
    started: str

    @property
    def is_zombie(self) -> bool:
        """Whether it has ended and is not yet reaped."""
        return self.state in {"Z", "X"}

    @property
    def start_token(self) -> str:
        """The same for all its life, and another for a process that reuses its pid, also after a reboot."""
        return f"{_boot_id()}:{self.started}"


def process_info(pid: int) -> ProcessInfo | None:
    """Return what is known of a process, None where there is none, or no ``/proc``."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The second field is the program's name in parentheses and may hold anything, so count from the last parenthesis.
    fields = stat.rpartition(")")[2].split()
    return ProcessInfo(pid, fields[0], int(fields[3]), fields[19])


def current_owner(run_id: str = "") -> OwnerInfo:
    """Return this process as an owner."""
    pid = os.getpid()
    return OwnerInfo(socket.gethostname(), pid, process_start_token(pid) or "", run_id)


def process_start_token(pid: int) -> str | None:
    """Return the token of a living process's start (``ProcessInfo.start_token``).

    Empty if the system has no ``/proc``; None when ``/proc`` shows no such process, or one that is dead but not yet reaped.
    """
    if not Path("/proc/self/stat").exists():
        return ""
    info = process_info(pid)
    return None if info is None or info.is_zombie else info.start_token


def is_known_dead(owner: OwnerInfo) -> bool:
    """Return whether the owner is certainly dead: a process of this host that no longer exists.

    False for owners on other hosts, which cannot be checked from here.
    """
    if owner.host != socket.gethostname():
        return False
    try:
        os.kill(owner.pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass  # it exists and belongs to someone else
    birth = process_start_token(owner.pid)
    return birth is None or bool(owner.started and birth and birth != owner.started)


def started_since_boot(birth: str) -> bool:
    """Return whether a process's start token is known to be from after this machine was started."""
    boot = _boot_id()
    return bool(boot) and birth.startswith(f"{boot}:")


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return ""
