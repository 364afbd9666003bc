"""Requests to a job that no other record names: savepoints taken and disposed of, rewinds, exports. Numbered, each created once.

Changes of its spec are generations, and upgrades have their steps; ``tidemark history JOB --changes`` shows all of them in one list.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Final

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.model.paths import REQUESTS, number_in, numbered
from tidemark.errors import SpecConflictError, TidemarkError
from tidemark.state.encoding.free_text import require_no_secret
from tidemark.state.store.documents import create_document, read_intact_document
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore

KIND: Final = "request"
KEPT_REQUESTS: Final = 200
_TRIES: Final = 50
_TIDY_EVERY: Final = 10


@dataclass(frozen=True)
class LoggedRequest:
    """One request: when it was made (milliseconds), by whom, what was requested, and the reason."""

    number: int
    at: int
    by: str
    what: str
    why: str = ""


def log_request(store: JobStore, job: str, what: str, *, by: str, why: str = "", clock: Clock = SYSTEM_CLOCK) -> LoggedRequest:
    """Record a request, before it is carried out.

    Args:
        store: the root store.
        job: the job's name.
        what: what is requested.
        by: who requests it.
        why: the reason.
        clock: for the time in the record.

    Raises:
        DefinitionError: a text contains a secret.
        SpecConflictError: other processes kept recording requests.
    """
    require_no_secret(job, by=by, why=why, what=what)
    folder = store.at(job_folder(job))
    for _ in range(_TRIES):
        made = LoggedRequest(max(_numbers(folder), default=0) + 1, clock.now_ms(), by, what, why)
        if create_document(folder, numbered(REQUESTS, made.number), kind=KIND, value=made):
            if made.number % _TIDY_EVERY == 0:
                # A failure is made up for by a later request.
                with contextlib.suppress(TidemarkError):
                    folder.delete(numbered(REQUESTS, number) for number in _numbers(folder) if number <= made.number - KEPT_REQUESTS)
            return made
    raise SpecConflictError(f"{_TRIES} other requests were recorded concurrently", fix="retry", job=job)


def read_requests(store: JobStore, job: str, limit: int) -> tuple[LoggedRequest, ...]:
    """Return the newest requests, oldest first; damaged ones are left out, since nothing depends on them. ``store`` is the root store.

    Raises:
        FormatError: a newer release wrote one.
    """
    folder = store.at(job_folder(job))
    found = (
        read_intact_document(folder, numbered(REQUESTS, number), kind=KIND, form=LoggedRequest) for number in _numbers(folder)[-limit:]
    )
    return tuple(request for request in found if request is not None)


def _numbers(folder: JobStore) -> list[int]:
    return sorted(number for file in folder.list(REQUESTS) if (number := number_in(REQUESTS, file.path)) is not None)
