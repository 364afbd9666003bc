"""Signals that end a program, as an exception, so that a terminal gets its settings and its screen back."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def raising_on_termination() -> Iterator[None]:
    """Raise SystemExit within the context where SIGTERM or SIGHUP would end the process at once; its code is 128 + the signal.

    Signals that are ignored, as SIGHUP under ``nohup``, stay so. Only in the main thread.
    """
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    replaced = {number: handler for number, handler in before.items() if handler is signal.SIG_DFL}
    try:
        for number in replaced:
            signal.signal(number, _end)
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    sys.exit(128 + number)
