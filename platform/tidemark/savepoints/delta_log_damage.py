"""Which entry of a Delta table's log is damaged, where the table cannot be read: the library below says only that one is."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Final

from tidemark.errors import SinkError, TidemarkError
from tidemark.state.redaction import redacted, without_secrets
from tidemark.state.store import JobStore

_ENTRY: Final = re.compile(r"(\d{20})\.json")
_LOOKED_AT: Final = 200
"""So many of the newest entries: what is older lies behind a checkpoint, and is not read to open a table."""

_DAMAGED: Final = (
    "restore that file from a backup of the table; where it is the newest entry, which a crash of the disk cut off, delete it and start "
    "the job again: it says what the table lacks"
)


def unreadable(output: str, location: str, error: Exception, *, fix: str) -> SinkError:
    """Return the error that a table cannot be read; it names the entry of its log that is damaged, where one is.

    Args:
        output: the output's name.
        location: of the table.
        error: of the library below.
        fix: what to do where no entry is damaged.
    """
    entry = damaged_entry(location)
    lines = redacted(str(error)).strip().splitlines()
    what = f"entry {entry} of its log is damaged" if entry is not None else lines[0] if lines else type(error).__name__
    found = SinkError(
        f"the Delta table of output {output!r} cannot be read: {what}",
        fix=fix if entry is None else _DAMAGED,
        uid=output,
        place=location if entry is None else f"{location.rstrip('/')}/_delta_log/{entry}",
    )
    found.__cause__ = without_secrets(error)
    return found


def damaged_entry(location: str) -> str | None:
    """Return the name of the newest entry of a table's log that is empty or not whole JSON; None where none is found."""
    with suppress(TidemarkError, OSError):
        log = JobStore.open(location, make=False).at("_delta_log")
        names = sorted(name for file in log.list() if _ENTRY.fullmatch(name := file.path))
        return next((name for name in reversed(names[-_LOOKED_AT:]) if not _is_whole(log.get(name))), None)
    return None


def _is_whole(data: bytes) -> bool:
    try:
        lines = [json.loads(line) for line in data.splitlines() if line.strip()]
    except ValueError:
        return False
    return bool(lines)
