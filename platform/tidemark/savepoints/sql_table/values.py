"""The values of rows as drivers of databases take them: times in UTC, without a zone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Final

import pyarrow as pa

Value = object


def rows_of(batches: Iterable[pa.RecordBatch], convert: Callable[[Value], Value]) -> Iterator[list[tuple[Value, ...]]]:
    """Yield the rows of each batch, with values converted."""
    for batch in batches:
        columns = [[convert(value) for value in column.to_pylist()] for column in batch.columns]
        yield list(zip(*columns, strict=True))


def in_utc(value: Value) -> Value:
    """Return a value, a time with a zone as the same time in UTC without one.

    >>> in_utc(datetime(2026, 1, 1, tzinfo=UTC)), in_utc(5)
    (datetime.datetime(2026, 1, 1, 0, 0), 5)
    """
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo is not None else value


def as_sqlite(value: Value) -> Value:
    """Return a value as SQLite stores it: integers, floats, texts and bytes.

    >>> as_sqlite(Decimal("0.10")), as_sqlite(date(2026, 1, 1)), as_sqlite(datetime(2026, 1, 1, 12, tzinfo=UTC)), as_sqlite(True)
    ('0.10', '2026-01-01', '2026-01-01 12:00:00.000000', 1)
    """
    match in_utc(value):
        case bool(flag):
            return int(flag)
        case Decimal() as number:
            return format(number, "f")
        case datetime() as time:
            return time.isoformat(_SEPARATOR, "microseconds")
        case date() as day:
            return day.isoformat()
        case other:
            return other


_SEPARATOR: Final = " "
