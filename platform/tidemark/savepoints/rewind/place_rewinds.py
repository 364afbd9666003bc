"""What a rewind does to the places of connectors: which of them can be rewound, and how; one entry for each connector."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

from tidemark.savepoints.database.rewinding import DatabaseRewind
from tidemark.savepoints.iceberg.rewinding import IcebergRewind
from tidemark.savepoints.model.place_plan import PlacePlan
from tidemark.savepoints.model.rewind_journal import RewindJournal
from tidemark.savepoints.postgres.dialect import postgres_table
from tidemark.savepoints.sql_table.dialects import sql_table_of
from tidemark.state.gc.pins import LaterLineages
from tidemark.state.log.records import EpochRecord, SinkPosition


class PlaceRewind(Protocol):
    """How the places of one connector are rewound; every step is idempotent."""

    def plan(self, output: str, location: str, stored: EpochRecord, head: EpochRecord, later: LaterLineages) -> PlacePlan:
        """Return what a rewind would do to a place, and what blocks it; writes nothing.

        Args:
            output: its name.
            location: of the place.
            stored: the savepoint's epoch.
            head: the job's newest epoch.
            later: lineages that came after the savepoint's epoch.

        Raises:
            SinkError: the place cannot be read.
        """
        ...

    def revert(self, job: str, output: str, location: str, journal: RewindJournal) -> bool:
        """Delete what was published after the savepoint's epoch, and fence the ended lineage; returns whether there was anything.

        Raises:
            RewindError: the place has changed since the plan, or the rewind was aborted.
            PublishError: it could not be rewound now.
        """
        ...

    def position(self, output: str, location: str, stored: EpochRecord) -> SinkPosition | None:
        """Return the position that a place has after the rewind, which the next start checks; None if nothing is known of it.

        Args:
            output: its name.
            location: of the place.
            stored: the savepoint's epoch.
        """
        ...

    def applied_change(self, job: str, output: str, location: str, journal: RewindJournal) -> str | None:
        """Return what a rewind already did to a place that cannot be undone, None if nothing.

        Raises:
            SinkError: the place cannot be read.
        """
        ...

    def fence_aborted(self, job: str, output: str, location: str, journal: RewindJournal) -> str | None:
        """Mark a rewind as aborted, so that a suspended one cannot change the place; returns what ``applied_change`` does.

        Raises:
            SinkError: the place cannot be read.
            PublishError: it cannot be written to now.
        """
        ...


PLACE_REWINDS: Final[Mapping[str, PlaceRewind]] = MappingProxyType(
    {"iceberg": IcebergRewind(), "postgres": DatabaseRewind(postgres_table), "sql_table": DatabaseRewind(sql_table_of)}
)
"""By the kind of sink that records have."""
