"""Which entry of a Delta table's log is damaged.

deltalake says only that one is, and treats one without content as a version that changes nothing.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Final

from tidemark.errors import SinkError, TidemarkError
from tidemark.state.encoding.redaction import redacted, without_secrets
from tidemark.state.store.store import JobStore

_ENTRY: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint\..*")
_LAST_CHECKPOINT: Final = "_last_checkpoint"
_MIN_BYTES: Final = 3
"""No action of an entry is shorter."""

_MAX_CHECKED_ENTRIES: Final = 200
"""How many of the newest entries are checked: older ones lie before a checkpoint, and are not read to open a table."""

_DAMAGED: Final = (
    "restore that file from a backup of the table; if it is the newest entry, which a crash of the disk cut off, delete it and start "
    "the job again: it reports what the table lacks"
)


def unreadable(output: str, location: str, error: Exception, *, fix: str) -> SinkError:
    """Return the error that a table cannot be read; it names the entry of its log that is damaged, where one is.

    Args:
        output: the output's name.
        location: of the table.
        error: deltalake's.
        fix: what to do if no entry is damaged.
    """
    entry = damaged_entry(location)
    if entry is not None:
        found = damaged(output, location, entry)
        found.__cause__ = without_secrets(error)
        return found
    lines = redacted(str(error)).strip().splitlines()
    what = lines[0] if lines else type(error).__name__
    found = SinkError(f"the Delta table of output {output!r} cannot be read: {what}", fix=fix, uid=output, place=location)
    found.__cause__ = without_secrets(error)
    return found


def damaged(output: str, location: str, entry: str) -> SinkError:
    """Return the error for a table whose log has a damaged entry of this name; the output's may be empty."""
    table = f"the Delta table of output {output!r}" if output else "a Delta table"
    return SinkError(
        f"{table} cannot be read: entry {entry} of its log is damaged",
        fix=_DAMAGED,
        uid=output or None,
        place=f"{location.rstrip('/')}/_delta_log/{entry}",
    )


def require_no_empty_entry(output: str, location: str) -> None:
    """Make sure that no entry by which a table is read is empty: its rows would be missing silently.

    Args:
        output: the output's name.
        location: of the table, which exists.

    Raises:
        SinkError: one is.
        StoreError: the table's log cannot be listed.
    """
    log = JobStore.open(location, make=False).at("_delta_log")
    files = log.list(start=_newest_checkpoint(log))
    checkpoint = max((int(found[1]) for file in files if (found := _CHECKPOINT.fullmatch(file.path))), default=-1)
    for file in files:
        found = _ENTRY.fullmatch(file.path)
        if found and file.size < _MIN_BYTES and int(found[1]) > checkpoint:
            raise damaged(output, location, file.path)


def _newest_checkpoint(log: JobStore) -> str:
    """Return the path in a table's log from which on entries are needed to read the table."""
    try:
        return f"{int(json.loads(log.get(_LAST_CHECKPOINT))['version']):020d}"
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return ""


def damaged_entry(location: str) -> str | None:
    """Return the name of the newest entry of a table's log that is empty or not whole JSON; None if none is found."""
    with suppress(TidemarkError, OSError):
        log = JobStore.open(location, make=False).at("_delta_log")
        names = sorted(name for file in log.list() if _ENTRY.fullmatch(name := file.path))
        return next((name for name in reversed(names[-_MAX_CHECKED_ENTRIES:]) if not _is_whole(log.get(name))), None)
    return None


def _is_whole(data: bytes) -> bool:
    try:
        lines = [json.loads(line) for line in data.split(b"\n") if line.strip()]
    except ValueError:
        return False
    return bool(lines)
