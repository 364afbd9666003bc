"""Whether the rows of an output fit its table; reads the catalog, and writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemark.errors import TidemarkError
from tidemark.graph.connectors.postgres.checks import column_fault
from tidemark.graph.connectors.postgres.node import PostgresSpec
from tidemark.graph.connectors.postgres.types import postgres_type
from tidemark.savepoints.model.stored_types import shown_type
from tidemark.savepoints.model.table_columns import Columns
from tidemark.savepoints.model.verdict import Finding, Fit, OutputVerdict
from tidemark.savepoints.postgres.database import PostgresError, transaction
from tidemark.savepoints.postgres.ledger import Ledger
from tidemark.savepoints.postgres.tables import StoredTable, has_rows, read_table, require_server, table_findings

if TYPE_CHECKING:
    from tidemark.savepoints.postgres.database import PostgresConnection


def is_blank(connection: PostgresConnection, ledger: Ledger) -> bool:
    """Return whether an existing table is as its output created it: nothing was published to it, and it has no rows."""
    if not ledger.is_own(connection) or ledger.wrote(connection) or ledger.has_others(connection):
        return False
    return not has_rows(connection, ledger.table)


def check_postgres(name: str, spec: PostgresSpec, wanted: Columns | None, *, job: str) -> OutputVerdict | None:
    """Return whether rows fit a table; None where there is none yet, or one that never had rows.

    Args:
        name: the output's.
        spec: the output's sink.
        wanted: types of the rows' columns, None if they are known only when the job runs.
        job: the job's name.
    """
    ledger = Ledger(spec.table, job, name)
    try:
        with transaction(spec.table) as connection:
            require_server(connection, spec.table, name)
            stored = read_table(connection, spec.table)
            if stored is None or is_blank(connection, ledger):
                return None
            own = ledger.is_own(connection)
    except (PostgresError, TidemarkError) as error:
        return _unknown(name, spec, f"the table cannot be read: {error.what}")
    if wanted is None:
        return _unknown(name, spec, "the columns of its rows are known only when the job runs")
    faults = [column_fault(column, None if kind is None else shown_type(kind)) for column, kind in wanted.items()]
    findings = [Finding(fault[0], "incompatible", fix=fault[1]) for fault in faults if fault is not None]
    if not findings:
        findings = table_findings(spec.table, stored, _types(wanted, stored), spec.keys, own=own)
    fits = {finding.fit for finding in findings}
    status: Fit = "incompatible" if "incompatible" in fits else "migrates" if "migrates" in fits else "compatible"
    return OutputVerdict(name, spec.kind, spec.location, status, tuple(findings))


def _types(wanted: Columns, stored: StoredTable) -> Mapping[str, str]:
    """Return the types of Postgres of columns; of those that are not certain, the table's."""
    found = {}
    for name, kind in wanted.items():
        there = stored.columns.get(name)
        known = None if kind is None else postgres_type(shown_type(kind), name)
        found[name] = known or (there.type if there is not None else "of a type that is known only when the job runs")
    return found


def _unknown(name: str, spec: PostgresSpec, why: str) -> OutputVerdict:
    return OutputVerdict(name, spec.kind, spec.location, "unknown", (Finding(why, "compatible"),))
