"""The progress sensor's cursor: for each job, how far it was reported, and which of its savepoints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_FORMAT = 1


@dataclass(frozen=True)
class JobMark:
    """How far a job was reported.

    ``lineage`` and ``epoch`` name the last epoch that an observation covers, ``at`` is its time (milliseconds), ``through`` has by
    output the end of the last partition that was reported to be complete. ``followed`` names the last epoch whose corrections of partitions
    were reported; None in a mark of an earlier build, which reported them with its observations.
    """

    lineage: str
    epoch: int
    at: int
    through: Mapping[str, int] = field(default_factory=dict)
    followed: tuple[str, int] | None = None

    @property
    def corrected_to(self) -> tuple[str, int]:
        """Lineage and number of the last epoch whose corrections were reported."""
        return self.followed or (self.lineage, self.epoch)


@dataclass(frozen=True)
class SavepointMark:
    """A reported savepoint: when its file was written, and when it was taken (milliseconds).

    The file's time shows without opening it that it is the same; the savepoint's time shows whether its name was used again.
    """

    modified: int
    taken_at: int


SavepointMarks = Mapping[str, Mapping[str, SavepointMark]]
"""By job and name."""


def encode_marks(marks: Mapping[str, JobMark], savepoints: SavepointMarks | None = None) -> str:
    """Encode marks by job as a cursor."""
    jobs = {name: [mark.lineage, mark.epoch, mark.at, dict(mark.through)] for name, mark in marks.items()}
    reported = {
        job: {name: [mark.modified, mark.taken_at] for name, mark in by_name.items()} for job, by_name in (savepoints or {}).items()
    }
    # Beside the jobs, since an earlier build cannot read a mark of five parts.
    followed = {name: list(mark.followed) for name, mark in marks.items() if mark.followed is not None}
    parts = {"format": _FORMAT, "jobs": jobs, "savepoints": reported, "followed": followed}
    return json.dumps(parts, sort_keys=True, separators=(",", ":"))


def decode_marks(text: str | None) -> dict[str, JobMark]:
    """Decode marks; empty if there is no cursor yet, or it has another format.

    Earlier reports are then found in Dagster's events, so that they are not repeated.
    """
    try:
        followed = {str(name): (str(lineage), int(epoch)) for name, (lineage, epoch) in _part(text, "followed").items()}
        return {
            str(name): JobMark(
                str(lineage), int(epoch), int(at), {str(output): int(end) for output, end in through.items()}, followed.get(str(name))
            )
            for name, (lineage, epoch, at, through) in _part(text, "jobs").items()
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def decode_savepoints(text: str | None) -> dict[str, Mapping[str, SavepointMark]]:
    """Decode the marks of savepoints; empty if the cursor has none, as that of an older release, or cannot be read."""
    try:
        return {
            str(job): {str(name): SavepointMark(int(modified), int(taken_at)) for name, (modified, taken_at) in by_name.items()}
            for job, by_name in _part(text, "savepoints").items()
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def _part(text: str | None, name: str) -> Mapping[str, Any]:
    """Return a part of a cursor of this format; empty if it has another format, or no such part."""
    raw = json.loads(text or "null")
    return raw.get(name, {}) if isinstance(raw, dict) and raw.get("format") == _FORMAT else {}
