"""Operations that take longer than a request: each runs in a thread of the server, and can be watched until it has ended.

What they do survives the server: requests are records of the job, and rewinds and upgrades are continued as after any crash. Only the
list of operations is lost with it. A thread is a daemon, so that a server that ends does not wait for it.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

from tidemark.clock import Clock
from tidemark.errors import ServerBusyError, TidemarkError
from tidemark.web.api.problems import Problem, problem_of

RUNNING_AT_MOST: Final = 32
KEPT: Final = 200
_PROGRESS_LINES: Final = 100
_log = logging.getLogger("tidemark.web")

OperationState = Literal["running", "succeeded", "failed"]


@dataclass(frozen=True)
class Operation:
    """An operation on a job. Times are milliseconds; ``progress`` are its newest steps as text, oldest first.

    ``result`` is what it did, once it has succeeded; ``error`` why it has failed.
    """

    id: str
    job: str
    action: str
    by: str
    begun_at: int
    state: OperationState = "running"
    progress: tuple[str, ...] = ()
    ended_at: int | None = None
    result: object = None
    error: Problem | None = None


Report = Callable[[str], None]
Work = Callable[[Report], object]
"""Does the work of an operation, reports steps as text, and returns the result as plain JSON; raises what goes wrong."""


class Operations:
    """The operations of this server, the running ones and the newest ended ones.

    Args:
        clock: processing time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, Operation] = {}

    def begin(self, job: str, action: str, by: str, work: Work) -> Operation:
        """Begin an operation in a thread, and return it as it began.

        Raises:
            ServerBusyError: too many run already; nothing was begun.
        """
        with self._lock:
            self._require_room(job)
            made = Operation(secrets.token_hex(8), job, action, by, self._clock.now_ms())
            self._known[made.id] = made
            ended = [known.id for known in self._known.values() if known.state != "running"]
            for old in ended[: max(0, len(self._known) - KEPT)]:
                del self._known[old]
        threading.Thread(target=self._run, args=(made.id, work), name=f"tidemark-{action}-{job}", daemon=True).start()
        return made

    def require_room(self, job: str) -> None:
        """Raise if no further operation can begin; called before anything is written for one.

        Raises:
            ServerBusyError: too many run already.
        """
        with self._lock:
            self._require_room(job)

    def of_job(self, job: str) -> tuple[Operation, ...]:
        """Return a job's operations, oldest first."""
        with self._lock:
            return tuple(known for known in self._known.values() if known.job == job)

    def find(self, job: str, name: str) -> Operation | None:
        """Return an operation of a job, None for an unknown one."""
        with self._lock:
            found = self._known.get(name)
        return found if found is not None and found.job == job else None

    def _require_room(self, job: str) -> None:
        if sum(known.state == "running" for known in self._known.values()) >= RUNNING_AT_MOST:
            raise ServerBusyError(f"{RUNNING_AT_MOST} operations run already", fix="wait until one has ended", job=job)

    def _run(self, name: str, work: Work) -> None:
        try:
            result = work(lambda text: self._report(name, text))
        except TidemarkError as error:
            self._end(name, state="failed", error=problem_of(error))
        except Exception as error:  # noqa: BLE001 - a thread has no caller that could handle it
            # The client gets the kind of error, as with a request; the text, which may hold anything, goes to the log.
            _log.exception("operation %s failed", name)
            unexpected = TidemarkError(f"an unexpected error, {type(error).__name__}", fix="see the server's log")
            self._end(name, state="failed", error=problem_of(unexpected))
        else:
            self._end(name, state="succeeded", result=result)

    def _report(self, name: str, text: str) -> None:
        with self._lock:
            known = self._known[name]
            self._known[name] = replace(known, progress=(*known.progress, text)[-_PROGRESS_LINES:])

    def _end(self, name: str, *, state: OperationState, result: object = None, error: Problem | None = None) -> None:
        with self._lock:
            self._known[name] = replace(self._known[name], state=state, result=result, error=error, ended_at=self._clock.now_ms())
