"""Pins: epochs kept whatever retention says. Each holds a copy of its record, so the log itself stays one contiguous run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.errors import CorruptStoreError, InvalidNameError
from tidemark.state.codec import from_plain
from tidemark.state.envelope import damaged, seal, unseal
from tidemark.state.epoch_codec import DecodedEpoch, decode_epoch
from tidemark.state.joblog import JobLog
from tidemark.state.layout import PINS, pin_path
from tidemark.state.records import EpochRecord

KIND = "pin"


@dataclass(frozen=True)
class Pin:
    """A name for an epoch; ``pinned_at`` is in milliseconds. ``decoded`` has the record and the segments it needs."""

    name: str
    pinned_at: int
    decoded: DecodedEpoch

    @property
    def record(self) -> EpochRecord:
        """The pinned epoch's record."""
        return self.decoded.record


@dataclass(frozen=True)
class _PinBody:
    name: str
    pinned_at: int
    record: Mapping[str, object]


@dataclass(frozen=True)
class Pins:
    """The pins of a job, which lie with the files they keep."""

    log: JobLog

    def put(self, name: str, epoch: int, *, lineage: str | None = None) -> Pin:
        """Pin a retained epoch; when this returns, nothing that it needs will be deleted until the pin is removed.

        Raises:
            InvalidNameError: the name is not allowed, or is taken.
            CorruptStoreError: the epoch is not retained, or was retired while it was being pinned.
        """
        path = pin_path(name)
        slot, data = self._find(epoch, lineage)
        body = {"name": name, "pinned_at": self.log.clock.now_ms(), "record": json.loads(data)}
        try:
            self.log.store.create(path, seal(KIND, body))
        except FileExistsError as error:
            raise InvalidNameError(
                f"there is a pin {name!r} already", fix="choose another name, or remove that pin first", job=self.log.job
            ) from error
        # A sweep reads the log first and the pins afterwards. So if the record is still in the log now, any sweep that no
        # longer finds it there will find the pin.
        if self.log.slots.floor() > slot:
            self.remove(name)
            raise self._not_retained(epoch)
        return self.get(name)

    def get(self, name: str) -> Pin:
        """Return a pin.

        Raises:
            CorruptStoreError: there is no such pin, or it is damaged.
        """
        path = pin_path(name)
        try:
            data = self.log.store.get(path)
        except FileNotFoundError as error:
            raise damaged("is missing", path, fix="name one of the pins there are").with_job(self.log.job) from error
        _, plain = unseal(data, kind=KIND, path=path)
        body = from_plain(_PinBody, plain, path=path)
        record = json.dumps(body.record).encode()
        return Pin(body.name, body.pinned_at, decode_epoch(record, path=path, read_segment=self.log.segments.read))

    def list(self) -> tuple[Pin, ...]:
        """Return all pins, by name.

        Raises:
            CorruptStoreError: one is damaged.
        """
        files = self.log.store.list(PINS)
        names = [file.path.removeprefix(f"{PINS}/").removesuffix(".json") for file in files if file.path.endswith(".json")]
        return tuple(self.get(name) for name in names)

    def remove(self, name: str) -> None:
        """Remove a pin; one that is not there is fine. What only it kept goes with a later sweep."""
        self.log.store.delete([pin_path(name)])

    def _find(self, epoch: int, lineage: str | None) -> tuple[int, bytes]:
        for slot, decoded in self.log.retained():
            if decoded.record.epoch == epoch and lineage in (None, decoded.record.lineage):
                data = self.log.slots.read(slot)
                if data is not None:
                    return slot, data
        raise self._not_retained(epoch)

    def _not_retained(self, epoch: int) -> CorruptStoreError:
        return CorruptStoreError(
            f"epoch {epoch} is not retained",
            fix="choose one of the retained epochs, or raise retained_epochs",
            job=self.log.job,
            epoch=epoch,
        )
