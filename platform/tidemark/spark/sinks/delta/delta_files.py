"""The files of a Delta table according to its log, and which of them may hold rows with given keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, cast

import pyarrow as pa
from deltalake import DeltaTable

from tidemark.state.log.records import StagedFile

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGERS: Final = frozenset({"byte", "short", "integer", "long"})
_ROUNDED: Final = 999
"""Microseconds by which a file's greatest timestamp may exceed its statistics: some writers truncate these to milliseconds."""

Value = str | int


@dataclass(frozen=True)
class Bounds:
    """A column's statistics: least and greatest value and number of nulls; None where unknown."""

    low: Value | None = None
    high: Value | None = None
    nulls: int | None = None
    only_nulls: bool = False

    def meets(self, other: Bounds) -> bool:
        """Whether a value may be in both columns, null being one."""
        if self.nulls != 0 and other.nulls != 0:
            return True
        if self.only_nulls or other.only_nulls:
            return False
        if self.low is None or self.high is None or other.low is None or other.high is None:
            return True
        # Both are of one column, so either text or numbers.
        return cast("int", self.low) <= cast("int", other.high) and cast("int", other.low) <= cast("int", self.high)

    def may_contain(self, values: Iterable[Value | None]) -> bool:
        """Whether any of the values may be in the column."""
        return any(self.meets(Bounds(nulls=1, only_nulls=True) if value is None else Bounds(value, value, 0)) for value in values)


UNKNOWN: Final = Bounds()


@dataclass(frozen=True)
class LiveFile:
    """A file that the table's newest version shows.

    ``path`` is as the log has it. ``added_at`` is when the log says that it was written, milliseconds.
    """

    path: str
    rows: int | None
    bytes: int
    added_at: int
    columns: Mapping[str, Bounds]

    @property
    def rewritable(self) -> bool:
        """Whether the path is relative to the table, not a URI as in a shallow clone, and has no escapes.

        Writers escape differently, and Delta silently ignores a removal whose path is spelled otherwise than in the log.
        """
        return "://" not in self.path and "%" not in self.path


def live_files(table: DeltaTable, types: Mapping[str, object] | None = None) -> list[LiveFile]:
    """Return the files of the version that a table was loaded at, oldest first.

    Args:
        table: loaded already.
        types: of the columns to return bounds of, by name, as in Delta's JSON.
    """
    actions = pa.table(table.get_add_actions(flatten=True))
    rows = actions["num_records"].to_pylist()
    bounds = {name: _bounds_of_files(actions, name, kind, rows) for name, kind in (types or {}).items()}
    files = [
        LiveFile(path, rows[number], size, added, {name: found[number] for name, found in bounds.items()})
        for number, (path, size, added) in enumerate(
            zip(*(actions[name].to_pylist() for name in ("path", "size_bytes", "modification_time")), strict=True)
        )
    ]
    return sorted(files, key=lambda file: (file.added_at, file.path))


def bounds_of_staged(file: StagedFile, types: Mapping[str, object]) -> dict[str, Bounds]:
    """Return the bounds of columns in a staged file, from the statistics in its record."""
    stats = file.stats or {}
    low, high, nulls = (cast("Mapping[str, Any]", stats.get(key) or {}) for key in ("minValues", "maxValues", "nullCount"))
    found = {}
    for name, kind in types.items():
        count = nulls.get(name)
        found[name] = Bounds(_of_json(low.get(name), kind), _of_json(high.get(name), kind), count, only_nulls=count == file.rows)
    return found


def may_contain(file: LiveFile, changes: Sequence[Mapping[str, Bounds]]) -> bool:
    """Whether a file may have a row whose columns all lie within the bounds of one of the changes."""
    return any(all(bounds.meets(file.columns.get(name, UNKNOWN)) for name, bounds in change.items()) for change in changes)


def files_containing(files: Iterable[LiveFile], column: str, values: Collection[Value | None]) -> list[LiveFile]:
    """Return the files in which a column may have one of the values."""
    return [file for file in files if file.columns.get(column, UNKNOWN).may_contain(values)]


def _bounds_of_files(actions: pa.Table, name: str, kind: object, rows: Sequence[int | None]) -> list[Bounds]:
    names = actions.column_names
    low, high = (_plain(actions[key], kind) if (key := f"{end}.{name}") in names else [None] * len(rows) for end in ("min", "max"))
    nulls = actions[key].to_pylist() if (key := f"null_count.{name}") in names else [None] * len(rows)
    more = _ROUNDED if kind in {"timestamp", "timestamp_ntz"} else 0
    return [
        Bounds(least, greatest + more if isinstance(greatest, int) else greatest, count, only_nulls=count is not None and count == total)
        for least, greatest, count, total in zip(low, high, nulls, rows, strict=True)
    ]


def _plain(column: pa.ChunkedArray, kind: object) -> list[Value | None]:
    """Return statistics as values that can be compared: timestamps are microseconds, dates days."""
    if kind in {"timestamp", "timestamp_ntz"} and pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    elif kind == "date" and pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    elif not (kind in _INTEGERS or kind == "string"):
        return [None] * len(column)
    found: list[Value | None] = column.to_pylist()
    return found


def _of_json(value: object, kind: object) -> Value | None:
    """Return a value of Delta's JSON statistics as ``_plain`` does; None for types whose bounds are not exact."""
    if kind == "string" and isinstance(value, str):
        return value
    if kind in _INTEGERS and isinstance(value, int):
        return value
    if kind in {"timestamp", "timestamp_ntz"} and isinstance(value, str):
        instant = datetime.fromisoformat(value)
        return ((instant if instant.tzinfo else instant.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)
    if kind == "date" and isinstance(value, str):
        return (date.fromisoformat(value) - _EPOCH.date()).days
    return None
