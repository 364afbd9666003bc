"""The heartbeat of a job's driver: one small file, overwritten, that says which process drives the job and when it was last alive.

It is advisory, not a lock: it keeps a second driver from starting by mistake. The log keeps two drivers from committing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidemark.durations import format_duration, short_duration
from tidemark.errors import CorruptStoreError, JobRunningError
from tidemark.state.encoding.codec import added_field, from_jsonable, to_jsonable
from tidemark.state.encoding.envelope import decode_envelope, encode_envelope
from tidemark.state.log.process_identity import is_known_dead
from tidemark.state.log.records import OwnerInfo, TermRecord
from tidemark.state.store.layout import HEARTBEAT
from tidemark.state.store.store import JobStore

KIND = "heartbeat"


@dataclass(frozen=True)
class Heartbeat:
    """A sign of life: of which term and owner, when (milliseconds), the newest slot it wrote, and whether it released the job.

    ``busy_since`` is when the current epoch began, None between epochs, and ``busy_ms`` how long ago that is by a monotonic clock;
    ``looked_at`` is when Spark last polled for input.
    """

    term: int
    owner: OwnerInfo
    at: int
    slot: int
    released: bool = False
    busy_since: int | None = added_field(None)
    looked_at: int | None = added_field(None)
    busy_ms: int | None = added_field(None)


def write_heartbeat(store: JobStore, beat: Heartbeat) -> None:
    """Write the heartbeat. ``store`` is the store at the job's folder."""
    store.put(HEARTBEAT, encode_envelope(KIND, to_jsonable(beat)))


def read_heartbeat(store: JobStore) -> Heartbeat | None:
    """Return the last heartbeat; None if there is none or it is damaged, since nothing depends on it.

    Raises:
        FormatError: a newer release drives the job.
    """
    try:
        _, body = decode_envelope(store.get(HEARTBEAT), kind=KIND, path=HEARTBEAT)
        return from_jsonable(Heartbeat, body, path=HEARTBEAT)
    except (FileNotFoundError, CorruptStoreError):
        return None


def sign_of_life(term: int, beat: Heartbeat | None, claim: TermRecord | None) -> Heartbeat | None:
    """Return the newest sign of life of a term's driver, None if it has not given any.

    A heartbeat of another term is from a fenced driver that has not noticed yet; then the claim itself, if given, counts.
    """
    if beat is not None and beat.term == term:
        return beat
    if claim is not None and claim.term == term:
        return Heartbeat(term, claim.owner, claim.taken_at, slot=0)
    return None


def is_fresh(beat: Heartbeat, *, now_ms: int, lease_ms: int) -> bool:
    """Return whether the driver must be considered alive.

    It is not if it released the job, if its process on this host has exited, or if the last sign is a lease old. A sign from
    the future counts by its distance too, since clocks of two hosts differ.
    """
    return not beat.released and abs(now_ms - beat.at) < lease_ms and not is_known_dead(beat.owner)


def silent_since(beat: Heartbeat | None, said_at: int, *, now_ms: int, lease_ms: int) -> int | None:
    """Return when a job's driver last gave a sign of life, None if that is less than a lease ago.

    Args:
        beat: its last heartbeat.
        said_at: when it last wrote the status, which it does only when an epoch ends.
        now_ms: the time.
        lease_ms: how long a driver is considered alive after a sign.
    """
    last = said_at if beat is None else max(said_at, beat.at)
    return last if now_ms - last >= lease_ms else None


TAKE_OVER: Final = "take over on purpose (takeover=True, --takeover)"
"""What the user of a run can do about a live driver; other callers name other ways."""


def running_error(beat: Heartbeat, job: str, *, now_ms: int, lease_ms: int, instead: str = TAKE_OVER) -> JobRunningError:
    """Return the error that another driver is alive; it names host, pid and the heartbeat's age, and what the caller can do."""
    age = short_duration(max(now_ms - beat.at, 0))
    run = f", run {beat.owner.run_id}" if beat.owner.run_id else ""
    return JobRunningError(
        f"the job is driven by process {beat.owner.pid} on host {beat.owner.host!r}{run}; its last heartbeat is {age} old",
        fix=f"stop that process, wait until its heartbeat is {format_duration(lease_ms)} old, or {instead}",
        job=job,
    )
