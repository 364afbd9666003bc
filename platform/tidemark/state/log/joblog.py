"""The job log: one sequence of records, each put at the next slot if absent. It alone decides what is committed.

A driver begins a *term* by appending a term record. From then on an older driver finds its next slot taken and stops.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.crashpoints import crash_point
from tidemark.errors import CorruptStoreError, FencedError, FormatError, StateMismatchError, StoreError, TidemarkError
from tidemark.state.encoding.codec import from_jsonable, to_jsonable
from tidemark.state.encoding.envelope import damaged, decode_envelope, encode_envelope
from tidemark.state.log.driver_activity import DriverActivity
from tidemark.state.log.epoch_codec import KIND as EPOCH
from tidemark.state.log.epoch_codec import NO_SEGMENTS, DecodedEpoch, KnownSegments, Segment, encode_epoch, read_body
from tidemark.state.log.heartbeat import TAKE_OVER, Heartbeat, is_fresh, read_heartbeat, running_error, sign_of_life, write_heartbeat
from tidemark.state.log.records import EpochRecord, OwnerInfo, TermRecord
from tidemark.state.log.segments import SegmentStore
from tidemark.state.log.slots import Extent, Slots
from tidemark.state.store.layout import job_folder, record_path
from tidemark.state.store.store import JobStore

DEFAULT_LEASE_MS = 30_000
TERM = "term"


@dataclass(frozen=True)
class LogHead:
    """The head of the log.

    ``next_slot`` is the first free slot, ``term`` the newest term (0: none yet), ``epoch`` the newest epoch's record, ``claim``
    the newest term's record if it comes after that epoch. ``bases`` are the segments that the next record builds on, by uid.
    """

    next_slot: int
    term: int
    epoch: EpochRecord | None
    claim: TermRecord | None = None
    bases: Mapping[str, Segment] = field(default_factory=dict)


class JobLog:
    """Reads a job's log and begins drivers' terms. ``store`` is the store at the job's folder, ``job`` the job's name."""

    def __init__(self, store: JobStore, job: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self.store = store
        self.job = job
        self.clock = clock
        self.slots = Slots(store)
        self.segments = SegmentStore(store)

    def load(self) -> LogHead:
        """Return the head; an empty log has ``next_slot`` 0.

        Raises:
            CorruptStoreError: the newest record is damaged, one of its segments is, or records are missing. An older record is
                never used instead, since the effects of the newest may be visible already.
            FormatError: a newer release wrote it.
        """
        # First the heartbeat, then the log: so the log is at least as new as the slot that the heartbeat names.
        beat = read_heartbeat(self.store)
        extent = self.slots.extent()
        if beat is not None and beat.slot >= extent.next_slot:
            raise damaged(f"is missing; the driver of term {beat.term} wrote it", record_path(beat.slot)).with_job(self.job)
        claim: TermRecord | None = None
        for _, record in self._walk(extent):
            if isinstance(record, TermRecord):
                claim = claim or record
            else:
                term = claim.term if claim is not None else record.record.term
                return LogHead(extent.next_slot, term, record.record, claim, record.bases)
        return LogHead(extent.next_slot, claim.term if claim is not None else 0, None, claim)

    def acquire(self, owner: OwnerInfo, *, takeover: bool = False, lease_ms: int = DEFAULT_LEASE_MS, instead: str = TAKE_OVER) -> Driver:
        """Begin a term: append its record and write the first heartbeat.

        Args:
            owner: this process (``process_identity.current_owner()``).
            takeover: begin although another driver is alive; it is fenced.
            lease_ms: how old a heartbeat must be before its driver is considered dead.
            instead: what the caller can do about a live driver, for the error.

        Raises:
            JobRunningError: another driver is alive.
            CorruptStoreError: as ``load``.
        """
        while True:
            beat = read_heartbeat(self.store)
            head = self.load()
            now = self.clock.now_ms()
            alive = sign_of_life(head.term, beat, head.claim)
            if alive is not None and not is_fresh(alive, now_ms=now, lease_ms=lease_ms):
                alive = None
            if alive is not None and not takeover:
                raise running_error(alive, self.job, now_ms=now, lease_ms=lease_ms, instead=instead)
            claim = TermRecord(head.term + 1, owner, now, None if alive is None else alive.term, secrets.token_hex(8))
            if self.slots.append(head.next_slot, encode_envelope(TERM, to_jsonable(claim))):
                crash_point("term-taken")
                driver = Driver(self, claim, head)
                driver.beat()
                return driver
            # Another driver was faster; read again which one.

    def is_driven(self, *, lease_ms: int = DEFAULT_LEASE_MS) -> bool:
        """Return whether a driver must be considered alive, by its heartbeat."""
        beat = read_heartbeat(self.store)
        return beat is not None and is_fresh(beat, now_ms=self.clock.now_ms(), lease_ms=lease_ms)

    def epochs(self) -> Iterator[EpochRecord]:
        """Yield the retained epoch records, newest first, read lazily.

        Raises:
            CorruptStoreError: a record is damaged or missing.
        """
        for _, decoded in self.retained():
            yield decoded.record

    def retained(self) -> Iterator[tuple[int, DecodedEpoch]]:
        """Yield slot and record of the retained epochs, newest first, with the segments they refer to."""
        for slot, record in self._walk(self.slots.extent()):
            if isinstance(record, DecodedEpoch):
                yield slot, record

    def read(self, epoch: int, *, lineage: str | None = None) -> EpochRecord | None:
        """Return the newest retained record of an epoch, of any lineage or of one; None if none is retained."""
        return next((item for item in self.epochs() if item.epoch == epoch and lineage in (None, item.lineage)), None)

    def origin(self) -> str:
        """Return the name of the lineage that begins with this log; the same for all attempts at its first epoch.

        Raises:
            CorruptStoreError: the log's first record is damaged, or retired: then its epochs name their lineage.
        """
        data = self.slots.read(0)
        first = None if data is None else self.decode(0, data)
        if not isinstance(first, TermRecord):
            raise damaged("is not the claim that a log begins with", record_path(0)).with_job(self.job)
        return first.token

    def decode(self, slot: int, data: bytes, *, known: KnownSegments = NO_SEGMENTS) -> TermRecord | DecodedEpoch:
        """Return a slot's record from its bytes.

        Args:
            slot: the slot.
            data: the bytes.
            known: decoded segments, which are not read again.

        Raises:
            CorruptStoreError: it, or one of its segments, is damaged, or belongs to another job.
            FormatError: a newer release wrote it.
        """
        path = record_path(slot)
        try:
            kind, body = decode_envelope(data, kind=(TERM, EPOCH), path=path)
            if kind == TERM:
                return from_jsonable(TermRecord, body, path=path)
            decoded = read_body(body, path=path, read_segment=self.segments.read, known=known)
            if decoded.record.job != self.job:
                raise damaged(f"belongs to job {decoded.record.job!r}", path)
        except TidemarkError as error:
            raise error.with_job(self.job) from error.__cause__
        return decoded

    def _walk(self, extent: Extent) -> Iterator[tuple[int, TermRecord | DecodedEpoch]]:
        known = NO_SEGMENTS
        for slot in range(extent.next_slot - 1, extent.floor - 1, -1):
            data = self.slots.read(slot)
            if data is None:
                return
            record = self.decode(slot, data, known=known)
            # Epochs in a row mostly build on the same segments.
            known = record.known if isinstance(record, DecodedEpoch) else known
            yield slot, record


def newest_epoch(root: JobStore, job: str) -> EpochRecord | None:
    """Return the newest epoch of a job in a root store, None if the job has committed nothing.

    Raises:
        CorruptStoreError: the job's log is damaged.
    """
    return JobLog(root.at(job_folder(job)), job).load().epoch


class Driver:
    """The right to append, held until another term begins.

    ``head`` is the log's head when the term began: a driver resumes from ``head.epoch``. ``append`` is called by one thread;
    ``beat`` may be called by another; ``activity`` is what the heartbeat reports of the work.
    """

    def __init__(self, log: JobLog, claim: TermRecord, head: LogHead) -> None:
        self.log = log
        self.term = claim.term
        self.owner = claim.owner
        self.head = head
        self.last = head.epoch
        self.activity = DriverActivity(log.clock)
        self._next_slot = head.next_slot + 1
        self._bases = head.bases
        self._epoch_slots: list[int] | None = None
        self._released = False
        self._beating = threading.Lock()

    def append(self, record: EpochRecord) -> None:
        """Commit an epoch: when this returns, it is committed permanently and exactly once.

        Raises:
            FencedError: a newer driver took the slot; nothing of this epoch was committed.
            StateMismatchError: the record does not follow the last one.
            RecordTooLargeError: the record is too large; nothing was committed.
            StoreError: whether it was committed is not known; append the same record again, or begin a new term and see.
        """
        self._check_follows(record)
        data, encoded = encode_epoch(record, self._bases, lambda bytes_: self.log.segments.write(bytes_, term=self.term))
        slot = self._next_slot
        if not self.log.slots.append(slot, data):
            raise self._taken(slot)
        self._bases = encoded.bases
        self.last = encoded.record
        self._next_slot = slot + 1
        if self._epoch_slots is not None:
            self._epoch_slots.append(slot)

    def beat(self) -> None:
        """Write the heartbeat; call it several times per lease.

        Raises:
            FencedError: a newer driver's heartbeat is there.
        """
        self._write_beat(released=False)

    def release(self) -> None:
        """Release the job, so that the next driver need not wait for the lease; does nothing if the driver is fenced."""
        try:
            self._write_beat(released=True)
        except FencedError:
            return

    def confirm(self) -> None:
        """Make sure that no newer driver has begun.

        Raises:
            FencedError: one has.
        """
        extent = self.log.slots.extent()
        if extent.next_slot > self._next_slot or extent.floor >= self._next_slot:
            raise self._taken(self._next_slot)

    def epoch_slots(self) -> tuple[int, ...]:
        """Return the slots of the retained epoch records, oldest first; the first call reads the log."""
        if self._epoch_slots is None:
            self._epoch_slots = [slot for slot in range(self.log.slots.floor(), self._next_slot) if self._holds_epoch(slot)]
        return tuple(self._epoch_slots)

    def forget_below(self, slot: int) -> None:
        """Forget the records below a slot, which retention retired."""
        self._epoch_slots = [kept for kept in self.epoch_slots() if kept >= slot]

    def _holds_epoch(self, slot: int) -> bool:
        data = self.log.slots.read(slot)
        try:
            return data is not None and decode_envelope(data, kind=(TERM, EPOCH), path=record_path(slot))[0] == EPOCH
        except (CorruptStoreError, FormatError):
            return True  # retired in its turn; reading it is what refuses

    def _check_follows(self, record: EpochRecord) -> None:
        last, job = self.last, self.log.job
        expected = None
        if record.job != job or record.term != self.term:
            expected = f"job {job!r}, term {self.term}"
        elif last is not None and record.lineage == last.lineage and record.epoch != last.epoch + 1:
            expected = f"epoch {last.epoch + 1} of lineage {last.lineage!r}"
        elif last is not None and record.lineage != last.lineage and record.parent is None:
            expected = "a parent, since its lineage is a new one"
        if expected is not None:
            raise StateMismatchError(
                f"a record of job {record.job!r}, term {record.term}, lineage {record.lineage!r} was to be appended; "
                f"what follows here is {expected}",
                fix="start the job again, so that it resumes from the head of its log",
                job=job,
                epoch=record.epoch,
            )

    def _write_beat(self, *, released: bool) -> None:
        with self._beating:
            if self._released:
                return
            found = read_heartbeat(self.log.store)
            if found is not None and found.term > self.term:
                raise self._fenced(f"term {found.term}, process {found.owner.pid} on host {found.owner.host!r}")
            activity = DriverActivity() if released else self.activity
            beat = Heartbeat(
                self.term,
                self.owner,
                self.log.clock.now_ms(),
                self._next_slot - 1,
                released,
                busy_since=activity.busy_since,
                looked_at=activity.polled_at,
                busy_ms=activity.busy_ms,
            )
            write_heartbeat(self.log.store, beat)
            self._released = released

    def _taken(self, slot: int) -> TidemarkError:
        data = self.log.slots.read(slot)
        record = self.log.decode(slot, data) if data is not None else None
        if isinstance(record, TermRecord):
            return self._fenced(f"term {record.term}, process {record.owner.pid} on host {record.owner.host!r}")
        if record is not None and record.record.term == self.term:
            return StoreError(
                f"slot {slot} of the job log holds an epoch that this driver wrote without learning so",
                fix="start the job again; it resumes after that epoch",
                job=self.log.job,
                epoch=record.record.epoch,
                place=record_path(slot),
            )
        return self._fenced(f"term {record.record.term}" if record is not None else "a newer driver, long ago")

    def _fenced(self, by: str) -> FencedError:
        return FencedError(
            f"the job was taken over by {by}; this driver of term {self.term} may not commit any more",
            fix="let the newer driver run; if it was started by mistake, stop it and start this job again",
            job=self.log.job,
        )
