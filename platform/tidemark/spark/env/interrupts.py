"""Interrupts of a run: the main thread only waits, so that none of them interrupts a call to the JVM.

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
"""A signal that is delivered to another thread does not wake the main one, so it polls."""


@dataclass(frozen=True)
class _Outcome(Generic[Value]):
    values: tuple[Value, ...] = ()
    error: BaseException | None = None


def run_interruptibly(work: Callable[[], Value], stopping: threading.Event, *, handle_signals: bool) -> Value:
    """Do a run's work and return its value; when called in the main thread, do it in another thread and wait.

    The first exception raised into the wait sets ``stopping`` and is raised again when the work has ended; a second one is raised at
    once, and the work is left to end by itself (a process that ends then still waits for running Spark jobs). Outside the main thread
    nothing can interrupt, so the work is done in the calling thread.

    Args:
        work: the run; ends soon after ``stopping`` is set.
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
        logger.info("interrupted: stopping after the current epoch")
        error = _taken(finished).error
        if error is not None:
            logger.warning("the run failed while it was stopping: %s", error)
        raise


def _taken(finished: queue.SimpleQueue[_Outcome[Value]]) -> _Outcome[Value]:
    # Not Thread.join: an exception raised into it makes Python consider the thread ended.
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
            logger.warning("interrupted again: ending at once; the next run finishes the epoch, or does it again")
            raise KeyboardInterrupt
        logger.info("%s: stopping after the current epoch; a second signal ends it at once", signal.Signals(number).name)
        asked.set()
        stopping.set()

    with _handled_by(ask):
        yield asked


@contextlib.contextmanager
def _deferring_signals() -> Iterator[None]:
    """Defer signals within the block, which calls the JVM, to its end."""
    came: list[int] = []
    with _handled_by(lambda number, _frame: came.append(number)):
        yield
    for number in dict.fromkeys(came):
        signal.raise_signal(number)


@contextlib.contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    # None: a handler that was not set from Python, and cannot be restored from here.
    before = {number: earlier for number in _SIGNALS if (earlier := signal.getsignal(number)) is not None}
    try:
        for number in before:
            signal.signal(number, handler)
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
