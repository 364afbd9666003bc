"""The text of an entry in Spark's offset log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

_NO_OFFSET = "-"
_HEADER_LINES = 2
"""Spark's offset log: a version, a line of JSON, then one line per source."""

_SETTINGS: Final = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{"spark.sql.streaming.queryEvolution.enableSourceEvolution":"true"}}'
"""Of an entry without one before it: that sources are known by their names."""


def positions(offsets: str) -> Mapping[str, object]:
    """Return the offset of each source that has one; of equal offsets the text may differ."""
    found: dict[str, object] = {}
    for line in offsets.splitlines()[_HEADER_LINES:]:
        name, _, position = line.partition(":")
        if position == _NO_OFFSET:
            continue
        try:
            found[name] = json.loads(position)
        except ValueError:
            found[name] = position
    return found


def log_offset(position: object) -> int:
    """Return the number in a file source's offset, -1 before the first."""
    return int(position["logOffset"]) if isinstance(position, Mapping) and "logOffset" in position else -1


def files_of(position: object) -> tuple[str, ...]:
    """Return the paths in the job's folder of the files that an epoch read, where its source's rows are copied there before it is planned.

    >>> files_of({"slot": "a", "files": [{"path": "sources/shop/rows-1.parquet", "rows": 3}]}), files_of({"logOffset": 3})
    (('sources/shop/rows-1.parquet',), ())
    """
    files = position.get("files") if isinstance(position, Mapping) else None
    return tuple(str(file["path"]) for file in files if isinstance(file, Mapping) and "path" in file) if isinstance(files, list) else ()


def offset_entry(before: str, offsets: Mapping[str, object | None]) -> str:
    """Return the text of an entry, from which a query of Spark's resumes.

    Args:
        before: the entry before, whose settings are kept; empty for none.
        offsets: of each source of the query, None where it has none yet.
    """
    header = before.splitlines()[:_HEADER_LINES] or ["v2", _SETTINGS]
    lines = (f"{name}:{_NO_OFFSET if offset is None else json.dumps(offset, separators=(',', ':'))}" for name, offset in offsets.items())
    return "\n".join([*header, *lines])
