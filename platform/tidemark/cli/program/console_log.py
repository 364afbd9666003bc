"""The log of a command on standard error, without credentials: what other libraries say in it goes to terminals and to CI."""

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
    """Send the log of this process to standard error; where it has a handler already, that one is left alone."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ConsoleLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
