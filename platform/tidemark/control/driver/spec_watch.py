"""A driver's eye on what is wanted of it: the newest spec, and whether it is still the one that may run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidemark.control.desired.attempts import require_newest
from tidemark.control.desired.spec_store import read_generation, spec_numbers
from tidemark.control.model.spec import StopMode
from tidemark.errors import FencedError, TidemarkError
from tidemark.state.encoding.redaction import redacted, without_secrets
from tidemark.state.store.store import JobStore

logger = logging.getLogger("tidemark")

POLL_SECONDS = 3.0


class SpecWatch:
    """Reads the newest spec now and then, and asks for an end when it wants one.

    A spec that changes anything but whether the job runs, and how parallel, is not the driver's business: the reconciler starts another
    one for it.

    Args:
        store: the root store.
        job: the job's name.
        attempt: number of the driver's own attempt.
        exit_now: ends the process at once.

    Attributes:
        parallelism: shuffle partitions that the newest known spec asks for; None leaves them to the job.
        stop_mode: how the driver is to end; None while it is to run.
        replaced: the error that says that another attempt has the job now.
        stopping: set when the driver is to end after the current epoch; it may be replaced by a new event.
    """

    def __init__(self, store: JobStore, job: str, attempt: int, *, exit_now: Callable[[], None]) -> None:
        self._store = store
        self._job = job
        self._attempt = attempt
        self._exit_now = exit_now
        self._generation = 0
        self._lock = threading.Lock()
        self.parallelism: int | None = None
        self.stop_mode: StopMode | None = None
        self.replaced: FencedError | None = None
        self.stopping = threading.Event()

    def poll(self) -> None:
        """Look once.

        Raises:
            TidemarkError: the store cannot be reached, or a file in it is damaged.
        """
        try:
            require_newest(self._store, self._job, self._attempt)
        except FencedError as error:
            self.replaced = error
            self.stopping.set()
            return
        with self._lock:
            self._apply_newest()

    def next_parallelism(self) -> int | None:
        """Return the parallelism of the epoch that begins now, as a spec says that was made up to now.

        Costs one look for a file that is not there. Where the store does not answer it is the last one known: the epoch itself will tell.
        """
        try:
            with self._lock:
                if read_generation(self._store, self._job, self._generation + 1) is not None:
                    self._apply_newest()
        except (TidemarkError, OSError) as error:
            logger.warning("%s", error)
        return self.parallelism

    def _apply_newest(self) -> None:
        newest = max(spec_numbers(self._store, self._job), default=0)
        spec = read_generation(self._store, self._job, newest) if newest > self._generation else None
        if spec is None:
            return
        if spec.spec.parallelism != self.parallelism:
            logger.info("generation %d: parallelism %s from the next epoch on", newest, spec.spec.parallelism or "as the job has it")
            self.parallelism = spec.spec.parallelism
        self._generation = newest
        if spec.spec.wanted == "running":
            return
        if spec.spec.stop == "now":
            logger.info("generation %d asks for an end at once: %s", newest, spec.why or spec.by)
            self._exit_now()
        elif self.stop_mode != spec.spec.stop:
            logger.info("generation %d asks for an end (%s): %s", newest, spec.spec.stop, spec.why or spec.by)
            self.stop_mode = spec.spec.stop
            self.stopping.set()

    def drain_event(self) -> threading.Event:
        """Return a new event for the drain that follows; only another wish than to drain sets it."""
        self.stopping = threading.Event()
        if self.stop_mode != "drain" or self.replaced is not None:
            self.stopping.set()
        return self.stopping


@contextmanager
def polling(watch: SpecWatch, *tasks: Callable[[], None], seconds: float = POLL_SECONDS) -> Iterator[None]:
    """Look every few seconds while the block runs, and do beside it what is to be done as often."""
    ended, logged = threading.Event(), set[type[Exception]]()

    def poll_loop() -> None:
        while not ended.wait(seconds):
            for work in (watch.poll, *tasks):
                try:
                    work()
                except (TidemarkError, OSError) as error:
                    logger.warning("%s", error)
                except Exception as error:
                    # Whatever it is: without this thread no change of the spec is seen any more. Its traceback is logged once.
                    place = without_secrets(error) if type(error) not in logged else None
                    logged.add(type(error))
                    text = redacted(f"{type(error).__name__}: {error}")
                    logger.warning("a background task of the driver failed, and is tried again in %g s: %s", seconds, text, exc_info=place)

    thread = threading.Thread(target=poll_loop, name="tidemark-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
