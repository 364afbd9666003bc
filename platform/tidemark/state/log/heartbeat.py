"""The heartbeat of a job's driver: one small file, overwritten, that says who drives the job and was alive when.

It is a courtesy, not a lock: it keeps a second driver from starting by mistake. What keeps two from committing is the log.
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
    """A sign of life: of which term and owner, when (milliseconds), the newest slot it wrote, and whether it gave the job up.

    ``busy_since`` is when the epoch at hand began, None between epochs, and ``busy_ms`` how long that is ago by a clock that nobody sets;
    ``looked_at`` is when Spark last looked for input.
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
    """Return the last heartbeat; None where there is none or it is damaged, for nothing depends on it.

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

    A heartbeat of another term is a fenced driver's that does not know it yet; then the claim itself, if it is at hand, counts.
    """
    if beat is not None and beat.term == term:
        return beat
    if claim is not None and claim.term == term:
        return Heartbeat(term, claim.owner, claim.taken_at, slot=0)
    return None


def is_fresh(beat: Heartbeat, *, now_ms: int, lease_ms: int) -> bool:
    """Say whether the driver must be taken to be alive.

    It is not when it gave the job up, when its process on this host is gone, or when the last sign is a lease old. A sign from
    the future counts by its distance too: clocks of two hosts differ.
    """
    return not beat.released and abs(now_ms - beat.at) < lease_ms and not is_known_dead(beat.owner)


def silent_since(beat: Heartbeat | None, said_at: int, *, now_ms: int, lease_ms: int) -> int | None:
    """Return when a job's driver last gave a sign of life, None where that is less than a lease ago.

    Args:
        beat: its last heartbeat.
        said_at: when it last wrote the status, which it does only when an epoch ends.
        now_ms: the time.
        lease_ms: how long a driver is believed to be alive.
    """
    last = said_at if beat is None else max(said_at, beat.at)
    return last if now_ms - last >= lease_ms else None


TAKE_OVER: Final = "take over on purpose (takeover=True, --takeover)"
"""What else can be done about a driver that is alive, where a run is started; other callers have ways of their own."""


def running_error(beat: Heartbeat, job: str, *, now_ms: int, lease_ms: int, instead: str = TAKE_OVER) -> JobRunningError:
    """Return the error that another driver is alive; it names host, pid and the heartbeat's age, and what else its caller can do."""
    age = short_duration(max(now_ms - beat.at, 0))
    run = f", run {beat.owner.run_id}" if beat.owner.run_id else ""
    return JobRunningError(
        f"the job is driven by process {beat.owner.pid} on host {beat.owner.host!r}{run}; its last heartbeat is {age} old",
        fix=f"stop that process, wait until its heartbeat is {format_duration(lease_ms)} old, or {instead}",
        job=job,
    )
