"""Pins: epochs that retention does not expire. Each holds a copy of its record, so the log itself stays one contiguous run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from tidemark.crashpoints import crash_point
from tidemark.errors import CorruptStoreError, NotRetainedError, TakenNameError, TidemarkError, UnknownSavepointError
from tidemark.state.encoding.codec import added_field, from_jsonable
from tidemark.state.encoding.envelope import damaged, decode_envelope
from tidemark.state.log.epoch_codec import KIND as EPOCH
from tidemark.state.log.epoch_codec import NO_SEGMENTS, DecodedEpoch, KnownSegments, decode_epoch
from tidemark.state.log.joblog import TERM, JobLog
from tidemark.state.log.records import EpochRecord
from tidemark.state.store.documents import create_document
from tidemark.state.store.layout import PINS, pin_path, record_path

KIND = "pin"
_LISTINGS: Final = 20
_MEND: Final = (
    "restore the file from a backup of the job store; or, if this savepoint is no longer needed, delete it, and a sweep deletes the files "
    "that only it kept; until then no file of the job is swept"
)
_MAX_READ: Final = 16


@dataclass(frozen=True)
class Pin:
    """A name for an epoch; ``pinned_at`` is in milliseconds. ``decoded`` has the record and the segments it needs.

    ``about`` is a savepoint's metadata, as plain JSON; None for a plain pin.
    """

    name: str
    pinned_at: int
    decoded: DecodedEpoch
    about: Mapping[str, object] | None = None

    @property
    def record(self) -> EpochRecord:
        """The pinned epoch's record."""
        return self.decoded.record


@dataclass(frozen=True)
class PinOutline:
    """A pin without the lists of files that its record names: name, when it was made (milliseconds), lineage and epoch of the record."""

    name: str
    pinned_at: int
    lineage: str
    epoch: int
    about: Mapping[str, object] | None = None


@dataclass(frozen=True)
class _PinBody:
    name: str
    pinned_at: int
    record: Mapping[str, object]
    about: Mapping[str, object] | None = added_field(None)


@dataclass(frozen=True)
class _Identity:
    lineage: str
    epoch: int


@dataclass(frozen=True)
class RetainedEpoch:
    """An epoch of the log, with the slot and the bytes of its record."""

    slot: int
    data: bytes
    decoded: DecodedEpoch

    @property
    def record(self) -> EpochRecord:
        """The epoch's record."""
        return self.decoded.record


@dataclass(frozen=True)
class LaterLineages:
    """Lineages of a job that came after an epoch, besides its own; ``all`` says that no others were retired since."""

    names: frozenset[str]
    all: bool = True


@dataclass(frozen=True)
class Pins:
    """The pins of a job, which lie with the files they keep."""

    log: JobLog

    def put(self, name: str, epoch: int, *, lineage: str | None = None) -> Pin:
        """Pin a retained epoch, as ``find`` and ``pin`` do."""
        return self.pin(name, self.find(epoch, lineage=lineage))

    def find(self, epoch: int | None = None, *, lineage: str | None = None) -> RetainedEpoch:
        """Return a retained epoch, the newest by default; of an epoch that several lineages have, the newest one's.

        Raises:
            CorruptStoreError: it is not retained.
            UnknownSavepointError: the newest is wanted, and there is none.
        """
        for slot, data, its_lineage, its_epoch in self._identities():
            if epoch in (None, its_epoch) and lineage in (None, its_lineage):
                decoded = self.log.decode(slot, data)
                if isinstance(decoded, DecodedEpoch):
                    return RetainedEpoch(slot, data, decoded)
        raise self._not_retained(epoch)

    def lineages_after(self, record: EpochRecord) -> LaterLineages:
        """Return the other lineages that the log has after an epoch; all it has, if the epoch is not retained."""
        passed: set[str] = set()
        for _, _, lineage, epoch in self._identities():
            if (lineage, epoch) == (record.lineage, record.epoch):
                return LaterLineages(frozenset(passed - {record.lineage}))
            passed.add(lineage)
        return LaterLineages(frozenset(passed - {record.lineage}), all=False)

    def pin(self, name: str, found: RetainedEpoch, *, about: Mapping[str, object] | None = None) -> Pin:
        """Pin an epoch; when this returns, nothing that it needs will be deleted until the pin is removed.

        Raises:
            InvalidNameError: the name is not allowed, or is taken.
            CorruptStoreError: the epoch was retired while it was being pinned.
        """
        # Its files may be deleted by now; a pin of it would look valid to a process that reads it before it is removed.
        if self.log.slots.floor() > found.slot:
            raise self._not_retained(found.record.epoch)
        self.adopt(name, found.data, about=about)
        # A sweep reads the log first and the pins afterwards. So if the record is still in the log now, any sweep that no
        # longer finds it there will find the pin.
        if self.log.slots.floor() > found.slot:
            self.remove(name)
            raise self._not_retained(found.record.epoch)
        return self.get(name)

    def adopt(self, name: str, data: bytes, *, about: Mapping[str, object] | None = None) -> None:
        """Pin a record that is not of this log; the caller has made sure that its files lie in the job's folder, and are referenced.

        Raises:
            InvalidNameError: the name is not allowed, or is taken.
        """
        path = pin_path(name)
        body = _PinBody(name, self.log.clock.now_ms(), json.loads(data), about)
        # One that existed before is another pin, whatever its content; one that was written since with the same content is this one.
        if self.log.store.exists(path) or not create_document(self.log.store, path, kind=KIND, value=body):
            raise TakenNameError(
                f"there is a savepoint {name!r} already", fix="choose another name, or dispose of that one first", job=self.log.job
            )
        crash_point("pin-put")

    def copy(self, name: str, to: str, *, pinned_at: int, record: EpochRecord, about: Mapping[str, object]) -> Pin:
        """Copy a pin to another name, so that its files stay even if that pin is removed.

        Args:
            name: the pin's.
            to: the other name.
            pinned_at: the pin's, so that a newer one of the same name is not mistaken for it.
            record: the pin's, for the same reason.
            about: the copy's metadata.

        Raises:
            InvalidNameError: the other name is not allowed, or is taken.
            CorruptStoreError: the pin does not exist any more, or is damaged.
        """
        body = self._body(name)
        data = json.dumps(body.record).encode() if body is not None else b""
        wanted = (pinned_at, _Identity(record.lineage, record.epoch))
        if body is not None and (body.pinned_at, _identity(data, pin_path(name))) == wanted:
            self.adopt(to, data, about=about)
            # A sweep that no longer finds the pin finds the copy, if the pin still exists now.
            if self._body(name) == body:
                return self.get(to)
            self.remove(to)
        raise damaged("was removed just now", pin_path(name), fix="name an existing pin").with_job(self.log.job)

    def get(self, name: str) -> Pin:
        """Return a pin.

        Raises:
            CorruptStoreError: there is no such pin, or it is damaged.
        """
        pin = self._read(name)
        if pin is None:
            raise damaged("is missing", pin_path(name), fix="name an existing pin").with_job(self.log.job)
        return pin

    def list(self, known: KnownSegments = NO_SEGMENTS) -> tuple[Pin, ...]:
        """Return all pins, by name.

        Args:
            known: decoded segments, which are not read again.

        Raises:
            CorruptStoreError: one is damaged.
        """
        for _ in range(_LISTINGS):
            pins, decoded = [], dict(known)
            for name in self.names():
                pins.append(pin := self._read(name, decoded))
                decoded |= pin.decoded.known if pin is not None else {}
            # A pin that was removed during the listing may have been replaced by another one for its files: list again.
            if all(pins):
                return tuple(pin for pin in pins if pin is not None)
        raise CorruptStoreError(f"the pins in {PINS} change faster than they can be listed", fix="try again", job=self.log.job)

    def outline(self, name: str) -> PinOutline | None:
        """Return a pin's outline, from its file alone; None if there is none of that name.

        Raises:
            CorruptStoreError: the file is damaged.
        """
        body = self._body(name)
        found = _identity(json.dumps(body.record).encode(), pin_path(name)) if body is not None else None
        return PinOutline(body.name, body.pinned_at, found.lineage, found.epoch, body.about) if body is not None and found else None

    def names(self) -> tuple[str, ...]:
        """Return the names of all pins, sorted."""
        return tuple(self.files())

    def files(self) -> dict[str, int]:
        """Return when the file of each pin was written (milliseconds), by name, sorted; none is opened."""
        files = self.log.store.list(PINS)
        return {
            file.path.removeprefix(f"{PINS}/").removesuffix(".json"): file.last_modified_ms for file in files if file.path.endswith(".json")
        }

    def remove(self, name: str) -> bool:
        """Remove a pin; one that does not exist is fine. A later sweep deletes the files that only it kept.

        Returns:
            False if it is left, since it is a symbolic link or lies behind one.
        """
        return not self.log.store.delete([pin_path(name)])

    def _identities(self) -> Iterator[tuple[int, bytes, str, int]]:
        """Yield slot, bytes, lineage and epoch of the retained epochs, newest first, without their lists of files, which may be long."""
        extent = self.log.slots.extent()
        upper, count = extent.next_slot, 1
        with ThreadPoolExecutor(_MAX_READ) as threads:
            while upper > extent.floor:
                slots = range(upper - 1, max(extent.floor, upper - count) - 1, -1)
                for slot, data in zip(slots, threads.map(self.log.slots.read, slots), strict=True):
                    if data is None:  # retired just now, and so are those before it
                        return
                    identity = _identity(data, record_path(slot))
                    if identity is not None:
                        yield slot, data, identity.lineage, identity.epoch
                upper, count = slots[-1], _MAX_READ

    def _read(self, name: str, known: KnownSegments = NO_SEGMENTS) -> Pin | None:
        body = self._body(name)
        if body is None:
            return None
        record = json.dumps(body.record).encode()
        decoded = decode_epoch(record, path=pin_path(name), read_segment=self.log.segments.read, known=known)
        return Pin(body.name, body.pinned_at, decoded, body.about)

    def _body(self, name: str) -> _PinBody | None:
        path = pin_path(name)
        try:
            data = self.log.store.get(path)
        except FileNotFoundError:
            return None
        shown = str(self.log.store.location.joined(path))
        try:
            _, plain = decode_envelope(data, kind=KIND, path=shown)
            return from_jsonable(_PinBody, plain, path=shown)
        except CorruptStoreError as error:
            raise CorruptStoreError(error.what, fix=_MEND, job=self.log.job, place=shown) from error

    def _not_retained(self, epoch: int | None) -> TidemarkError:
        job = self.log.job
        if epoch is None:
            return UnknownSavepointError(
                "the job has no epoch yet that a savepoint could be taken of",
                fix=f"start it, if it does not run (`tidemark start {job}`, or as it was run before), and try again when "
                f"`tidemark status {job}` shows an epoch",
                job=job,
            )
        fix = f"choose one of the retained epochs (`tidemark history {job}` shows the newest), or raise retained_epochs"
        return NotRetainedError(f"epoch {epoch} is not retained", fix=fix, job=job, epoch=epoch)


def _identity(data: bytes, path: str) -> _Identity | None:
    """Return the identity of a record's epoch, None for a term's record."""
    kind, body = decode_envelope(data, kind=(TERM, EPOCH), path=path)
    return from_jsonable(_Identity, {key: body.get(key) for key in ("lineage", "epoch")}, path=path) if kind == EPOCH else None
