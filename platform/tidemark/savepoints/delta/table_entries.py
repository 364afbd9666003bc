"""Entries of a Delta table's log: what each commit did to the table's rows, as far as that is known without reading any of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from tidemark.savepoints.delta.delta_log_damage import damaged
from tidemark.state.delta.delta_tags import EPOCH, JOB, LINEAGE, REWIND
from tidemark.state.encoding.envelope import sha256
from tidemark.state.store.store import JobStore

STAGED: Final = "tidemark-"
"""Prefix of the paths of files that jobs write, and of those that maintenance makes of them."""

_ROWS_OF_SOME: Final = frozenset({"DELETE", "UPDATE", "MERGE"})
_NO_CONDITION: Final = frozenset({"", "[]", "true", '["true"]', '["(true)"]'})
_READ_AT_ONCE: Final = 32


@dataclass(frozen=True)
class Entry:
    """A commit: its version, its operation with parameters, and the tags that Tidemark's have.

    ``removed`` are the files whose rows it removed from the table, without those that were only rewritten; ``added`` are those with
    new rows, or with the remaining rows of removed files. ``digest`` is the checksum of the entry, ``at`` its
    time, in milliseconds.
    """

    version: int
    operation: str = ""
    parameters: Mapping[str, object] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    digest: str = ""
    at: int | None = None

    @property
    def foreign(self) -> bool:
        """Whether another writer made it."""
        return not self.tags

    @property
    def epoch(self) -> tuple[str, int] | None:
        """Lineage and epoch whose rows it shows, None for a commit that shows none."""
        return (self.tags[LINEAGE], int(self.tags.get(EPOCH, "-1"))) if LINEAGE in self.tags else None

    def of_job(self, job: str) -> bool:
        """Whether it shows an epoch of a job; of any job if the entry names none, as those of earlier releases do."""
        return LINEAGE in self.tags and (not job or self.tags.get(JOB, job) == job)

    @property
    def restores(self) -> bool:
        """Whether it makes the table what it was at an older version."""
        return self.operation == "RESTORE" and (self.foreign or REWIND in self.tags)

    @property
    def restored_version(self) -> int | None:
        """The version that it restores, None if it names a time instead."""
        found = self.parameters.get("version")
        try:
            return int(str(found))
        except ValueError:
            return None

    @property
    def removes_staged(self) -> int:
        """How many files that jobs wrote it removes."""
        return sum(path.startswith(STAGED) for path in self.removed)

    @property
    def replaces_all(self) -> bool:
        """Whether its operation leaves none of the earlier rows."""
        if not self.removed:
            return False
        if self.operation == "DELETE" or self._overwrites:
            return str(self.parameters.get("predicate") or "").strip() in _NO_CONDITION
        return self.operation == "TRUNCATE" or "REPLACE" in self.operation or "CLONE" in self.operation

    @property
    def replaces_some(self) -> bool:
        """Whether its operation changes the rows that match a condition."""
        return not self.replaces_all and (self.operation in _ROWS_OF_SOME or self._overwrites)

    @property
    def _overwrites(self) -> bool:
        return str(self.parameters.get("mode") or "").lower() == "overwrite"

    def __str__(self) -> str:
        """Return a description for messages."""
        if not self.restores:
            return f"version {self.version} is {'an' if self.operation[:1] in 'AEIOU' else 'a'} {self.operation or 'unnamed change'}"
        target = self.restored_version
        to = f"version {target}" if target is not None else "an earlier time"
        return f"version {self.version} is a RESTORE to {to}"


def read_entry(table: JobStore, version: int) -> Entry | None:
    """Return a version's entry, None if there is none: it has expired, or never existed. ``table`` is the store at the table.

    Raises:
        SinkError: it is damaged, or has no content.
        StoreError: it cannot be read.
    """
    path = f"_delta_log/{version:020d}.json"
    try:
        data = table.get(path)
    except FileNotFoundError:
        return None
    try:
        return entry_of(version, data)
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise damaged("", str(table.location), path.rpartition("/")[2]) from error


def read_entries(table: JobStore, first: int, last: int) -> list[Entry]:
    """Return the entries of some versions, oldest first, without those that have expired.

    Raises:
        SinkError: one is damaged.
        StoreError: one cannot be read.
    """
    versions = range(first, last + 1)
    if len(versions) <= 1:
        found = [read_entry(table, version) for version in versions]
    else:
        with ThreadPoolExecutor(min(len(versions), _READ_AT_ONCE)) as threads:
            found = list(threads.map(lambda version: read_entry(table, version), versions))
    return [entry for entry in found if entry is not None]


def entry_of(version: int, data: bytes) -> Entry:
    """Return an entry from its bytes: one action per line; ValueError if there is none."""
    actions: list[dict[str, Any]] = [json.loads(line) for line in data.split(b"\n") if line.strip()]
    if not actions:
        raise ValueError("no action")
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    at = info.get("timestamp")
    return Entry(
        version,
        operation=str(info.get("operation") or ""),
        parameters=info.get("operationParameters") or {},
        tags={key: str(value) for key, value in info.items() if key.startswith("tidemark.")},
        removed=tuple(action["remove"]["path"] for action in actions if action.get("remove", {}).get("dataChange")),
        added=tuple(action["add"]["path"] for action in actions if action.get("add", {}).get("dataChange")),
        digest=sha256(data),
        at=at if isinstance(at, int) else None,
    )
