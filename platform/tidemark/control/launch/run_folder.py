"""Where a job's drivers keep files on the machine that runs them: logs, how they ended, and what Spark needs while it runs."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemark.control.launch.logs import LOG, OUT
from tidemark.state.status.log_folder import log_folder

ENDED: Final = "driver.exit"


@dataclass(frozen=True)
class RunFolder:
    """The files of one job's drivers on this machine, one driver after the other."""

    logs: Path
    scratch: Path

    @property
    def log(self) -> Path:
        """The driver's log."""
        return self.logs / LOG

    @property
    def out(self) -> Path:
        """What the driver's process and its JVM print."""
        return self.logs / OUT

    def scratch_of(self, attempt: int) -> Path:
        """Return an empty folder for an attempt's temporary files; those of earlier ones, which were killed perhaps, go.

        Raises:
            OSError: it cannot be made, or somebody else made the folder that all of this user's lie in.
        """
        own = self.scratch.parents[1]
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        if own.is_symlink() or own.stat().st_uid != os.getuid():
            raise PermissionError(f"{own} belongs to another user")
        shutil.rmtree(self.scratch, ignore_errors=True)
        folder = self.scratch / f"attempt-{attempt}"
        folder.mkdir(parents=True, mode=0o700)
        return folder


def run_folder(store_uri: str, job: str, logs: Path | None = None) -> RunFolder:
    """Return the folder of a job's drivers, the same for all processes of this user.

    Args:
        store_uri: of the root store; jobs of one name in two stores are two jobs.
        job: the job's name.
        logs: where logs are kept; else ``$TIDEMARK_LOGS``, or the user's folder for state.
    """
    store = hashlib.sha256(store_uri.encode()).hexdigest()[:8]
    scratch = Path(tempfile.gettempdir(), f"tidemark-{os.getuid()}", store, job)
    return RunFolder((logs or log_folder()).absolute() / store / job, scratch)


def write_ending(log: Path, *, pid: int, started: str, code: int) -> None:
    """Write down what a process ended with, beside its log."""
    temporary = log.with_name(f"{ENDED}.{os.getpid()}")
    temporary.write_text(json.dumps({"pid": pid, "started": started, "code": code}), encoding="utf-8")
    temporary.replace(log.with_name(ENDED))


def read_ending(log: Path, *, pid: int, started: str) -> int | None:
    """Return what a process ended with, None where nobody took note."""
    try:
        found = json.loads(log.with_name(ENDED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    code = found.get("code") if isinstance(found, dict) and (found.get("pid"), found.get("started")) == (pid, started) else None
    return code if type(code) is int else None
