"""Uncaught errors, as in a script that calls ``tm.run``: one line on standard error, and all traces in a log."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final

from tidemark.errors import TidemarkError
from tidemark.state.encoding.redaction import redacted

Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]

_LOGS: Final[list[Callable[[], Path]]] = []
"""Functions that return the file for traces, the newest last."""


def in_one_line(log: Callable[[], Path]) -> None:
    """Make this process print one line where an uncaught Tidemark error ends it, and write the traces to a log.

    Args:
        log: returns the file for traces, such as the session's log; called when there are some.
    """
    if not _LOGS:
        sys.excepthook = _line_or(sys.excepthook)
    _LOGS.append(log)


def _line_or(before: Hook) -> Hook:
    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, TidemarkError):
            before(kind, error, trace)
            return
        place = ""
        try:
            log = _LOGS[-1]()
            with log.open("a", encoding="utf-8") as file:
                file.write(redacted("".join(traceback.format_exception(error))))
            place = f"; its traces are in {log}"
        finally:
            sys.stderr.write(f"tidemark: {error}{place}\n")

    return hook
