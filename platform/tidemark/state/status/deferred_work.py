"""Background work that is deferred until its cause is fixed: shown with the job until then, and logged once a day."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from tidemark.clock import Clock
from tidemark.errors import FencedError, TidemarkError

logger = logging.getLogger("tidemark")

LOGGED_AGAIN_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True)
class Deferred:
    """Deferred work: what, why, since when, and when that was last logged; times are milliseconds."""

    work: str
    why: str
    since: int
    logged_at: int


class DeferredWork:
    """Keeps deferred work, by its name.

    Args:
        clock: the time.
        known: the previous driver's deferred work, so that a restart does not log it again.
    """

    def __init__(self, clock: Clock, known: Iterable[Deferred] = ()) -> None:
        self._clock = clock
        self._known = {item.work: item for item in known}

    @property
    def all(self) -> tuple[Deferred, ...]:
        """All deferred work, by name."""
        return tuple(item for _, item in sorted(self._known.items()))

    @contextmanager
    def deferring_failures(self, work: str) -> Iterator[None]:
        """Do work that can wait: a transient error is logged, any other is recorded until the work succeeds.

        Raises:
            FencedError: a newer driver has begun, which does the work.
        """
        try:
            yield
        except FencedError:
            raise
        except TidemarkError as error:
            if error.transient:
                logger.warning("%s is put off: %s", work, error)
            else:
                self._defer(work, str(error))
        else:
            self._known.pop(work, None)

    def _defer(self, work: str, why: str) -> None:
        now, known = self._clock.now_ms(), self._known.get(work)
        if known is not None and known.why == why and 0 <= now - known.logged_at < LOGGED_AGAIN_MS:
            return
        logger.warning("%s is put off until this is fixed: %s", work, why)
        since = Deferred(work, why, now, now) if known is None else known
        self._known[work] = replace(since, why=why, logged_at=now)
