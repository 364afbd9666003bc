"""Operators that a stored epoch has no state of: what they begin with, and what they would get wrong."""

from __future__ import annotations

from collections.abc import Container

from tidemark.graph.checks.changelogs import changelog_keys
from tidemark.graph.model.nodes import ChangelogNode, Node, SourceNode, StatefulNode, walk
from tidemark.savepoints.model.verdict import Finding, OperatorVerdict
from tidemark.state.log.records import EpochRecord


def check_new_operator(uid: str, node: StatefulNode, record: EpochRecord, stored: Container[str]) -> OperatorVerdict:
    """Return the verdict on an operator that has no stored state.

    One that takes elements begins without state. One that takes a changelog would be given updates and deletes of rows that it has never
    had, and take them back from results without them.

    Args:
        uid: its uid.
        node: the operator.
        record: the epoch.
        stored: uids of the job's operators that have stored state.
    """
    origins = [origin for port in node.ports if (origin := _origin_with_rows(port.node, record, stored))]
    if not origins:
        return OperatorVerdict(uid, None, "new", (Finding("it is new, and begins without state", "compatible"),))
    finding = Finding(
        f"it is new, and takes the changes of {' and of '.join(origins)}: it would take back rows that it has never been given",
        "incompatible",
        "its results of all rows that are there already",
        "give it those rows, as tables(UID, spark) of tm.savepoint(job) has them: tm.changed_savepoint(FOLDER, tm.savepoint(job), "
        f"spark=spark), with .bootstrap(job, {uid!r}, ROWS, time='current_timestamp()') and .write(NAME), then "
        "tm.import_savepoint(job, FOLDER), and restore NAME; or run the job under another name and with other tables, from the beginning of "
        "its input",
    )
    return OperatorVerdict(uid, None, "incompatible", (finding,))


def _origin_with_rows(node: Node, record: EpochRecord, stored: Container[str]) -> str:
    """Return what makes a changelog's rows, in words, if there may be some before the first that a new operator gets."""
    if changelog_keys(node) is None:
        return ""
    while not isinstance(node, ChangelogNode | StatefulNode):
        node = node.inputs[0]
    if isinstance(node, StatefulNode):
        found = record.operators.get(node.uid or "") if node.uid in stored else None
        return f"{node.uid!r}, which has rows" if found is not None and any(file.rows for file in found.files) else ""
    if node.operation is None:
        return ""
    read = [source.name for source in walk((node,)) if isinstance(source, SourceNode) and source.name in record.sources]
    return f"source {read[0]!r}, which was read before" if read else ""
