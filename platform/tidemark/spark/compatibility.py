"""Whether a job may go on from a stored epoch."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidemark.errors import StateMismatchError
from tidemark.graph.definition import compatible
from tidemark.spark.offsets import positions
from tidemark.state.records import EpochRecord


def require_compatible(record: EpochRecord, *, sources: Collection[str], definitions: Mapping[str, Mapping[str, object]]) -> None:
    """Hold a stored epoch against the job that is to go on from it.

    Args:
        record: the newest epoch.
        sources: names of the job's sources.
        definitions: of the job's operators, by uid.

    Raises:
        StateMismatchError: a stored position or state belongs to nothing in the job, or does not fit what it belongs to.
    """
    unclaimed = sorted(set(positions(record.offsets)) - set(sources))
    if unclaimed:
        raise StateMismatchError(
            f"the stored positions are of sources that the job does not have: {', '.join(unclaimed)}",
            fix="give the sources their old names back; under a new name all of their input would be read again",
            job=record.job,
            epoch=record.epoch,
        )
    lost = sorted(set(record.operators) - set(definitions))
    if lost:
        raise StateMismatchError(
            f"the stored state has operators that the job does not: {', '.join(lost)}",
            fix="give the operators their old uids back, or start the changed job under another name",
            job=record.job,
            epoch=record.epoch,
        )
    for uid, state in record.operators.items():
        stored = {key: value for key, value in state.definition.items() if key != "schema"}
        findings = compatible(stored, definitions[uid])
        if findings:
            raise StateMismatchError(
                f"the stored state of {uid!r} does not fit the job: {'; '.join(findings)}",
                fix="undo the change, or give the changed operator a new uid and the job a new name",
                job=record.job,
                uid=uid,
                epoch=record.epoch,
            )
