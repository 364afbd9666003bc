"""What a driver may do about epochs that an output no longer holds: as requested, for one start."""

from __future__ import annotations

from tidemark.control.desired.attempts import attempt_numbers, read_attempt
from tidemark.control.desired.spec_store import read_generation
from tidemark.control.model.driver_starts import reached_first_epoch, read_start
from tidemark.control.model.records import Attempt
from tidemark.control.model.spec import JobSpec
from tidemark.errors import CorruptStoreError
from tidemark.state.log.joblog import newest_epoch
from tidemark.state.log.progress import MissingEpochs
from tidemark.state.store.store import JobStore


def missing_epochs_action(store: JobStore, spec: JobSpec, attempt: Attempt) -> MissingEpochs | None:
    """Return what an attempt's driver may do about missing epochs, None for nothing.

    A request is for a driver that resumes after the epoch it names, and applies to later attempts until one has reached its first epoch.
    Epochs that are missing after that are another loss, which needs another request.

    Args:
        store: the root store.
        spec: the attempt's spec.
        attempt: the driver's attempt.

    Raises:
        CorruptStoreError: the job's log or a spec is damaged.
    """
    request = spec.missing_epochs
    head = newest_epoch(store, spec.job) if request is not None else None
    if request is None or head is None or request.after(head.lineage, head.epoch) is None:
        return None
    return None if _is_used_up(store, spec, attempt) else request.how


def _is_used_up(store: JobStore, spec: JobSpec, attempt: Attempt) -> bool:
    """Return whether an earlier attempt for the same request has reached its first epoch."""
    for number in reversed([number for number in attempt_numbers(store, spec.job) if number < attempt.number]):
        try:
            earlier = read_attempt(store, spec.job, number)
        except CorruptStoreError:
            continue
        if earlier is None or _was_requested_again(store, spec, earlier.generation, attempt.generation):
            return False
        if reached_first_epoch(read_start(store, spec.job, number)):
            return True
    return False


def _was_requested_again(store: JobStore, spec: JobSpec, first: int, last: int) -> bool:
    """Return whether a generation in this range requested a start, and not just another setting; such a request replaces this one."""
    for number in range(first, last + 1):
        made = read_generation(store, spec.job, number)
        if made is not None and _start_request(made.spec) != _start_request(spec):
            return True
    return False


def _start_request(spec: JobSpec) -> tuple[object, ...]:
    return spec.missing_epochs, spec.restarts, spec.wanted
