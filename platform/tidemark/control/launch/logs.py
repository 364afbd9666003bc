"""A driver's log: lines for people or JSON, with job, lineage and epoch, in files that stay bounded however long it runs."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
from collections import deque
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final, Literal

from tidemark.clock import format_ms
from tidemark.errors import TidemarkError
from tidemark.state.encoding.redaction import redacted
from tidemark.state.log.progress import EpochProgress

LOG: Final = "driver.log"
OUT: Final = "driver.out"
"""What the process and its JVM print, beside the log."""

FORMAT_VARIABLE: Final = "TIDEMARK_LOG_FORMAT"
LogFormat = Literal["text", "json"]

LOG_BYTES: Final = 10 * 1024 * 1024
LOG_FILES: Final = 5
OUT_BYTES: Final = 10 * 1024 * 1024
OUT_FILES: Final = 3


class JobLogFormatter(logging.Formatter):
    """Writes records as lines that say which job they are of, and how far it was.

    Args:
        job: the job's name.
        form: ``json`` writes one object per line.
    """

    def __init__(self, job: str, form: LogFormat = "text") -> None:
        super().__init__()
        self._job = job
        self._json = form == "json"
        self._lineage = ""
        self._epoch: int | None = None

    def after_epoch(self, progress: EpochProgress) -> None:
        """Take note of the newest committed epoch."""
        self._lineage, self._epoch = progress.lineage, progress.epoch

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line, with the traceback's after it where lines are for people; without credentials."""
        at = format_ms(int(record.created * 1000))
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        if not self._json:
            return redacted(f"{at} {record.levelname:<7} {record.getMessage()}" + (f"\n{trace}" if trace else ""))
        error = record.exc_info[1] if record.exc_info else None
        fields = {
            "at": at,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(record.getMessage()),
            "job": self._job,
            "lineage": self._lineage or None,
            "epoch": self._epoch,
            "thread": record.threadName,
            "code": error.code if isinstance(error, TidemarkError) else None,
            "error": redacted(trace) or None,
        }
        return json.dumps({name: value for name, value in fields.items() if value is not None}, ensure_ascii=False)


def log_to(path: Path | None, lines: JobLogFormatter) -> logging.Handler:
    """Send the log of this process to a file that is rotated, or to standard error.

    Args:
        path: of the file; None for standard error, as where a cluster keeps what its drivers print.
        lines: how records are written.
    """
    handler: logging.Handler
    if path is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=LOG_FILES - 1, encoding="utf-8")
    handler.setFormatter(lines)
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    root.addHandler(handler)
    # It tells of every call between Python and the JVM.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    return handler


def log_format() -> LogFormat:
    """Return the form of lines that the environment asks for."""
    return "json" if os.environ.get(FORMAT_VARIABLE, "").lower() == "json" else "text"


def rotate(path: Path, files: int = OUT_FILES) -> None:
    """Make room for a new file, and keep the ones before as ``.1``, ``.2``, …; nobody writes to it any more."""
    for number in range(files - 1, 0, -1):
        older = path.with_name(f"{path.name}.{number - 1}" if number > 1 else path.name)
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number}"))


def limit_size(path: Path, limit: int = OUT_BYTES) -> None:
    """Empty a file that has grown too large, after a copy, while processes go on appending to it.

    What they write between the copy and the emptying is lost; it is what a JVM prints, not the log. A symbolic link is left: what it leads
    to is not ours to empty.
    """
    if path.exists() and not path.is_symlink() and path.stat().st_size > limit:
        copy = path.with_name(f"{path.name}.1.{os.getpid()}")
        shutil.copyfile(path, copy)
        copy.replace(path.with_name(f"{path.name}.1"))
        os.truncate(path, 0)


def tail(path: Path, lines: int) -> tuple[str, ...]:
    """Return the last lines of a file that can be read, oldest first; none of one that cannot."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return tuple(line.rstrip("\n") for line in deque(file, maxlen=max(lines, 0)))
    except OSError:
        return ()
