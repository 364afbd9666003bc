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
    """Let SIGTERM and SIGINT request an end, also before the run starts.

    SIGTERM may come repeatedly: a reconciler that does not know whether its predecessor sent it sends it again, and a driver that is
    ending ignores it. A second SIGINT, from a user at a terminal, interrupts at once.
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
