"""Messages of pgoutput as bytes, written by hand from the protocol's description."""

from __future__ import annotations

import struct
from collections.abc import Sequence

US_2000 = 946_684_800_000_000


def begin(final_lsn: int, committed_at: int, xid: int) -> bytes:
    return b"B" + struct.pack(">qqI", final_lsn, committed_at - US_2000, xid)


def commit(lsn: int, end_lsn: int, committed_at: int) -> bytes:
    return b"C" + struct.pack(">Bqqq", 0, lsn, end_lsn, committed_at - US_2000)


def relation(oid: int, schema: str, name: str, columns: Sequence[tuple[str, int, int, bool]], identity: str = "d") -> bytes:
    parts = [
        b"R",
        struct.pack(">I", oid),
        schema.encode() + b"\0",
        name.encode() + b"\0",
        identity.encode(),
        struct.pack(">h", len(columns)),
    ]
    for column, kind, modifier, is_key in columns:
        parts.append(struct.pack(">B", is_key) + column.encode() + b"\0" + struct.pack(">Ii", kind, modifier))
    return b"".join(parts)


def values(row: Sequence[object]) -> bytes:
    """Return a row; ``...`` is a large value that did not change."""
    parts = [struct.pack(">h", len(row))]
    for value in row:
        if value is None:
            parts.append(b"n")
        elif value is ...:
            parts.append(b"u")
        else:
            data = str(value).encode()
            parts.append(b"t" + struct.pack(">i", len(data)) + data)
    return b"".join(parts)


def insert(oid: int, row: Sequence[object]) -> bytes:
    return b"I" + struct.pack(">I", oid) + b"N" + values(row)


def update(oid: int, row: Sequence[object], old: Sequence[object] | None = None, kind: bytes = b"K") -> bytes:
    before = b"" if old is None else kind + values(old)
    return b"U" + struct.pack(">I", oid) + before + b"N" + values(row)


def delete(oid: int, old: Sequence[object], kind: bytes = b"K") -> bytes:
    return b"D" + struct.pack(">I", oid) + kind + values(old)


def truncate(*oids: int) -> bytes:
    return b"T" + struct.pack(">IB", len(oids), 0) + b"".join(struct.pack(">I", oid) for oid in oids)
