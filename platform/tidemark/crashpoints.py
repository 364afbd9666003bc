"""Named points at which a test may kill the process, to prove that a crash there neither loses nor duplicates rows.

``TIDEMARK_CRASH_AT=name`` kills the process with SIGKILL the first time the point is reached, ``name:3`` the third time; ``-``
kills nothing and only counts. In production the variable is unset and a point costs one dictionary look-up.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

RUN_POINTS: Final = (
    "term-taken",
    "checkpoint-seeded",
    "epoch-planned",
    "state-staged",
    "compaction-staged",
    "output-staged",
    "outputs-staged",
    "source-log-saved",
    "segment-written",
    "before-commit",
    "after-commit",
    "table-created",
    "output-file-moved",
    "output-published",
    "outputs-published",
    "history-written",
    "retention-begun",
    "floor-raised",
    "retention-done",
    "sweep-marked",
    "sweep-done",
    "output-sweep-marked",
    "output-sweep-done",
    "epoch-done",
    "query-ended",
)
"""Points that a run reaches, epoch by epoch."""

OPERATION_POINTS: Final = (
    "pin-put",
    "files-held",
    "restored",
    "export-copied",
    "import-copied",
    "columns-added",
    "table-copied",
    "changes-copied",
    "slot-created",
    "slot-advanced",
    "output-republished",
    "database-loaded",
    "database-applied",
    "database-committed",
    "iceberg-manifests-written",
    "iceberg-committed",
    "rewind-stopping",
    "rewind-noted",
    "rewind-table-back",
    "rewind-tables-back",
    "rewind-restored",
    "rewind-done",
    "rewind-given-up",
    "rewind-table-kept",
    "rewind-note-gone",
    "upgrade-recorded",
    "upgrade-acted",
    "discard-noted",
    "discard-tables-gone",
    "discard-specs-gone",
    "discard-nearly-done",
)
"""Points of savepoints, restores, rewinds, upgrades and discards, of adding columns to tables, of copying tables that are looked up in and
changes of databases, and of publishing epochs again and to databases."""

CONNECTOR_POINTS: Final = (
    "transaction-begun",
    "records-sent",
    "marker-sent",
    "transaction-committed",
    "staged-rows-deleted",
)
"""Points between the commit of an epoch and the end of its publication by a connector."""

POINTS: Final[tuple[str, ...]] = (*RUN_POINTS, *OPERATION_POINTS, *CONNECTOR_POINTS)

KILLED: Final = "killed at crash point"
"""Printed to standard error before the value of ``TIDEMARK_CRASH_AT`` when the process is killed."""

_reached: dict[str, int] = {}


def crash_point(name: str) -> None:
    """Mark a step boundary; kills the process here if ``TIDEMARK_CRASH_AT`` says so.

    Raises:
        KeyError: the name is not in ``POINTS``, so that a test cannot wait for a point that does not exist.
    """
    wanted = os.environ.get("TIDEMARK_CRASH_AT")
    if wanted is None:
        return
    if name not in POINTS:
        raise KeyError(name)
    _reached[name] = _reached.get(name, 0) + 1
    point, _, count = wanted.partition(":")
    if point == name and _reached[name] == int(count or 1):
        # Unbuffered: SIGKILL discards whatever Python still buffers.
        os.write(2, f"{KILLED} {wanted}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)


def reached() -> Mapping[str, int]:
    """Return how often each point was reached in this process while ``TIDEMARK_CRASH_AT`` was set."""
    return MappingProxyType(dict(_reached))
