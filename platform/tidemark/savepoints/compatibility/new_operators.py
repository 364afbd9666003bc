"""Operators that a stored epoch has no state of: what they begin with, and what they would get wrong."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.graph.checks.changelogs import changelog_keys
from tidemark.graph.model.nodes import ChangelogNode, Node, SourceNode, StatefulNode, walk
from tidemark.savepoints.model.verdict import Finding, OperatorVerdict
from tidemark.state.log.offset_log import positions
from tidemark.state.log.records import EpochRecord


def check_new_operator(uid: str, node: StatefulNode, record: EpochRecord, stored: Mapping[str, str]) -> OperatorVerdict:
    """Return the verdict on an operator that has no stored state.

    One that takes elements begins without state. One that takes a changelog would be given updates and deletes of rows that it has never
    had, and take them back from results without them.

    Args:
        uid: its uid.
        node: the operator.
        record: the epoch.
        stored: uids in the record, by those of the job's operators that have stored state.
    """
    origins = _origins_with_rows(node, record, stored)
    if not origins:
        return OperatorVerdict(uid, None, "new", (Finding("it is new, and begins without state", "compatible"),))
    finding = Finding(
        f"it is new, and takes the changes of {' and of '.join(origins)}: it would take back rows that it has never been given",
        "incompatible",
        "its results of all rows that are there already",
        f"give it those rows, {steps_of_bootstrap(uid, node)}; or run the job under another name and with other tables, from the beginning "
        "of its input",
    )
    return OperatorVerdict(uid, None, "incompatible", (finding,))


def steps_of_bootstrap(uid: str, node: StatefulNode, *, removed: bool = False) -> str:
    """Return how to give an operator the rows that its inputs have; ``removed``: in place of the state that it has."""
    rows = "ROWS" if len(node.ports) == 1 else "{" + ", ".join(f"{port.name!r}: ROWS" for port in node.ports) + "}"
    remove = f".remove({uid!r}), " if removed else ""
    return (
        "as tables(UID, spark) of tm.savepoint(job) has them: tm.changed_savepoint(FOLDER, tm.savepoint(job), spark=spark), with "
        f"{remove}.bootstrap(job, {uid!r}, {rows}, time='current_timestamp()') and .write(NAME), then tm.import_savepoint(job, FOLDER) "
        "and restore NAME"
    )


def takes_changes(node: StatefulNode) -> bool:
    """Return whether an input of an operator is a changelog, so that the operator has to have all of its rows."""
    return any(changelog_keys(port.node) is not None for port in node.ports)


def _origins_with_rows(node: StatefulNode, record: EpochRecord, stored: Mapping[str, str]) -> list[str]:
    """Return what makes the rows of the changelogs that an operator takes, in words, where there may be some before its first."""
    return list(dict.fromkeys(origin for port in node.ports for origin in _makers_with_rows(port.node, record, stored)))


def _makers_with_rows(node: Node, record: EpochRecord, stored: Mapping[str, str]) -> list[str]:
    if changelog_keys(node) is None:
        return []
    while not isinstance(node, ChangelogNode | StatefulNode):
        node = node.inputs[0]
    if isinstance(node, StatefulNode):
        old = stored.get(node.uid or "")
        if old is None:
            # It is new as well, and has the rows of its inputs as soon as it is given them.
            return _origins_with_rows(node, record, stored)
        found = record.operators.get(old)
        return [f"{node.uid!r}, which has rows"] if found is not None and any(file.rows for file in found.files) else []
    if node.operation is None:
        return []
    begun = {*record.sources, *positions(record.offsets)}
    read = [source.name for source in walk((node,)) if isinstance(source, SourceNode) and source.name in begun]
    return [f"source {name!r}, which was read before" for name in read[:1]]
