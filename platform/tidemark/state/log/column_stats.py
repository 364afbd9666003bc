"""Column statistics from a Parquet footer: bounds of a time column, and the form that Delta's log keeps."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final

import pyarrow.parquet as pq

DELTA_COLUMNS: Final = 32
_STRING_LIMIT = 32
_GREATEST = "\U0010ffff"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Plain = str | int | float


def time_bounds(metadata: pq.FileMetaData, column: str) -> tuple[int | None, int | None]:
    """Return the least and greatest time of a column in milliseconds, rounded outwards; None where not known.

    Integers are milliseconds already; timestamps without a zone are UTC; dates are their first moment.
    """
    bounds = _bounds(metadata, metadata.schema.names.index(column))
    if bounds is None:
        return None, None
    return _milliseconds(bounds[0], up=False), _milliseconds(bounds[1], up=True)


def delta_stats(metadata: pq.FileMetaData) -> dict[str, object]:
    """Return a file's statistics in Delta's form, of its first columns that are not nested.

    Bounds are left out where they are not known or have no exact JSON form (binary, boolean, decimal, NaN, INT96), and maxima of
    floating-point columns. Long text is cut: a minimum to a prefix, a maximum to a prefix and the greatest character.
    """
    low: dict[str, Plain] = {}
    high: dict[str, Plain] = {}
    nulls: dict[str, int] = {}
    top = set(metadata.schema.to_arrow_schema().names)
    for index in range(min(metadata.num_columns, DELTA_COLUMNS)):
        name = metadata.schema.column(index).path
        if name not in top:
            continue
        groups = [statistics for statistics, _ in _row_groups(metadata, index)]
        if all(item is not None and item.has_null_count for item in groups):
            nulls[name] = sum(item.null_count for item in groups if item is not None)
        bounds = _bounds(metadata, index)
        least, greatest = (None, None) if bounds is None else (_plain(bounds[0], upper=False), _plain(bounds[1], upper=True))
        if least is None or greatest is None:
            continue
        low[name] = least
        # Parquet's bounds ignore NaN, and Spark takes NaN for the greatest number: a maximum would hide such rows.
        if not isinstance(greatest, float):
            high[name] = greatest
    return {"numRecords": metadata.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}


def _row_groups(metadata: pq.FileMetaData, column: int) -> list[tuple[pq.Statistics | None, int]]:
    """Return statistics and rows of the row groups that hold rows."""
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    return [(group.column(column).statistics, group.num_rows) for group in groups if group.num_rows]


def _bounds(metadata: pq.FileMetaData, column: int) -> tuple[object, object] | None:
    """Return a column's least and greatest value; None when it has none, or one row group does not tell, or has one that Python has not."""
    known = []
    for statistics, rows in _row_groups(metadata, column):
        if statistics is None:
            return None
        if statistics.has_min_max:
            try:
                known.append((statistics.min, statistics.max))
            except (OverflowError, UnicodeDecodeError):
                # A window of the last hours of the year 9999 ends in 10000, which Python has no date for. And Spark takes the bytes of a
                # text file for text, whatever they are.
                return None
        elif not (statistics.has_null_count and statistics.null_count == rows):
            return None
    if not known:
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def _plain(value: object, *, upper: bool) -> Plain | None:
    if isinstance(value, str):
        return _cut(value, upper=upper)
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        # A float may lie on the wrong side of a decimal; text would be read as text.
        return None
    if isinstance(value, datetime):
        shown = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return shown.isoformat(timespec="microseconds") + ("Z" if value.tzinfo else "")
    return value.isoformat() if isinstance(value, date) else None


def _cut(text: str, *, upper: bool) -> str | None:
    if len(text) <= _STRING_LIMIT:
        return text
    if not upper:
        return text[:_STRING_LIMIT]
    # What follows the prefix must be less than the character that stands for it.
    return text[:_STRING_LIMIT] + _GREATEST if text[_STRING_LIMIT] < _GREATEST else None


def _milliseconds(value: object, *, up: bool) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, datetime):
        instant = value if value.tzinfo else value.replace(tzinfo=UTC)
        whole, rest = divmod(instant - _EPOCH, timedelta(milliseconds=1))
        return whole + (1 if up and rest else 0)
    if isinstance(value, date):
        return (value - _EPOCH.date()).days * 86_400_000
    return None
