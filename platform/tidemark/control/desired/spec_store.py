"""The generations of a job's spec: immutable numbered records. The newest one counts."""

from __future__ import annotations

import contextlib
import getpass
import socket
from collections.abc import Callable
from typing import Final

from tidemark.clock import Clock
from tidemark.control.desired.attempts import newest_attempt, read_attempt
from tidemark.control.desired.spec_checks import checked_spec
from tidemark.control.model.paths import SPECS, number_in, numbered
from tidemark.control.model.spec import JobSpec, SpecGeneration
from tidemark.errors import CorruptStoreError, SpecConflictError, TidemarkError, UnknownJobError
from tidemark.savepoints.restore.pending_restores import release_for, retain_for
from tidemark.state.encoding.free_text import require_no_secret
from tidemark.state.store.documents import create_document, read_document
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore

KIND: Final = "spec"
KEPT_GENERATIONS: Final = 100
_TRIES: Final = 50
_TIDY_EVERY: Final = 10


def read_spec(store: JobStore, job: str) -> SpecGeneration | None:
    """Return the newest generation, None for a job that was never submitted. ``store`` is the root store.

    Raises:
        CorruptStoreError: it is damaged; an older one is never used instead.
        FormatError: a newer release wrote it.
    """
    numbers = spec_numbers(store, job)
    return read_generation(store, job, numbers[-1]) if numbers else None


def require_spec(store: JobStore, job: str) -> SpecGeneration:
    """Return the newest generation.

    Raises:
        UnknownJobError: the job was never submitted.
    """
    found = read_spec(store, job)
    if found is None:
        raise UnknownJobError(
            f"no job {job!r} was submitted to {store.uri}", fix="submit it first (`tidemark submit MODULE:JOB`), or pass --store", job=job
        )
    return found


def read_generation(store: JobStore, job: str, generation: int) -> SpecGeneration | None:
    """Return one generation, None where there is none.

    Raises:
        CorruptStoreError: it is damaged.
        FormatError: a newer release wrote it.
    """
    try:
        return read_document(store.at(job_folder(job)), numbered(SPECS, generation), kind=KIND, form=SpecGeneration)
    except CorruptStoreError as error:
        fix = "restore the file from a backup, or delete it: the generation before it then counts again; without one submit the job again"
        raise CorruptStoreError(error.what, fix=fix, job=job, place=error.place) from error


def spec_numbers(store: JobStore, job: str) -> tuple[int, ...]:
    """Return the numbers of a job's generations, oldest first."""
    files = store.at(job_folder(job)).list(SPECS)
    return tuple(sorted(number for file in files if (number := number_in(SPECS, file.path)) is not None))


def read_generations(store: JobStore, job: str, limit: int) -> tuple[SpecGeneration, ...]:
    """Return the newest generations, oldest first."""
    found = (read_generation(store, job, number) for number in spec_numbers(store, job)[-limit:])
    return tuple(generation for generation in found if generation is not None)


def change_spec(
    store: JobStore, job: str, change: Callable[[SpecGeneration | None], JobSpec], *, by: str, why: str, clock: Clock
) -> SpecGeneration:
    """Write a new generation and return it; if nothing changes, return the newest one.

    Args:
        store: the root store.
        job: the job's name.
        change: returns the new spec from the newest generation, or raises. It is called again if another process wrote a generation
            in between, so that it always sees the newest one.
        by: who requests it.
        why: the reason.
        clock: for the time in the record.

    Raises:
        DefinitionError: the spec is invalid, or ``by`` or ``why`` contains a secret.
        SpecConflictError: other processes kept changing the spec.
    """
    require_no_secret(job, by=by, why=why)
    folder = store.at(job_folder(job))
    for _ in range(_TRIES):
        newest = read_spec(store, job)
        spec = checked_spec(change(newest), newest.spec if newest is not None else None)
        if newest is not None and spec == newest.spec:
            return newest
        made = SpecGeneration(newest.generation + 1 if newest is not None else 1, clock.now_ms(), by, why, spec)
        before = newest.spec.restore if newest is not None else None
        if spec.restore is not None and spec.restore != before:
            retain_for(store, job, spec.restore, clock=clock)
        if create_document(folder, numbered(SPECS, made.generation), kind=KIND, value=made):
            # Cleaning up: a failure does not affect the new generation, and a later change retries it.
            with contextlib.suppress(TidemarkError):
                if before is not None and before != spec.restore:
                    release_for(store, job, before)
                if made.generation % _TIDY_EVERY == 0:
                    _delete_old(store, job, below=made.generation - KEPT_GENERATIONS + 1)
            return made
    raise SpecConflictError(
        f"the spec changed concurrently {_TRIES} times", fix=f"retry; `tidemark history {job} --changes` shows who is changing it", job=job
    )


def _delete_old(store: JobStore, job: str, *, below: int) -> None:
    """Delete the generations below a number, except that of the newest attempt, whose driver may still run."""
    number = newest_attempt(store, job)
    attempt = read_attempt(store, job, number) if number else None
    used = attempt.generation if attempt is not None else 0
    old = [generation for generation in spec_numbers(store, job) if generation < below and generation != used]
    store.at(job_folder(job)).delete(numbered(SPECS, generation) for generation in old)


def current_user() -> str:
    """Return the user of this process, as ``user@host``."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
