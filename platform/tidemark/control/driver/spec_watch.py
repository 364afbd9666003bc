"""Watches the newest spec for a driver, and whether the driver's attempt is still the newest."""

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
    """Polls the newest spec, and requests the driver's end when the spec does.

    A driver applies only changes of the desired state, the parallelism and the intake; for others the reconciler starts a new driver.

    Args:
        store: the root store.
        job: the job's name.
        attempt: number of the driver's own attempt.
        exit_now: ends the process at once.

    Attributes:
        parallelism: shuffle partitions of the newest known spec; None leaves them to the job.
        intake: the share of its usual bounds that an epoch may read, by the newest known spec; None is all of them.
        stop_mode: how the driver is to end; None while it is to run.
        replaced: the error when another attempt has the job now.
        stopping: set when the driver is to end after the current epoch; a new event may replace it.
    """

    def __init__(self, store: JobStore, job: str, attempt: int, *, exit_now: Callable[[], None]) -> None:
        self._store = store
        self._job = job
        self._attempt = attempt
        self._exit_now = exit_now
        self._generation = 0
        self._lock = threading.Lock()
        self.parallelism: int | None = None
        self.intake: float | None = None
        self.stop_mode: StopMode | None = None
        self.replaced: FencedError | None = None
        self.stopping = threading.Event()

    def poll(self) -> None:
        """Read the newest spec once.

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
        """Return the parallelism of the epoch that begins now, by the newest spec.

        Costs one request for a file that does not exist. If the store does not respond, returns the last known one; the epoch itself fails.
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
        self.intake = spec.spec.intake
        self._generation = newest
        if spec.spec.wanted == "running":
            return
        if spec.spec.stop == "now":
            logger.info("generation %d requests an end at once: %s", newest, spec.why or spec.by)
            self._exit_now()
        elif self.stop_mode != spec.spec.stop:
            logger.info("generation %d requests an end (%s): %s", newest, spec.spec.stop, spec.why or spec.by)
            self.stop_mode = spec.spec.stop
            self.stopping.set()

    def drain_event(self) -> threading.Event:
        """Return a new event for the drain that follows; only a request other than to drain sets it."""
        self.stopping = threading.Event()
        if self.stop_mode != "drain" or self.replaced is not None:
            self.stopping.set()
        return self.stopping


@contextmanager
def polling(watch: SpecWatch, *tasks: Callable[[], None], seconds: float = POLL_SECONDS) -> Iterator[None]:
    """Poll the spec every few seconds while the block runs, and call the tasks as often."""
    ended, logged = threading.Event(), set[type[Exception]]()

    def poll_loop() -> None:
        while not ended.wait(seconds):
            for work in (watch.poll, *tasks):
                try:
                    work()
                except (TidemarkError, OSError) as error:
                    logger.warning("%s", error)
                except Exception as error:
                    # Any error: without this thread no change of the spec would be seen. The traceback is logged once per type.
                    place = without_secrets(error) if type(error) not in logged else None
                    logged.add(type(error))
                    text = redacted(f"{type(error).__name__}: {error}")
                    logger.warning("a background task of the driver failed, and is retried in %g s: %s", seconds, text, exc_info=place)

    thread = threading.Thread(target=poll_loop, name="tidemark-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
