"""Messages of ``pgoutput`` as whole transactions, with the changes of the captured tables. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tidemark.spark.sources.postgres_changes.messages import (
    UNCHANGED,
    Begin,
    Commit,
    DecodeError,
    Delete,
    Insert,
    Message,
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
    changes: tuple[Change, ...]
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

    def transactions(self, messages: Iterable[Message]) -> Iterator[Transaction]:
        """Yield the transactions of messages, in order.

        Raises:
            DecodeError: a message comes where none of its kind may be, or a change has no primary key.
        """
        begin: Begin | None = None
        changes: list[Change] = []
        seen: dict[int, Relation] = {}
        truncated: list[Relation] = []
        for message in messages:
            match message:
                case Begin():
                    begin, changes, seen, truncated = message, [], {}, []
                case Commit() if begin is not None:
                    yield Transaction(
                        begin.xid, message.end_lsn, message.committed_at, tuple(changes), tuple(seen.values()), tuple(truncated)
                    )
                    begin = None
                case Relation():
                    self._relations[message.id] = message
                case Truncate():
                    truncated += [found for each in message.relations if self._is_wanted(found := self._relation(each))]
                case Insert() | Update() | Delete():
                    relation = self._relation(message.relation)
                    if self._is_wanted(relation):
                        seen[relation.id] = relation
                        changes += changes_of(relation, message, self.keys.get(relation.label, ()))
                case Other():
                    pass
                case _:
                    raise DecodeError("a transaction of pgoutput ends that did not begin")

    def _is_wanted(self, relation: Relation) -> bool:
        return relation.label in self.captured or relation.id in self.oids

    def _relation(self, oid: int) -> Relation:
        try:
            return self._relations[oid]
        except KeyError:
            raise DecodeError(f"a change of pgoutput is of a relation that was not described: {oid}") from None


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
