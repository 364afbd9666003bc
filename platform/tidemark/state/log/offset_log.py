"""Parses the text of an entry in Spark's offset log."""

from __future__ import annotations

import json
from collections.abc import Mapping

_NO_OFFSET = "-"
_HEADER_LINES = 2
"""Spark's offset log: a version, a line of JSON, then one line per source."""


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
