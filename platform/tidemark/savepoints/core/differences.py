"""What changed between two savepoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.savepoints.model.savepoint import Savepoint


@dataclass(frozen=True)
class Counted:
    """A number in the first savepoint and in the second; None if the savepoint has none."""

    before: int | None
    after: int | None


@dataclass(frozen=True)
class SavepointDifference:
    """What changed from one savepoint to another.

    ``state_rows`` and ``watermarks`` are by uid, ``read`` by source, ``written`` by output: rows since the lineage's origin. Only what
    differs is listed. ``same_lineage`` is false where a restore or a rewind lies between the two, or they are of different jobs.
    """

    name: str
    other: str
    same_lineage: bool
    epochs: Counted
    code_versions: tuple[str, str]
    state_rows: Mapping[str, Counted]
    watermarks: Mapping[str, Counted]
    read: Mapping[str, Counted]
    written: Mapping[str, Counted]


def difference(before: Savepoint, after: Savepoint) -> SavepointDifference:
    """Return what changed from one savepoint to another."""
    one, two = before.record, after.record
    return SavepointDifference(
        name=before.name,
        other=after.name,
        same_lineage=one.lineage == two.lineage,
        epochs=Counted(one.epoch, two.epoch),
        code_versions=(before.info.code_version, after.info.code_version),
        state_rows=_changed(_rows(before), _rows(after)),
        watermarks=_changed(_watermarks(before), _watermarks(after)),
        read=_changed(_read(before), _read(after)),
        written=_changed(one.totals["outputs"], two.totals["outputs"]),
    )


def _changed(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, Counted]:
    names = sorted({*before, *after})
    return {name: Counted(before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}


def _rows(savepoint: Savepoint) -> dict[str, int]:
    return {uid: sum(file.rows for file in state.files) for uid, state in savepoint.record.operators.items()}


def _watermarks(savepoint: Savepoint) -> dict[str, int]:
    return {uid: state.watermark for uid, state in savepoint.record.operators.items()}


def _read(savepoint: Savepoint) -> dict[str, int]:
    return {name: counts.get("read", 0) for name, counts in savepoint.record.totals["sources"].items()}
