"""A savepoint as plain JSON, as commands print it and the REST API returns it."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.savepoints.core.expiry import Restorable
from tidemark.savepoints.model.savepoint import Savepoint
from tidemark.state.encoding.codec import to_jsonable
from tidemark.state.gc.file_references import FileReference


def savepoint_document(savepoint: Savepoint, restorable: Restorable, holds: Sequence[FileReference] = ()) -> dict[str, object]:
    """Return a savepoint as plain JSON; with the numbers of its record, without the lists of files."""
    record = savepoint.record
    return {
        "job": savepoint.job,
        "name": savepoint.name,
        "taken_at": savepoint.taken_at,
        "epoch": record.epoch,
        "lineage": record.lineage,
        "restorable_until": restorable.until,
        "restorable": not restorable.lost,
        "limits": to_jsonable(restorable.limits),
        "watermarks": {uid: state.watermark for uid, state in record.operators.items()},
        "held_for": sorted({reference.job for reference in holds}),
        **to_jsonable(savepoint.info),
    }
