"""Compares an epoch's state and positions with a job: every difference at once, from the record alone."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.errors import DefinitionError
from tidemark.graph.job.job import Job
from tidemark.graph.model.nodes import StatefulNode
from tidemark.graph.operators.changes import SAME, Names
from tidemark.graph.operators.registry import definition_changes, describe_state, encode, stored_state
from tidemark.savepoints.compatibility.new_operators import check_new_operator
from tidemark.savepoints.compatibility.operators import check_operator
from tidemark.savepoints.compatibility.sources import check_sources
from tidemark.savepoints.model.restore_words import LEAVE_BEHIND, by_restore
from tidemark.savepoints.model.verdict import Finding, OperatorVerdict, OutputVerdict, Verdict
from tidemark.state.log.records import EpochRecord, OperatorState

StateTypes = Mapping[str, Mapping[str, object]]
"""Spark's JSON of the types that the columns of each operator's state have from now on, by uid and column."""


def check_compatibility(
    record: EpochRecord,
    job: Job,
    *,
    uids: Names = SAME,
    columns: Mapping[str, Names] | None = None,
    allow_non_restored_state: bool = False,
    types: StateTypes | None = None,
    outputs: tuple[OutputVerdict, ...] = (),
) -> Verdict:
    """Return whether a job can resume from an epoch's state and positions, with every difference.

    Args:
        record: the epoch.
        job: the job that is to resume; its name may differ.
        uids: new uids by stored ones, None for an operator whose state is dropped.
        columns: new names of keys, aggregates and stream columns by old ones, for each uid of the job's operators; None for an
            aggregate whose state is dropped.
        allow_non_restored_state: drop state and positions that belong to nothing in the job.
        types: of state columns, where Spark has inferred them; else those that the graph is certain of.
        outputs: the verdicts on the job's outputs (``result_tables.check_outputs``).

    Raises:
        DefinitionError: a map names something that does not exist, or maps two things to one.
    """
    nodes = {node.uid: node for node in job.nodes if isinstance(node, StatefulNode) and node.uid}
    columns = columns or {}
    _check_maps(record, nodes, uids, columns)
    stored_by = {new: old for old, state in record.operators.items() if _finds(nodes.get(new := uids.get(old, old) or ""), state)}
    operators = []
    for uid, node in nodes.items():
        old = stored_by.get(uid)
        if old is None:
            operators.append(check_new_operator(uid, node, record, stored_by))
            continue
        known = None if types is None else types.get(uid)
        operators.append(check_operator(uid, record.operators[old], node, stored_uid=old, names=columns.get(uid, SAME), types=known))
    fresh = {uid: node for uid, node in nodes.items() if uid not in stored_by}
    for old, state in record.operators.items():
        # An operator that keeps no state need not have a uid to be found by.
        if old not in stored_by.values() and stored_state(state.definition):
            left = allow_non_restored_state or (old in uids and uids[old] is None)
            operators.append(_dropped(old, state, fresh, left=left))
    sources = check_sources(record, job, allow=allow_non_restored_state)
    return Verdict(job.name, record.lineage, record.epoch, tuple(operators), sources, outputs)


def _finds(node: StatefulNode | None, state: OperatorState) -> bool:
    """Return whether a stored state is that of an operator of its uid; not that of another kind, if that kept nothing."""
    return node is not None and (stored_state(state.definition) or state.definition.get("kind") == node.KIND)


def _dropped(uid: str, state: OperatorState, fresh: Mapping[str, StatefulNode], *, left: bool) -> OperatorVerdict:
    rows = sum(file.rows for file in state.files)
    finding = Finding(
        "the job has no operator of this uid",
        "incompatible" if not left else "compatible",
        describe_state(state.definition, rows),
        "" if left else _takeover_hint(uid, state, fresh),
    )
    return OperatorVerdict(uid, uid, "dropped", (finding,), left=left)


def _takeover_hint(uid: str, state: OperatorState, fresh: Mapping[str, StatefulNode]) -> str:
    """Return how to give a state to a new operator that could take it over, or how to drop it."""
    heirs = [
        name for name, node in fresh.items() if all(change.effect == "none" for change in definition_changes(_plain(state), encode(node)))
    ]
    leave = f"drop its state: {LEAVE_BEHIND}"
    if heirs:
        said = by_restore(f"uids={{{uid!r}: {heirs[0]!r}}}", f"--map {uid}={heirs[0]}")
        return f"give the operators their old uids back; or map it to {heirs[0]!r}: {said}; or {leave}"
    claims = " or ".join(by_restore(f"uids={{{uid!r}: {name!r}}}", f"--map {uid}={name}") for name in fresh)
    claim = f"map it to its new operator: {claims}; or " if fresh else ""
    return f"give the operators their old uids back; or {claim}{leave}"


def _plain(state: OperatorState) -> dict[str, object]:
    return {key: value for key, value in state.definition.items() if key != "schema"}


def _check_maps(record: EpochRecord, nodes: Mapping[str, StatefulNode], uids: Names, columns: Mapping[str, Names]) -> None:
    unknown = sorted(set(uids) - set(record.operators))
    if unknown:
        raise _wrong(f"the map of uids names {unknown[0]!r}, which has no stored state", record.operators)
    missing = sorted(new for new in uids.values() if new is not None and new not in nodes)
    if missing:
        raise _wrong(f"the map of uids names {missing[0]!r}, which the job does not have", nodes)
    claims = [uids.get(old, old) for old in record.operators]
    twice = sorted({new for new in claims if new is not None and new in nodes and claims.count(new) > 1})
    if twice:
        raise _wrong(f"the stored state of two operators would become that of {twice[0]!r}", record.operators)
    missing = sorted(set(columns) - set(nodes))
    if missing:
        raise _wrong(f"the map of columns names the operator {missing[0]!r}, which the job does not have", nodes)


def _wrong(what: str, known: Mapping[str, object]) -> DefinitionError:
    return DefinitionError(what, fix=f"name existing ones: {', '.join(sorted(known)) or 'none'}; stored uids stand on the left")
