"""The table ``tidemark_epochs``: a row for each epoch that was published to a table beside it, written in the epoch's transaction.

An epoch is published if its lineage has a row with its number or a later one. ``term`` is that of the driver that published it last; an
older driver is refused. Of each lineage the newest rows are kept, so that the table stays small, and the oldest and the newest row of each
table and mode: they show whether a lineage has epochs in a table that a rewind cannot revert.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tidemark.errors import FencedError
from tidemark.graph.connectors.database.node import BOOKKEEPING, DatabaseTable
from tidemark.savepoints.database.dialect import Dialect
from tidemark.savepoints.database.session import Session

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

_MARKS: Final = f"('{REWOUND}', '{ABORTED}')"
"""Modes of rows that stand for no rows of a table, as SQL."""

_EPOCHS_OF_TABLE: Final = f"job = %s AND output = %s AND table_name = %s AND mode NOT IN {_MARKS}"


@dataclass(frozen=True)
class LineageEpochs:
    """What a table holds of a lineage: its newest epoch, the newest driver's term, and the last epoch that a rewind has left, if any."""

    epoch: int
    term: int
    kept: int | None = None


@dataclass(frozen=True)
class Ledger:
    """The published epochs of one output of a job in one table."""

    dialect: Dialect
    table: DatabaseTable
    job: str
    output: str

    def exists(self, session: Session) -> bool:
        """Return whether there is a table of epochs."""
        return self.dialect.has_table(session, self.table, BOOKKEEPING)

    def make(self, session: Session) -> None:
        """Create the table of epochs unless it exists."""
        if not self.exists(session):
            self.dialect.make_epochs(session, self.table, BOOKKEEPING)

    def lock(self, session: Session) -> None:
        """Wait until no other transaction publishes or rewinds this output, and keep others waiting until this one ends."""
        self.dialect.lock(session, "/".join(filter(None, ["tidemark", self.table.schema, self.job, self.output])))

    def lineage(self, session: Session, lineage: str) -> LineageEpochs | None:
        """Return what the table of epochs says of a lineage, None where it has none of its epochs."""
        if not self.exists(session):
            return None
        ((epoch, term, kept),) = session.query(
            f"SELECT max(epoch), max(term), max(kept) FROM {self._name} WHERE job = %s AND lineage = %s AND output = %s",
            [self.job, lineage, self.output],
        )
        return LineageEpochs(int(epoch), int(term), kept) if epoch is not None else None

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

    def raise_term(self, session: Session, lineage: str, term: int) -> None:
        """Note the newest driver's term with a lineage's newest epoch, so that older drivers are refused from now on. Needs the lock."""
        known = self.lineage(session, lineage)
        if known is not None:
            session.query(
                f"UPDATE {self._name} SET term = %s WHERE job = %s AND lineage = %s AND output = %s AND epoch = %s AND term < %s",
                [term, self.job, lineage, self.output, known.epoch, term],
            )

    def raise_other_terms(self, session: Session, lineage: str, term: int) -> None:
        """Note the newest driver's term with the other lineages of this output, which a restore has left, when one begins. Needs the lock.

        Of those that a rewind has ended all epochs count as published.
        """
        newest = session.query(
            f"SELECT lineage, max(epoch) FROM {self._name} WHERE job = %s AND output = %s AND lineage <> %s GROUP BY lineage",
            [self.job, self.output, lineage],
        )
        for other, epoch in newest:
            session.query(
                f"UPDATE {self._name} SET term = %s WHERE job = %s AND lineage = %s AND output = %s AND epoch = %s AND term < %s "
                "AND kept IS NULL",
                [term, self.job, other, self.output, epoch, term],
            )

    def add(
        self,
        session: Session,
        lineage: str,
        epoch: int,
        *,
        mode: str,
        term: int = 0,
        rows: int = 0,
        kept: int | None = None,
    ) -> None:
        """Write the row of an epoch, and delete rows of the lineage that are far older. Needs the lock.

        A row of that number keeps its table and mode.
        """
        key = [self.job, lineage, self.output]
        same = "job = %s AND lineage = %s AND output = %s"
        there = session.query(f"SELECT term FROM {self._name} WHERE {same} AND epoch = %s", [*key, epoch])
        if there:
            session.query(
                f"UPDATE {self._name} SET term = %s, kept = %s WHERE {same} AND epoch = %s",
                [max(int(there[0][0]), term), kept, *key, epoch],
            )
        else:
            columns = self.dialect.listed(["job", "lineage", "output", "epoch", "table_name", "mode", "term", "rows", "kept"])
            session.query(
                f"INSERT INTO {self._name} ({columns}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
                [*key, epoch, self.table.name, mode, term, rows, kept],
            )
        self._forget_old(session, key, epoch - KEPT_EPOCHS)

    def _forget_old(self, session: Session, key: list[str], before: int) -> None:
        same = "job = %s AND lineage = %s AND output = %s"
        if not session.query(f"SELECT 1 FROM {self._name} WHERE {same} AND epoch < %s LIMIT 1", [*key, before]):
            return
        bounds = session.query(f"SELECT min(epoch), max(epoch) FROM {self._name} WHERE {same} GROUP BY table_name, mode", key)
        kept = sorted({int(epoch) for found in bounds for epoch in found})
        marks = ", ".join(["%s"] * len(kept))
        session.query(f"DELETE FROM {self._name} WHERE {same} AND epoch < %s AND epoch NOT IN ({marks})", [*key, before, *kept])

    def mark_rewound(self, session: Session, rewind: str, epoch: int) -> None:
        """Note that a rewind has rewound the table to an epoch."""
        self.add(session, self._rewound(rewind), epoch, mode=REWOUND)

    def is_rewound(self, session: Session, rewind: str) -> bool:
        """Return whether a rewind has rewound the table."""
        return self.lineage(session, self._rewound(rewind)) is not None

    def _rewound(self, rewind: str) -> str:
        return f"{REWOUND} {self.table.name} {rewind}"

    def add_created(self, session: Session) -> None:
        """Note that this output creates the table."""
        self.add(session, f"{CREATED} {self.table.name}", -1, mode=CREATED)

    def is_own(self, session: Session) -> bool:
        """Return whether this output has created the table, or published to it."""
        return self.wrote(session) or self.has_created(session)

    def is_blank(self, session: Session) -> bool:
        """Return whether an existing table is as its output created it: nothing was published to it, and it has no rows."""
        if not self.is_own(session) or self.wrote(session) or self.has_others(session):
            return False
        return not self.dialect.has_rows(session, self.table)

    def wrote(self, session: Session) -> bool:
        """Return whether this output has published to the table."""
        return self._has(session, "job = %s AND output = %s AND epoch >= 0")

    def has_created(self, session: Session) -> bool:
        """Return whether this output has created the table."""
        return self._has(session, "job = %s AND output = %s AND epoch < 0")

    def has_others(self, session: Session) -> bool:
        """Return whether another output, or another job's, has published to the table."""
        return self._has(session, "(job <> %s OR output <> %s) AND epoch >= 0")

    def later_epochs(self, session: Session, epoch: int) -> Mapping[str, frozenset[str]]:
        """Return the lineages of this output that have epochs after one in the table, each with the modes of these."""
        if not self.exists(session):
            return {}
        found: dict[str, set[str]] = {}
        rows = session.query(
            f"SELECT lineage, mode FROM {self._name} WHERE {_EPOCHS_OF_TABLE} AND epoch > %s GROUP BY lineage, mode",
            [self.job, self.output, self.table.name, epoch],
        )
        for lineage, mode in rows:
            found.setdefault(lineage, set()).add(mode)
        return {lineage: frozenset(modes) for lineage, modes in found.items()}

    def began(self, session: Session, epoch: int) -> Mapping[str, datetime]:
        """Return the lineages of this output that have epochs up to one in the table, and when the first of these was published."""
        if not self.exists(session):
            return {}
        rows = session.query(
            f"SELECT lineage, min(published_at) FROM {self._name} WHERE {_EPOCHS_OF_TABLE} AND epoch BETWEEN 0 AND %s GROUP BY lineage",
            [self.job, self.output, self.table.name, epoch],
        )
        return {lineage: datetime.fromisoformat(at) if isinstance(at, str) else at for lineage, at in rows}

    def delete_later(self, session: Session, epoch: int) -> None:
        """Delete the rows of this output's epochs after one."""
        session.query(f"DELETE FROM {self._name} WHERE {_EPOCHS_OF_TABLE} AND epoch > %s", [self.job, self.output, self.table.name, epoch])

    def aborts(self, session: Session, rewind: str) -> int:
        """Return the number of the newest abort of a rewind, 0 if there was none."""
        known = self.lineage(session, rewind)
        return known.epoch if known is not None else 0

    def _has(self, session: Session, condition: str) -> bool:
        """Return whether the table has an epoch; the condition compares job and output."""
        return self.exists(session) and bool(
            session.query(
                f"SELECT 1 FROM {self._name} WHERE table_name = %s AND mode NOT IN {_MARKS} AND {condition} LIMIT 1",
                [self.table.name, self.job, self.output],
            )
        )

    @property
    def _name(self) -> str:
        return self.dialect.full_name(self.table, BOOKKEEPING)
