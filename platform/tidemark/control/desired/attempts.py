"""Attempts to run a driver. Two records, each created once, make sure that an attempt is launched once and run once.

Only the process that creates the *attempt* launches it. The launched process creates the attempt's *claim* before anything else, and ends
if there is one. A reconciler that abandons an attempt creates the claim itself: a process that starts late, or twice, finds it taken. So
at any time at most one known process may run it.
"""

from __future__ import annotations

from typing import Final

from tidemark.control.model.paths import ATTEMPTS, CLAIMS, STARTS, WARNINGS, number_in, numbered
from tidemark.control.model.records import Attempt, Claim, ProcessHandle
from tidemark.errors import FencedError
from tidemark.state.store.documents import create_document, read_document
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore

ATTEMPT: Final = "attempt"
CLAIM: Final = "claim"


def create_attempt(store: JobStore, job: str, attempt: Attempt) -> bool:
    """Create an attempt; False if another process did. ``store`` is the root store."""
    return create_document(store.at(job_folder(job)), numbered(ATTEMPTS, attempt.number), kind=ATTEMPT, value=attempt)


def read_attempt(store: JobStore, job: str, number: int) -> Attempt | None:
    """Return an attempt, None where there is none."""
    return read_document(store.at(job_folder(job)), numbered(ATTEMPTS, number), kind=ATTEMPT, form=Attempt)


def read_claim(store: JobStore, job: str, number: int) -> Claim | None:
    """Return the claim of an attempt, None where there is none yet."""
    return read_document(store.at(job_folder(job)), numbered(CLAIMS, number), kind=CLAIM, form=Claim)


def newest_attempt(store: JobStore, job: str) -> int:
    """Return the number of the newest attempt, 0 before the first."""
    return max(attempt_numbers(store, job), default=0)


def attempt_numbers(store: JobStore, job: str) -> tuple[int, ...]:
    """Return the numbers of the attempts that are kept, oldest first."""
    files = store.at(job_folder(job)).list(ATTEMPTS)
    return tuple(sorted(number for file in files if (number := number_in(ATTEMPTS, file.path)) is not None))


def claim_attempt(store: JobStore, job: str, number: int, *, process: ProcessHandle, at: int) -> Attempt:
    """Claim an attempt for this process; a driver calls it once, before anything else.

    Args:
        store: the root store.
        job: the job's name.
        number: of the attempt.
        process: this process.
        at: processing time, milliseconds.

    Raises:
        FencedError: another process has the attempt, it was abandoned, or there is a newer one.
    """
    by = f"process {process.pid} on host {process.host!r}"
    folder = store.at(job_folder(job))
    if not create_document(folder, numbered(CLAIMS, number), kind=CLAIM, value=Claim(number, at, by, process)):
        claim = read_claim(store, job, number)
        raise _not_ours(job, number, f"belongs to {claim.by}" if claim and claim.process else "was abandoned before its process started")
    require_newest(store, job, number)
    attempt = read_attempt(store, job, number)
    if attempt is None:
        raise _not_ours(job, number, "has no record")
    return attempt


def require_newest(store: JobStore, job: str, number: int) -> None:
    """Raise if a newer attempt was created.

    Raises:
        FencedError: a newer attempt exists; this attempt's driver must end.
    """
    newest = newest_attempt(store, job)
    if newest > number:
        raise _not_ours(job, number, f"was replaced by attempt {newest}")


def abandon_attempt(store: JobStore, job: str, number: int, *, by: str, at: int) -> bool:
    """Make sure that no process will ever run an attempt; False if one claimed it before."""
    folder = store.at(job_folder(job))
    if create_document(folder, numbered(CLAIMS, number), kind=CLAIM, value=Claim(number, at, by)):
        return True
    claim = read_claim(store, job, number)
    return claim is not None and claim.process is None


def delete_attempts(store: JobStore, job: str, below: int) -> None:
    """Delete the records of attempts below a number."""
    folder = store.at(job_folder(job))
    old = [
        file.path
        for kind in (ATTEMPTS, CLAIMS, STARTS, WARNINGS)
        for file in folder.list(kind)
        if (number := number_in(kind, file.path)) is not None and number < below
    ]
    folder.delete(old)


def _not_ours(job: str, number: int, what: str) -> FencedError:
    return FencedError(
        f"attempt {number} {what}, so this process may not run it",
        fix="let the control plane start drivers; `tidemark status` shows which one has the job",
        job=job,
    )
