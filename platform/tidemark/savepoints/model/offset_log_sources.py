"""Positions of sources in the text of an entry in Spark's offset log: a version, a line of JSON, then one line per source."""

from __future__ import annotations

from collections.abc import Collection

_HEADER_LINES = 2


def offset_log_sources(offsets: str) -> tuple[str, ...]:
    r"""Return the names of the sources that have a line, also where they have no position yet.

    >>> offset_log_sources('v2\n{}\ntrips:{"logOffset":3}\nzones:-')
    ('trips', 'zones')
    """
    return tuple(line.partition(":")[0] for line in offsets.splitlines()[_HEADER_LINES:])


def without_sources(offsets: str, names: Collection[str]) -> str:
    r"""Return the text without the positions of some sources.

    >>> without_sources('v2\n{}\ntrips:{"logOffset":3}\nzones:-', {"zones"})
    'v2\n{}\ntrips:{"logOffset":3}'
    """
    lines = offsets.splitlines()
    kept = [line for line in lines[_HEADER_LINES:] if line.partition(":")[0] not in names]
    return "\n".join([*lines[:_HEADER_LINES], *kept]) if kept else ""
