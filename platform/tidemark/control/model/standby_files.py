"""How a launcher finds a job's standby and assigns it an attempt: two small files beside the driver's log, on the machine of both.

A standby is a process that has all a driver needs, except an attempt. It runs nothing of the job until a launcher assigns it an attempt
that was created before; the standby then claims the attempt as every driver does.
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
"""Files in the folder of the driver's log: the standby process, the attempt assigned to it, its log until then, its output, and the exit
status of the last standby that was assigned none."""


@dataclass(frozen=True)
class Standby:
    """A standby process for a generation of the spec; ``started`` is its start token."""

    pid: int
    started: str
    generation: int
    ready: bool = False

    @property
    def is_alive(self) -> bool:
        """Whether the process is alive."""
        return bool(self.started) and not is_known_dead(OwnerInfo(socket.gethostname(), self.pid, self.started))


def write_standby(folder: Path, standby: Standby) -> None:
    """Write the standby process.

    Raises:
        OSError: the file cannot be written.
    """
    _write(folder / OFFER, asdict(standby))


def read_standby(folder: Path) -> Standby | None:
    """Return the current or last standby process; None if there was none, or the file cannot be read."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        found = json.loads((folder / OFFER).read_text(encoding="utf-8"))
        return Standby(int(found["pid"]), str(found["started"]), int(found["generation"]), ready=bool(found["ready"]))
    return None


def assign_attempt(folder: Path, standby: Standby, attempt: int) -> bool:
    """Assign an attempt to a standby, at most once; False if another process was faster, or the file cannot be written."""
    try:
        (folder / OFFER).rename(folder / f"{OFFER}.{standby.pid}")
        (folder / f"{OFFER}.{standby.pid}").unlink()
        _write(folder / ORDER, {"pid": standby.pid, "started": standby.started, "attempt": attempt})
    except OSError:
        return False
    return True


def assigned_attempt(folder: Path, standby: Standby) -> int | None:
    """Return the attempt that was assigned to a standby, None before that."""
    try:
        found = json.loads((folder / ORDER).read_text(encoding="utf-8"))
        return int(found["attempt"]) if (found["pid"], found["started"]) == (standby.pid, standby.started) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, fields: dict[str, object]) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(fields), encoding="utf-8")
    temporary.replace(path)
