"""The epochs that a job's state comes from: those of its newest lineage, and, before a restore, of the lineage it came from. Pure.

A restore commits a record that repeats an epoch of the lineage before, and in which nothing ran. The epoch of that number is the one it
repeats; later epochs of that lineage are no part of the line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tidemark.state.log.progress import PROCESS_FUNCTIONS
from tidemark.state.log.records import EpochRecord, RestoreRef


@dataclass(frozen=True)
class PastNames:
    """The names that an operator had in an epoch: its uid, and its states and keys by the names that they have now.

    ``renamed`` holds those that had another name; None is a state or key that did not exist then, though another one had its name.
    """

    uid: str
    renamed: Mapping[str, str | None] = field(default_factory=dict)

    def of(self, name: str) -> str | None:
        """Return the name that a state or key had, None if it did not exist under another one's name."""
        return self.renamed.get(name, name)

    def before(self, restored: RestoreRef | None) -> PastNames:
        """Return the names that the operator had before a restore."""
        if restored is None:
            return self
        uid = next((old for old, new in restored.uids.items() if new == self.uid), self.uid)
        columns = restored.columns.get(self.uid, {})
        old_names = {new: old for old, new in columns.items() if new is not None}
        found: dict[str, str | None] = {new: old for new, old in old_names.items() if new not in self.renamed}
        found |= {name: None if at is None else old_names.get(at, at) for name, at in self.renamed.items()}
        # A name that was taken away and is used again is that of a new state.
        found |= {old: None for old in columns if old not in found}
        return PastNames(uid, found)


@dataclass(frozen=True)
class LineEpoch:
    """An epoch of the line: its record, that of the epoch before, None where none is retained, and the operator's names in it."""

    record: EpochRecord
    before: EpochRecord | None
    names: PastNames

    @property
    def has_operator(self) -> bool:
        """Whether the job had the operator, as a process function."""
        found = self.record.operators.get(self.names.uid)
        return found is not None and found.definition.get("kind") in PROCESS_FUNCTIONS

    @property
    def can_be_replayed(self) -> bool:
        """Whether the operator ran in it, and its state before the epoch is known."""
        return self.has_operator and (self.before is not None or self.record.epoch <= 0)


class JobLine:
    """The line of a job, as far as its log retains it.

    Args:
        records: the retained epochs, newest first.
        uid: of the operator whose names are followed.
    """

    def __init__(self, records: Iterable[EpochRecord], uid: str) -> None:
        self._uid = uid
        self._retained = list(records)
        self._by_identity = {(record.lineage, record.epoch): record for record in reversed(self._retained)}
        self.begins: EpochRecord | None = None
        """The record of a restore that the line begins with, from a lineage that the log does not have; None if there is none."""
        self.epochs: Mapping[int, LineEpoch] = {each.record.epoch: each for each in self._walk()}

    def _walk(self) -> Iterator[LineEpoch]:
        """Yield the epochs, newest first."""
        names, record = PastNames(self._uid), self._retained[0] if self._retained else None
        while record is not None:
            parent = record.parent
            if parent is not None and record.epoch == parent.epoch:
                names = names.before(record.restored)
                restore, record = record, self._by_identity.get((parent.lineage, parent.epoch))
                self.begins = restore if record is None else None
                continue
            before = self._by_identity.get((record.lineage, record.epoch - 1))
            yield LineEpoch(record, before, names)
            record = before

    @property
    def replayable(self) -> list[int]:
        """The numbers of the epochs that can be replayed, oldest first."""
        return sorted(number for number, each in self.epochs.items() if each.can_be_replayed)

    def why_not(self, number: int) -> str:
        """Return why an epoch cannot be replayed, given its number."""
        begins, found = self.begins, self.epochs.get(number)
        if begins is not None and begins.epoch == number:
            of_job = "" if begins.restored is None else f" of job {begins.restored.job!r}"
            savepoint = "a savepoint" if begins.restored is None else f"savepoint {begins.restored.savepoint!r}"
            return (
                f"there the job was restored from {savepoint}{of_job}, no function ran, and its log does not have the epoch that was saved"
            )
        if found is not None and not found.has_operator:
            return f"the job had no process function {found.names.uid!r} then"
        others = [record for record in self._retained if record.epoch == number]
        if found is None and others:
            return "it came before a restore or rewind to an earlier epoch, so the job's state does not come from it"
        return "the job's log does not retain it and the epoch before it"
