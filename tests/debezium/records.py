"""Records as Debezium's connector for Postgres writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import tidemark as tm

SCHEMA = "id BIGINT, status STRING, amount DECIMAL(10, 2)"
RECORDS = "key STRING, value STRING, partition INT, offset BIGINT"
TIMED = tm.bounded_out_of_orderness("1 minute", timestamp="source.ts_ms")
START = 1_690_000_000_000

Row = dict[str, Any]
Record = tuple[str | None, str | None]


def row(key: int, status: str | None = "new", amount: str | None = "10.00") -> Row:
    """Return a row; decimals are texts, as with ``decimal.handling.mode=string``."""
    return {"id": key, "status": status, "amount": amount}


def key_of(key: int, *, wrapped: bool = False) -> str:
    """Return a record's key."""
    plain = {"id": key}
    return json.dumps({"schema": {"type": "struct"}, "payload": plain} if wrapped else plain)


def change(
    op: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, *, lsn: int = 0, wrapped: bool = False, minute: int = 0
) -> Record:
    """Return the key and the value of a record."""
    source = {
        "version": "3.0.0.Final",
        "connector": "postgresql",
        "ts_ms": START + minute * 60_000,
        "snapshot": "true" if op == "r" else "false",
        "sequence": f'["{lsn}","{lsn}"]',
        "table": "orders",
        "txId": lsn // 10,
        "lsn": lsn,
        "xmin": None,
    }
    transaction = {"id": f"{lsn // 10}:{lsn}", "total_order": 1, "data_collection_order": 1}
    plain = {"before": before, "after": after, "source": source, "transaction": transaction, "op": op, "ts_ms": START + 1}
    value = {"schema": {"type": "struct", "name": "orders.Envelope"}, "payload": plain} if wrapped else plain
    of = after or before or {}
    return key_of(int(of["id"]), wrapped=wrapped), json.dumps(value)


def tombstone(key: int) -> Record:
    """Return a record without a value."""
    return key_of(key), None


def elements(epochs: Sequence[Sequence[Record]]) -> Any:
    """Return a source of records, epoch by epoch, in one partition."""
    offset, numbered = 0, []
    for epoch in epochs:
        rows = []
        for key, value in epoch:
            rows.append((key, value, 0, offset))
            offset += 1
        numbered.append(rows)
    return tm.from_elements(epochs=numbered, schema=RECORDS)
