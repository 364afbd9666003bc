"""The table ``tidemark_epochs``: a row for each epoch that was published to a table of the same schema, written in the epoch's transaction.

An epoch is published if its lineage has a row with its number or a later one. ``term`` is that of the driver that published it last; an
older driver is refused. Of each lineage the newest rows are kept, so that the table stays small, and the oldest and the newest row of each
table and mode: they show whether a lineage has epochs in a table that a rewind cannot revert.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, LiteralString

from tidemark.errors import FencedError
from tidemark.graph.connectors.postgres.checks import BOOKKEEPING
from tidemark.graph.connectors.postgres.node import PostgresTable

if TYPE_CHECKING:
    from psycopg import sql

    from tidemark.savepoints.postgres.database import PostgresConnection

KEPT_EPOCHS: Final = 1000
"""Rows of a lineage that are kept behind its newest epoch."""

CREATED: Final = "created"
"""Mode of the row that says that an output has created its table. Its lineage begins so, too, and its epoch is -1."""

HISTORY: Final = "history"
"""Mode of an epoch whose rows have its number; others are ``append`` and ``upsert``."""

REWOUND: Final = "rewound"
"""Mode of the row of a lineage that a rewind has ended: its later epochs were deleted, and count as published. The row that notes that a
rewind has rewound a table has it, too, and its lineage begins so."""

ABORTED: Final = "aborted"
"""Mode of the row that marks a rewind, named as its lineage, as aborted for the n-th time."""

_MARKS: Final = [REWOUND, ABORTED]
"""Modes of rows that stand for no rows of a table."""


@dataclass(frozen=True)
class LineageEpochs:
    """What a table holds of a lineage: its newest epoch, the newest driver's term, and the last epoch that a rewind has left, if any."""

    epoch: int
    term: int
    kept: int | None = None


@dataclass(frozen=True)
class Ledger:
    """The published epochs of one output of a job in one table."""

    table: PostgresTable
    job: str
    output: str

    def exists(self, connection: PostgresConnection) -> bool:
        """Return whether the schema has the table of epochs."""
        found = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [self._name(connection)]).fetchone()
        return found is not None and bool(found[0])

    def make(self, connection: PostgresConnection) -> None:
        """Create the table of epochs unless it exists."""
        from psycopg import sql

        if self.exists(connection):
            return
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"tidemark/{self.table.schema}"])
        if self.exists(connection):
            return
        connection.execute(
            sql.SQL(
                "CREATE TABLE {} (job text NOT NULL, lineage text NOT NULL, output text NOT NULL, epoch bigint NOT NULL, "
                "table_name text NOT NULL, mode text NOT NULL, term bigint NOT NULL, rows bigint NOT NULL, kept bigint, "
                "published_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (job, lineage, output, epoch))"
            ).format(self._identifier())
        )

    def lock(self, connection: PostgresConnection) -> None:
        """Wait until no other transaction publishes or rewinds this output, and keep others waiting until this one ends."""
        key = f"tidemark/{self.table.schema}/{self.job}/{self.output}"
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [key])

    def lineage(self, connection: PostgresConnection, lineage: str) -> LineageEpochs | None:
        """Return what the table of epochs says of a lineage, None where it has none of its epochs."""
        from psycopg import sql

        if not self.exists(connection):
            return None
        found = connection.execute(
            sql.SQL("SELECT max(epoch), max(term), max(kept) FROM {} WHERE job = %s AND lineage = %s AND output = %s").format(
                self._identifier()
            ),
            [self.job, lineage, self.output],
        ).fetchone()
        return LineageEpochs(int(found[0]), int(found[1]), found[2]) if found is not None and found[0] is not None else None

    def require_newest_driver(self, known: LineageEpochs | None, term: int) -> None:
        """Refuse a driver whose term is older than that of one which has published already.

        Raises:
            FencedError: it is.
        """
        if known is not None and known.term > term:
            raise FencedError(
                f"the driver of term {known.term} has published to {self.table.label}, and this one has term {term}",
                fix="nothing: the newer driver continues the job",
                job=self.job,
                uid=self.output,
                place=self.table.location,
            )

    def raise_term(self, connection: PostgresConnection, lineage: str, term: int) -> None:
        """Note the newest driver's term with a lineage's newest epoch, so that older drivers are refused from now on."""
        from psycopg import sql

        connection.execute(
            sql.SQL(
                "UPDATE {table} SET term = %s WHERE job = %s AND lineage = %s AND output = %s AND term < %s AND epoch = "
                "(SELECT max(epoch) FROM {table} WHERE job = %s AND lineage = %s AND output = %s)"
            ).format(table=self._identifier()),
            [term, *(key := [self.job, lineage, self.output]), term, *key],
        )

    def raise_other_terms(self, connection: PostgresConnection, lineage: str, term: int) -> None:
        """Note the newest driver's term with the other lineages of this output, which a restore has left, when one begins.

        Of those that a rewind has ended all epochs count as published.
        """
        from psycopg import sql

        connection.execute(
            sql.SQL(
                "UPDATE {table} AS stored SET term = %s WHERE job = %s AND output = %s AND lineage <> %s AND term < %s AND kept IS NULL "
                "AND epoch = (SELECT max(epoch) FROM {table} "
                "WHERE job = stored.job AND lineage = stored.lineage AND output = stored.output)"
            ).format(table=self._identifier()),
            [term, self.job, self.output, lineage, term],
        )

    def add(
        self,
        connection: PostgresConnection,
        lineage: str,
        epoch: int,
        *,
        mode: str,
        term: int = 0,
        rows: int = 0,
        kept: int | None = None,
    ) -> None:
        """Write the row of an epoch, and delete rows of the lineage that are far older. A row of that number keeps its table and mode."""
        from psycopg import sql

        key = [self.job, lineage, self.output]
        connection.execute(
            sql.SQL(
                "INSERT INTO {} AS stored (job, lineage, output, epoch, table_name, mode, term, rows, kept) "
                "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) "
                "ON CONFLICT (job, lineage, output, epoch) DO UPDATE SET term = greatest(stored.term, EXCLUDED.term), kept = EXCLUDED.kept"
            ).format(self._identifier()),
            [*key, epoch, self.table.name, mode, term, rows, kept],
        )
        connection.execute(
            sql.SQL(
                "DELETE FROM {table} WHERE job = %s AND lineage = %s AND output = %s AND epoch < %s AND epoch NOT IN "
                "(SELECT unnest(ARRAY[min(epoch), max(epoch)]) FROM {table} WHERE job = %s AND lineage = %s AND output = %s "
                "GROUP BY table_name, mode)"
            ).format(table=self._identifier()),
            [*key, epoch - KEPT_EPOCHS, *key],
        )

    def mark_rewound(self, connection: PostgresConnection, rewind: str, epoch: int) -> None:
        """Note that a rewind has rewound the table to an epoch."""
        self.add(connection, self._rewound(rewind), epoch, mode=REWOUND)

    def is_rewound(self, connection: PostgresConnection, rewind: str) -> bool:
        """Return whether a rewind has rewound the table."""
        return self.lineage(connection, self._rewound(rewind)) is not None

    def _rewound(self, rewind: str) -> str:
        return f"{REWOUND} {self.table.name} {rewind}"

    def add_created(self, connection: PostgresConnection) -> None:
        """Note that this output has created the table."""
        self.add(connection, f"{CREATED} {self.table.name}", -1, mode=CREATED)

    def is_own(self, connection: PostgresConnection) -> bool:
        """Return whether this output has created the table, or published to it."""
        return self.wrote(connection) or self.has_created(connection)

    def wrote(self, connection: PostgresConnection) -> bool:
        """Return whether this output has published to the table."""
        return self._has(connection, "job = %s AND output = %s AND epoch >= 0")

    def has_created(self, connection: PostgresConnection) -> bool:
        """Return whether this output has created the table."""
        return self._has(connection, "job = %s AND output = %s AND epoch < 0")

    def has_others(self, connection: PostgresConnection) -> bool:
        """Return whether another output, or another job's, has published to the table."""
        return self._has(connection, "(job <> %s OR output <> %s) AND epoch >= 0")

    def later_epochs(self, connection: PostgresConnection, epoch: int) -> Mapping[str, frozenset[str]]:
        """Return the lineages of this output that have epochs after one in the table, each with the modes of these."""
        from psycopg import sql

        if not self.exists(connection):
            return {}
        found: dict[str, set[str]] = {}
        rows = connection.execute(
            sql.SQL(
                "SELECT lineage, mode FROM {} WHERE job = %s AND output = %s AND table_name = %s AND epoch > %s AND mode <> ALL (%s) "
                "GROUP BY lineage, mode"
            ).format(self._identifier()),
            [self.job, self.output, self.table.name, epoch, _MARKS],
        )
        for lineage, mode in rows:
            found.setdefault(lineage, set()).add(mode)
        return {lineage: frozenset(modes) for lineage, modes in found.items()}

    def began(self, connection: PostgresConnection, epoch: int) -> Mapping[str, datetime]:
        """Return the lineages of this output that have epochs up to one in the table, and when the first of these was published."""
        from psycopg import sql

        if not self.exists(connection):
            return {}
        rows = connection.execute(
            sql.SQL(
                "SELECT lineage, min(published_at) FROM {} WHERE job = %s AND output = %s AND table_name = %s AND epoch BETWEEN 0 AND %s "
                "AND mode <> ALL (%s) GROUP BY lineage"
            ).format(self._identifier()),
            [self.job, self.output, self.table.name, epoch, _MARKS],
        )
        return dict(rows.fetchall())

    def delete_later(self, connection: PostgresConnection, epoch: int) -> None:
        """Delete the rows of this output's epochs after one."""
        from psycopg import sql

        connection.execute(
            sql.SQL("DELETE FROM {} WHERE job = %s AND output = %s AND table_name = %s AND epoch > %s AND mode <> ALL (%s)").format(
                self._identifier()
            ),
            [self.job, self.output, self.table.name, epoch, _MARKS],
        )

    def aborts(self, connection: PostgresConnection, rewind: str) -> int:
        """Return the number of the newest abort of a rewind, 0 if there was none."""
        known = self.lineage(connection, rewind)
        return known.epoch if known is not None else 0

    def _has(self, connection: PostgresConnection, condition: LiteralString) -> bool:
        """Return whether the table has an epoch; the condition compares job and output."""
        from psycopg import sql

        if not self.exists(connection):
            return False
        found = connection.execute(
            sql.SQL("SELECT EXISTS (SELECT 1 FROM {} WHERE table_name = %s AND mode <> ALL (%s) AND ").format(self._identifier())
            + sql.SQL(condition)
            + sql.SQL(")"),
            [self.table.name, _MARKS, self.job, self.output],
        ).fetchone()
        return found is not None and bool(found[0])

    def _identifier(self) -> sql.Identifier:
        from psycopg import sql

        return sql.Identifier(self.table.schema, BOOKKEEPING)

    def _name(self, connection: PostgresConnection) -> str:
        return self._identifier().as_string(connection)
