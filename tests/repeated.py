"""Work that goes on in a thread while a block of a test runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeated(work: Callable[[], object], *, every: float) -> Iterator[None]:
    """Do some work again and again, every so many seconds, while the block runs; the first time after that long."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(every):
            work()

    thread = threading.Thread(target=run, name="repeated", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
