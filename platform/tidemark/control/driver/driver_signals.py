"""Signals that ask a driver to end: from its reconciler, its machine's init system, or a user at a terminal."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidemark.control.driver.spec_watch import SpecWatch

if TYPE_CHECKING:
    from types import FrameType

logger = logging.getLogger("tidemark")


@contextmanager
def stop_on_signals(watch: SpecWatch) -> Iterator[None]:
    """Let SIGTERM and SIGINT ask for an end, also while nothing runs yet.

    SIGTERM may come again and again: a reconciler that does not know whether the one before it sent it sends it, and a driver that
    ends has nothing to add. A second SIGINT is from a user at a terminal who does not want to wait.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    came: set[int] = set()

    def ask(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and number in came:
            raise KeyboardInterrupt
        if not watch.stopping.is_set():
            logger.info("%s: stopping after the current epoch", signal.Signals(number).name)
        came.add(number)
        watch.stopping.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
