"""The folders of a job's drivers on the machine that runs them: logs, exit statuses, and Spark's temporary files."""

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
from tidemark.locations import Location
from tidemark.state.status.log_folder import log_folder

EXIT_FILE: Final = "driver.exit"

SCRATCH: Final = "TIDEMARK_SCRATCH"
"""Variable of a driver: the folder for its temporary files, whatever ``TMPDIR`` the spec sets."""

_STANDBY: Final = "~standby"
"""Suffix of a job's name, which cannot contain it: the folder of the job's standby, beside the job's own."""


@dataclass(frozen=True)
class RunFolder:
    """The files of one job's drivers on this machine."""

    logs: Path
    scratch: Path

    @property
    def log(self) -> Path:
        """The driver's log."""
        return self.logs / LOG

    @property
    def out(self) -> Path:
        """The output of the driver's process and its JVM."""
        return self.logs / OUT

    def new_scratch(self, attempt: int) -> Path:
        """Return an empty folder for an attempt's temporary files; those of earlier attempts, which may have been killed, are deleted.

        Raises:
            OSError: it cannot be created, or another user owns the parent folder of this user's folders.
        """
        self._require_own()
        shutil.rmtree(self.scratch, ignore_errors=True)
        folder = self.scratch / f"attempt-{attempt}"
        folder.mkdir(parents=True, mode=0o700)
        return folder

    def new_standby_scratch(self, attempt: int) -> Path:
        """Return a folder for the standby of an attempt's driver; those of earlier ones are deleted, except this process's own.

        Raises:
            OSError: as for ``new_scratch``.
        """
        self._require_own()
        place, own = self.scratch.with_name(f"{self.scratch.name}{_STANDBY}"), own_scratch()
        for old in place.iterdir() if place.is_dir() else ():
            if old != own:
                shutil.rmtree(old, ignore_errors=True)
        folder = place / f"attempt-{attempt}"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    def _require_own(self) -> None:
        own = self.scratch.parents[1]
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        if own.is_symlink() or own.stat().st_uid != os.getuid():
            raise PermissionError(f"{own} belongs to another user")


def own_scratch() -> Path | None:
    """Return the folder that a launcher set for this process's temporary files; None if no launcher started it."""
    given = os.environ.get(SCRATCH)
    return Path(given) if given else None


def run_folder(store_uri: str, job: str, logs: Path | None = None) -> RunFolder:
    """Return the folder of a job's drivers, the same for all processes of this user.

    Its temporary files are in this process's temporary folder; in a driver, in that of the process that launched it.

    Args:
        store_uri: URI of the root store; jobs of one name in two stores are two jobs.
        job: the job's name.
        logs: where logs are kept; else ``$TIDEMARK_LOGS``, or the user's folder for state.
    """
    # However the store is written: a path that is percent-encoded or not, a bucket with its account or without.
    store = hashlib.sha256(Location.parse(store_uri).uri.encode()).hexdigest()[:8]
    scratch = _temporary() / f"tidemark-{os.getuid()}" / store / job
    return RunFolder((logs or log_folder()).absolute() / store / job, scratch)


def _temporary() -> Path:
    own = own_scratch()
    # <temporary files>/tidemark-<user>/<store>/<job>/<attempt>
    return own.parents[3] if own is not None and len(own.parents) > 3 else Path(tempfile.gettempdir())


def write_exit_status(log: Path, *, pid: int, started: str, code: int, name: str = EXIT_FILE) -> None:
    """Write a process's exit code beside its log; a driver's in the file that ``read_exit_status`` reads."""
    temporary = log.with_name(f"{name}.{os.getpid()}")
    temporary.write_text(json.dumps({"pid": pid, "started": started, "code": code}), encoding="utf-8")
    temporary.replace(log.with_name(name))


def read_exit_status(log: Path, *, pid: int, started: str) -> int | None:
    """Return a process's exit code, None if it was not recorded."""
    try:
        found = json.loads(log.with_name(EXIT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    code = found.get("code") if isinstance(found, dict) and (found.get("pid"), found.get("started")) == (pid, started) else None
    return code if type(code) is int else None
