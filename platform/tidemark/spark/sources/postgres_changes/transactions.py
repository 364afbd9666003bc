"""Messages of ``pgoutput`` as whole transactions, with the changes of the captured tables. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from tidemark.spark.sources.postgres_changes.message_spool import MessageSpool
from tidemark.spark.sources.postgres_changes.messages import (
    UNCHANGED,
    Begin,
    Commit,
    DecodeError,
    Delete,
    Insert,
    Other,
    Relation,
    Truncate,
    Update,
    Value,
    Values,
)

Row = Mapping[str, Value]


@dataclass(frozen=True)
class Change:
    """What a transaction does to a row: its ``operation`` (``insert``, ``update``, ``delete``) and the values that are known."""

    relation: Relation
    operation: str
    row: Row


@dataclass(frozen=True)
class Transaction:
    """A committed transaction: its number (32 bits), the LSN at its end, the time of its commit in microseconds, what it changed.

    ``truncated`` are the relations that it emptied.
    """

    xid: int
    end_lsn: int
    committed_at: int
    changes: Collection[Change]
    relations: tuple[Relation, ...] = ()
    truncated: tuple[Relation, ...] = ()


@dataclass
class Assembler:
    """Assembles transactions; relations are described once for all changes that follow.

    Args:
        captured: the labels of the tables whose changes are wanted, and the OIDs that they have: a renamed one is among these.
        keys: the columns of the primary key of each table, by its label.
    """

    captured: Collection[str]
    keys: Mapping[str, tuple[str, ...]]
    oids: Collection[int] = ()
    _relations: dict[int, Relation] = field(default_factory=dict)

    def transactions(self, spool: MessageSpool) -> Iterator[Transaction]:
        """Yield the transactions of messages, in order; changes of a large spool are read from it each time that they are iterated over.

        Raises:
            DecodeError: a message comes where none of its kind may be, or a change has no primary key.
        """
        open_: _Open | None = None
        for place, message in spool.messages():
            match message:
                case Begin():
                    open_ = _Open(message, place, dict(self._relations))
                case Commit() if open_ is not None:
                    changes: Collection[Change] = tuple(open_.changes)
                    if spool.is_large:
                        again = Assembler(self.captured, self.keys, self.oids, open_.known)
                        changes = _SpooledChanges(spool, open_.first, place, open_.count, again)
                    yield open_.ended(message, changes)
                    open_ = None
                case Truncate() if open_ is not None:
                    open_.truncated += [found for each in message.relations if self._is_wanted(found := self._relation(each))]
                case Insert() | Update() | Delete() if open_ is not None:
                    relation = self._relation(message.relation)
                    if self._is_wanted(relation):
                        open_.add(relation, self._changes(relation, message), keep=not spool.is_large)
                case Relation():
                    self._relations[message.id] = message
                case Other():
                    pass
                case _:
                    raise DecodeError("a message of pgoutput is outside of a transaction")

    def changes(self, spool: MessageSpool, first: int, end: int) -> Iterator[Change]:
        """Yield the changes of the messages of one transaction, between two places."""
        known = dict(self._relations)
        for _, message in spool.messages(first, end):
            match message:
                case Relation():
                    known[message.id] = message
                case Insert() | Update() | Delete() if self._is_wanted(known[message.relation]):
                    yield from self._changes(known[message.relation], message)

    def _changes(self, relation: Relation, message: Insert | Update | Delete) -> list[Change]:
        return changes_of(relation, message, self.keys.get(relation.label, ()))

    def _is_wanted(self, relation: Relation) -> bool:
        return relation.label in self.captured or relation.id in self.oids

    def _relation(self, oid: int) -> Relation:
        try:
            return self._relations[oid]
        except KeyError:
            raise DecodeError(f"a change of pgoutput is of a relation that was not described: {oid}") from None


@dataclass
class _Open:
    """A transaction whose end was not read yet; ``known`` are the relations described before it, ``first`` is the place of its messages."""

    begin: Begin
    first: int
    known: dict[int, Relation]
    changes: list[Change] = field(default_factory=list)
    count: int = 0
    relations: dict[int, Relation] = field(default_factory=dict)
    truncated: list[Relation] = field(default_factory=list)

    def add(self, relation: Relation, changes: list[Change], *, keep: bool) -> None:
        self.relations[relation.id] = relation
        self.count += len(changes)
        if keep:
            self.changes += changes

    def ended(self, commit: Commit, changes: Collection[Change]) -> Transaction:
        relations = tuple(self.relations.values())
        return Transaction(self.begin.xid, commit.end_lsn, commit.committed_at, changes, relations, tuple(self.truncated))


@dataclass(frozen=True)
class _SpooledChanges(Collection[Change]):
    """The changes of a transaction, between two places of a spool."""

    spool: MessageSpool
    first: int
    end: int
    count: int
    assembler: Assembler

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Change]:
        return self.assembler.changes(self.spool, self.first, self.end)

    def __contains__(self, change: object) -> bool:
        return any(each == change for each in self)


def changes_of(relation: Relation, message: Insert | Update | Delete, keys: tuple[str, ...]) -> list[Change]:
    """Return what a message changes; an update of the key deletes one row and writes another.

    Args:
        relation: the table.
        message: the change.
        keys: the columns of the table's primary key.

    Raises:
        DecodeError: a row that is deleted or replaced has no primary key.
    """
    if isinstance(message, Insert):
        return [Change(relation, "insert", _row(relation, message.new))]
    if isinstance(message, Delete):
        return [Change(relation, "delete", _old(relation, message.old, keys, whole=message.whole))]
    new = _row(relation, message.new)
    if message.old is None:
        return [Change(relation, "update", new)]
    old = _old(relation, message.old, keys, whole=message.whole)
    if message.whole:
        # The old row of a partition may have only the key, whatever the partitioned table has.
        new = {name: value if value is not UNCHANGED or old.get(name) is None else old[name] for name, value in new.items()}
    # A large value of the key that stays is not in the new row, but in the old one.
    new = {name: old[name] if value is UNCHANGED and name in keys and name in old else value for name, value in new.items()}
    if any(old.get(key) != new.get(key) for key in keys):
        return [Change(relation, "delete", old), Change(relation, "update", new)]
    return [Change(relation, "update", new)]


def _row(relation: Relation, values: Values) -> dict[str, Value]:
    return {column.name: value for column, value in zip(relation.columns, values, strict=True)}


def _old(relation: Relation, values: Values, keys: tuple[str, ...], *, whole: bool) -> dict[str, Value]:
    row = _row(relation, values)
    missing = [name for name in keys if row.get(name) is None]
    if missing:
        raise DecodeError(
            f"a change of {relation.label} does not have column {missing[0]!r} of the primary key: its replica identity is another"
        )
    return row if whole else {name: row[name] for name in keys}
