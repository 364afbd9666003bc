"""The log of a command on standard error, without credentials: other libraries' lines in it reach terminals and CI, too."""

from __future__ import annotations

import logging
import sys

from tidemark.state.encoding.redaction import redacted


class ConsoleLines(logging.Formatter):
    """Writes records as lines with their time, tracebacks after them, without credentials."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        return redacted(super().format(record))


def log_to_console() -> None:
    """Send the log of this process to standard error, unless it has a handler already."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ConsoleLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
