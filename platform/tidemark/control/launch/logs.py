"""A driver's log: text or JSON lines with job, lineage and epoch, in files of bounded size."""

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
"""The output of the process and its JVM, beside the log."""

FORMAT_VARIABLE: Final = "TIDEMARK_LOG_FORMAT"
LogFormat = Literal["text", "json"]

LOG_BYTES: Final = 10 * 1024 * 1024
LOG_FILES: Final = 5
OUT_BYTES: Final = 10 * 1024 * 1024
OUT_FILES: Final = 3


class JobLogFormatter(logging.Formatter):
    """Formats log records as text or JSON lines; JSON lines have job, lineage and epoch.

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
        """Set the newest committed epoch, for the lines that follow."""
        self._lineage, self._epoch = progress.lineage, progress.epoch

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line, in text format followed by the traceback; without credentials."""
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
        path: path of the file; None for standard error, such as on a cluster, which keeps its drivers' output.
        lines: the formatter.
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
    # At INFO it logs every call between Python and the JVM.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    return handler


def log_format() -> LogFormat:
    """Return the log format that ``TIDEMARK_LOG_FORMAT`` sets."""
    return "json" if os.environ.get(FORMAT_VARIABLE, "").lower() == "json" else "text"


def rotate(path: Path, files: int = OUT_FILES) -> None:
    """Rotate a file: earlier ones are kept as ``.1``, ``.2``, …; no process may still write to it."""
    for number in range(files - 1, 0, -1):
        older = path.with_name(f"{path.name}.{number - 1}" if number > 1 else path.name)
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number}"))


def limit_size(path: Path, limit: int = OUT_BYTES) -> None:
    """Copy and truncate a file that has grown too large, while processes keep appending to it.

    Lines written between copy and truncation are lost; it is the JVM's output, not the log. A symbolic link is left alone, since its
    target may belong to others.
    """
    if path.exists() and not path.is_symlink() and path.stat().st_size > limit:
        copy = path.with_name(f"{path.name}.1.{os.getpid()}")
        shutil.copyfile(path, copy)
        copy.replace(path.with_name(f"{path.name}.1"))
        os.truncate(path, 0)


def tail(path: Path, lines: int) -> tuple[str, ...]:
    """Return the last lines of a file, oldest first; none if it cannot be read."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return tuple(line.rstrip("\n") for line in deque(file, maxlen=max(lines, 0)))
    except OSError:
        return ()
