"""The messages of Postgres' output plugin ``pgoutput``, protocol version 1, decoded. Pure.

Source: https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html. Values are texts, as the server writes them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum
from typing import Final

EPOCH_US: Final = 946_684_800_000_000
"""Microseconds from 1970 to 2000, from which Postgres counts."""


class Unchanged(Enum):
    """A large value that an update did not change: the message does not have it."""

    VALUE = "unchanged"


UNCHANGED: Final = Unchanged.VALUE

Value = str | Unchanged | None
"""A value of a column; None is null."""

Values = tuple[Value, ...]


class DecodeError(Exception):
    """Bytes that are no message of the protocol."""


@dataclass(frozen=True)
class Begin:
    """A transaction begins: the LSN of its commit, the time of its commit in microseconds since 1970, its number (32 bits)."""

    final_lsn: int
    committed_at: int
    xid: int


@dataclass(frozen=True)
class Commit:
    """A transaction ends: the LSNs of its commit record's beginning and end, and the time of its commit in microseconds."""

    lsn: int
    end_lsn: int
    committed_at: int


@dataclass(frozen=True)
class Column:
    """A column of a relation: its name, the OID of its type and the type's modifier, and whether it is part of the replica identity."""

    name: str
    type: int
    modifier: int
    is_key: bool


@dataclass(frozen=True)
class Relation:
    """A table as it is in the changes that follow. ``identity`` is ``d`` (primary key), ``f`` (full), ``i`` (an index), ``n`` (nothing)."""

    id: int
    schema: str
    name: str
    identity: str
    columns: tuple[Column, ...]

    @property
    def label(self) -> str:
        """Schema and name."""
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class Insert:
    """A row that is added to a relation."""

    relation: int
    new: Values


@dataclass(frozen=True)
class Update:
    """A row that is changed. ``old`` is None where its key stays; ``whole`` says whether it has all columns, and not only the key."""

    relation: int
    old: Values | None
    new: Values
    whole: bool = False


@dataclass(frozen=True)
class Delete:
    """A row that is deleted: its key, or all of it if ``whole``."""

    relation: int
    old: Values
    whole: bool = False


@dataclass(frozen=True)
class Truncate:
    """Relations that lose all rows."""

    relations: tuple[int, ...]


@dataclass(frozen=True)
class Other:
    """A message that changes no row: a type, an origin, a message of an application."""

    kind: str


Message = Begin | Commit | Relation | Insert | Update | Delete | Truncate | Other


def decode(data: bytes) -> Message:
    """Return the message in some bytes.

    Raises:
        DecodeError: they are none, or one of a later version of the protocol.
    """
    reader = _Reader(data)
    try:
        found = _decode(reader)
    except (struct.error, ValueError, IndexError) as error:
        raise DecodeError(f"a message of pgoutput is cut short or damaged: {data[:1]!r}") from error
    if not isinstance(found, Other) and not reader.at_end:
        raise DecodeError(f"a message of pgoutput is longer than version 1 of its protocol has it: {data[:1]!r}")
    return found


def _decode(reader: _Reader) -> Message:
    match reader.letter():
        case "B":
            return Begin(reader.int64(), reader.int64() + EPOCH_US, reader.uint32())
        case "C":
            reader.int8()  # flags, unused
            return Commit(reader.int64(), reader.int64(), reader.int64() + EPOCH_US)
        case "R":
            return _relation(reader)
        case "I":
            relation = reader.uint32()
            reader.expect("N")
            return Insert(relation, reader.values())
        case "U":
            return _update(reader)
        case "D":
            relation, kind = reader.uint32(), reader.expect("KO")
            return Delete(relation, reader.values(), whole=kind == "O")
        case "T":
            count = reader.uint32()
            reader.int8()  # CASCADE, RESTART IDENTITY
            return Truncate(tuple(reader.uint32() for _ in range(count)))
        case ("Y" | "O" | "M") as kind:
            return Other(kind)
        case kind:
            raise DecodeError(f"a message of pgoutput is of the unknown kind {kind!r}")


def _relation(reader: _Reader) -> Relation:
    oid, schema, name, identity = reader.uint32(), reader.text(), reader.text(), reader.letter()
    columns = []
    for _ in range(reader.int16()):
        flags, column = reader.int8(), reader.text()
        columns.append(Column(column, reader.uint32(), reader.int32(), is_key=bool(flags & 1)))
    # An empty schema is pg_catalog.
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def _update(reader: _Reader) -> Update:
    relation, kind = reader.uint32(), reader.expect("KON")
    old = None
    if kind != "N":
        old = reader.values()
        reader.expect("N")
    return Update(relation, old, reader.values(), whole=kind == "O")


class _Reader:
    """Reads the parts of a message, in network byte order."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def at_end(self) -> bool:
        return self._at == len(self._data)

    def int8(self) -> int:
        return self._number(">B", 1)

    def int16(self) -> int:
        return self._number(">h", 2)

    def int32(self) -> int:
        return self._number(">i", 4)

    def uint32(self) -> int:
        return self._number(">I", 4)

    def int64(self) -> int:
        return self._number(">q", 8)

    def letter(self) -> str:
        return chr(self.int8())

    def expect(self, letters: str) -> str:
        found = self.letter()
        if found not in letters:
            raise ValueError(found)
        return found

    def text(self) -> str:
        end = self._data.index(b"\0", self._at)
        found = self._data[self._at : end].decode()
        self._at = end + 1
        return found

    def values(self) -> Values:
        return tuple(self._value() for _ in range(self.int16()))

    def _value(self) -> Value:
        match self.expect("nut"):
            case "n":
                return None
            case "u":
                return UNCHANGED
        size = self.int32()
        found = self._data[self._at : self._at + size]
        if size < 0 or len(found) < size:
            raise ValueError(size)
        self._at += size
        return found.decode()

    def _number(self, form: str, size: int) -> int:
        (found,) = struct.unpack_from(form, self._data, self._at)
        self._at += size
        return int(found)
