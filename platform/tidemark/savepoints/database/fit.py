"""Whether the rows of an output fit its table; reads the catalog, and writes nothing."""

from __future__ import annotations

from tidemark.errors import TidemarkError
from tidemark.graph.connectors.database.node import DatabaseSpec
from tidemark.savepoints.database.dialect import Dialect
from tidemark.savepoints.database.ledger import Ledger
from tidemark.savepoints.database.session import DatabaseError
from tidemark.savepoints.database.stored import StoredTable, Wanted, table_findings
from tidemark.savepoints.model.stored_types import shown_type
from tidemark.savepoints.model.table_columns import Columns
from tidemark.savepoints.model.verdict import Finding, Fit, OutputVerdict


def check_database_table(name: str, spec: DatabaseSpec, dialect: Dialect, wanted: Columns | None, *, job: str) -> OutputVerdict | None:
    """Return whether rows fit a table; None where there is none yet, or one that never had rows.

    Args:
        name: the output's.
        spec: the output's sink.
        dialect: of its database.
        wanted: types of the rows' columns, None if they are known only when the job runs.
        job: the job's name.
    """
    ledger = Ledger(dialect, spec.table, job, name)
    try:
        with dialect.transaction(spec.table) as session:
            dialect.require_server(session, spec.table, name)
            stored = dialect.read_table(session, spec.table)
            if stored is None or ledger.is_blank(session):
                return None
            own = ledger.is_own(session)
    except (DatabaseError, TidemarkError) as error:
        return _unknown(name, spec, f"the table cannot be read: {error.what}")
    if wanted is None:
        return _unknown(name, spec, "the columns of its rows are known only when the job runs")
    faults = [dialect.column_fault(column, None if kind is None else shown_type(kind)) for column, kind in wanted.items()]
    findings = [Finding(fault[0], "incompatible", fix=fault[1]) for fault in faults if fault is not None]
    if not findings:
        rows = Wanted(_types(dialect, wanted, stored, spec.keys), spec.keys)
        findings = table_findings(dialect, spec.table, stored, rows, own=own)
    fits = {finding.fit for finding in findings}
    status: Fit = "incompatible" if "incompatible" in fits else "migrates" if "migrates" in fits else "compatible"
    return OutputVerdict(name, spec.kind, spec.location, status, tuple(findings))


def _types(dialect: Dialect, wanted: Columns, stored: StoredTable, keys: tuple[str, ...]) -> dict[str, str]:
    """Return the database's types of columns; of those that are not certain, the table's."""
    found = {}
    for name, kind in wanted.items():
        there = stored.columns.get(name)
        known = None if kind is None else dialect.type_of(shown_type(kind), name)
        found[name] = known or (there.type if there is not None else "of a type that is known only when the job runs")
    return dialect.with_keys(found, keys)


def _unknown(name: str, spec: DatabaseSpec, why: str) -> OutputVerdict:
    return OutputVerdict(name, spec.kind, spec.location, "unknown", (Finding(why, "compatible"),))
