"""Interrupts of a run: the main thread only waits, so that none of them breaks into a call to the JVM.

An exception that a signal's handler raises within such a call leaves the answer unread on the thread's connection, and every
later call of that thread then gets the answer of an earlier one.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from pyspark import InheritableThread

if TYPE_CHECKING:
    from types import FrameType

logger = logging.getLogger("tidemark")

Value = TypeVar("Value")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_POLL_SECONDS = 0.2
"""A signal that comes to another thread than the main one does not wake it, so it looks up now and then."""


@dataclass(frozen=True)
class _Outcome(Generic[Value]):
    values: tuple[Value, ...] = ()
    error: BaseException | None = None


def run_interruptibly(work: Callable[[], Value], stopping: threading.Event, *, handle_signals: bool) -> Value:
    """Do a run's work and return its value; in the main thread, wait for a thread of its own that does it.

    Whatever is raised into the wait the first time sets ``stopping`` and is raised on when the work has ended; a second one is
    raised at once, and the work is left to end by itself (a process that ends then still waits for Spark jobs at hand). Outside
    the main thread nothing can interrupt, so the work is done here.

    Args:
        work: what the run does; ends soon after ``stopping`` is set.
        stopping: asks the work to stop.
        handle_signals: let SIGINT and SIGTERM ask for a stop instead of raising; a second one of them raises KeyboardInterrupt.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    finished: queue.SimpleQueue[_Outcome[Value]] = queue.SimpleQueue()

    def apart() -> None:
        try:
            finished.put(_Outcome((work(),)))
        except BaseException as error:  # noqa: BLE001  # raised in the thread that waits
            finished.put(_Outcome(error=error))

    with _stop_on_signals(stopping, wanted=handle_signals) as asked:
        outcome = _wait_for(apart, finished, stopping, asked)
    if outcome.error is not None:
        raise outcome.error
    return outcome.values[0]


def _wait_for(
    apart: Callable[[], None], finished: queue.SimpleQueue[_Outcome[Value]], stopping: threading.Event, asked: threading.Event
) -> _Outcome[Value]:
    started = False
    try:
        with _deferring_signals():
            InheritableThread(apart, name="tidemark-run", daemon=True).start()
            started = True
        return _taken(finished)
    except BaseException:
        if not started or asked.is_set():
            raise
        stopping.set()
        logger.info("interrupted: stopping after the epoch at hand")
        error = _taken(finished).error
        if error is not None:
            logger.warning("the run failed while it was to stop: %s", error)
        raise


def _taken(finished: queue.SimpleQueue[_Outcome[Value]]) -> _Outcome[Value]:
    # Not Thread.join: an exception that is raised into it makes Python take the thread for ended.
    while True:
        with contextlib.suppress(queue.Empty):
            return finished.get(timeout=_POLL_SECONDS)


@contextlib.contextmanager
def _stop_on_signals(stopping: threading.Event, *, wanted: bool) -> Iterator[threading.Event]:
    """Let SIGINT and SIGTERM ask for a stop; the event is set once one of them has, and a second one interrupts at once."""
    asked = threading.Event()
    if not wanted:
        yield asked
        return

    def ask(number: int, _frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        logger.info("%s: stopping after the epoch at hand", signal.Signals(number).name)
        asked.set()
        stopping.set()

    with _handled_by(ask):
        yield asked


@contextlib.contextmanager
def _deferring_signals() -> Iterator[None]:
    """Let no signal raise within the block, which calls the JVM; those that come are handled at its end."""
    came: list[int] = []
    with _handled_by(lambda number, _frame: came.append(number)):
        yield
    for number in dict.fromkeys(came):
        signal.raise_signal(number)


@contextlib.contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    # None: a handler that was not set from Python, and could not be set again from here.
    before = {number: earlier for number in _SIGNALS if (earlier := signal.getsignal(number)) is not None}
    try:
        for number in before:
            signal.signal(number, handler)
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
