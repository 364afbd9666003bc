"""Whether the rows of an output fit its table; reads the table's metadata, and writes nothing."""

from __future__ import annotations

from tidemark.errors import TidemarkError
from tidemark.graph.connectors.iceberg.checks import column_fault
from tidemark.graph.connectors.iceberg.node import IcebergSpec
from tidemark.savepoints.iceberg.catalogs import IcebergError, catalog_of, load
from tidemark.savepoints.iceberg.columns import table_findings
from tidemark.savepoints.iceberg.history import Ledger
from tidemark.savepoints.model.stored_types import shown_type
from tidemark.savepoints.model.table_columns import Columns
from tidemark.savepoints.model.verdict import Finding, Fit, OutputVerdict


def check_iceberg(name: str, spec: IcebergSpec, wanted: Columns | None, *, job: str) -> OutputVerdict | None:
    """Return whether rows fit a table; None where there is none yet, or one that never had rows.

    Args:
        name: the output's.
        spec: the output's sink.
        wanted: types of the rows' columns, None if they are known only when the job runs.
        job: the job's name.
    """
    ledger = Ledger(job, name)
    try:
        with catalog_of(spec.table) as catalog:
            table = load(catalog, spec.table)
            if table is None or ledger.is_blank(table):
                return None
            if wanted is None:
                return _unknown(name, spec, "the columns of its rows are known only when the job runs")
            faults = [column_fault(column, None if kind is None else shown_type(kind)) for column, kind in wanted.items()]
            findings = [Finding(fault[0], "incompatible", fix=fault[1]) for fault in faults if fault is not None]
            findings = findings or list(table_findings(table, wanted, spec.partition_by, own=ledger.owns(table)))
    except (IcebergError, TidemarkError) as error:
        return _unknown(name, spec, f"the table cannot be read: {error.what}")
    fits = {finding.fit for finding in findings}
    status: Fit = "incompatible" if "incompatible" in fits else "migrates" if "migrates" in fits else "compatible"
    return OutputVerdict(name, spec.kind, spec.location, status, tuple(findings))


def _unknown(name: str, spec: IcebergSpec, why: str) -> OutputVerdict:
    return OutputVerdict(name, spec.kind, spec.location, "unknown", (Finding(why, "compatible"),))
