"""The actions of a plan: data, so that a plan can be shown, tested, and carried out elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.control.model.records import ControlStatus, ProcessHandle
from tidemark.control.model.spec import StopMode


@dataclass(frozen=True)
class WriteStatus:
    """Write a status, and do nothing else."""

    status: ControlStatus


@dataclass(frozen=True)
class AbandonAttempt:
    """Claim an attempt that no process has claimed, so that none can run it; the actions after it run only if that succeeds."""

    attempt: int


@dataclass(frozen=True)
class LaunchAttempt:
    """Create an attempt and launch its driver; ``status`` is written between the two."""

    attempt: int
    why: str
    takeover: bool
    status: ControlStatus


@dataclass(frozen=True)
class RequestStop:
    """Ask a driver to end after the current epoch."""

    how: StopMode
    process: ProcessHandle


@dataclass(frozen=True)
class Kill:
    """End a driver's process at once."""

    why: str
    process: ProcessHandle


@dataclass(frozen=True)
class PruneAttempts:
    """Delete the records of attempts below a number."""

    attempts_below: int


Action = WriteStatus | AbandonAttempt | LaunchAttempt | RequestStop | Kill | PruneAttempts
