"""How a job's standby is found and asked: two small files beside the driver's log, on the machine that both run on.

A standby is a process that has all a driver needs, but for an attempt. It runs nothing of the job before it is handed one: a launcher does
that, for an attempt that was created before, and the standby then claims the attempt as every driver does.
"""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tidemark.state.log.process_identity import is_known_dead
from tidemark.state.log.records import OwnerInfo

OFFER: Final = "standby.json"
ORDER: Final = "standby.go"
LOG: Final = "standby.log"
OUT: Final = "standby.out"
EXIT_FILE: Final = "standby.exit"
"""In the folder of the driver's log: who stands by, what it is to run, its log until then, what it prints, and how the last one ended that
was handed nothing."""


@dataclass(frozen=True)
class Standby:
    """A process that stands by for a generation of the spec; ``started`` is the token of its birth."""

    pid: int
    started: str
    generation: int
    ready: bool = False

    @property
    def is_alive(self) -> bool:
        """Whether the process is there."""
        return bool(self.started) and not is_known_dead(OwnerInfo(socket.gethostname(), self.pid, self.started))


def write_standby(folder: Path, standby: Standby) -> None:
    """Say who stands by.

    Raises:
        OSError: the file cannot be written.
    """
    _write(folder / OFFER, asdict(standby))


def read_standby(folder: Path) -> Standby | None:
    """Return the process that stands by, or last did; None if none did, or the file is unreadable."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        found = json.loads((folder / OFFER).read_text(encoding="utf-8"))
        return Standby(int(found["pid"]), str(found["started"]), int(found["generation"]), ready=bool(found["ready"]))
    return None


def assign_attempt(folder: Path, standby: Standby, attempt: int) -> bool:
    """Hand an attempt to a standby; returns False if another launcher was quicker, or the file cannot be written. Asks a standby once."""
    try:
        (folder / OFFER).rename(folder / f"{OFFER}.{standby.pid}")
        (folder / f"{OFFER}.{standby.pid}").unlink()
        _write(folder / ORDER, {"pid": standby.pid, "started": standby.started, "attempt": attempt})
    except OSError:
        return False
    return True


def assigned_attempt(folder: Path, standby: Standby) -> int | None:
    """Return the attempt that was handed to a standby, None as long as none was."""
    try:
        found = json.loads((folder / ORDER).read_text(encoding="utf-8"))
        return int(found["attempt"]) if (found["pid"], found["started"]) == (standby.pid, standby.started) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, fields: dict[str, object]) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(fields), encoding="utf-8")
    temporary.replace(path)
