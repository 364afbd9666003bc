"""A sensor's cursor: the last epoch it has processed, and what it has reported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

_FORMAT = 1


@dataclass(frozen=True)
class SensorCursor:
    """The newest processed epoch, and the last reported level of each subject.

    ``counts`` are totals at that epoch, so that rows of epochs that the history no longer has are not missed. ``waiting`` are partitions
    whose runs are yet to be requested, first those that waited longest, each with the key of its run.
    """

    lineage: str
    epoch: int
    said: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    waiting: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> str:
        """Encode it as a Dagster cursor."""
        fields = {**asdict(self), "waiting": list(self.waiting.items())}
        return json.dumps({"format": _FORMAT, **fields}, sort_keys=True)


def decode_cursor(text: str | None) -> SensorCursor | None:
    """Decode a cursor; None if there is none yet, or it has another format.

    A sensor without a cursor processes everything since the lineage began, which is safe for an unknown format: it may repeat reports,
    and misses nothing.
    """
    try:
        raw = json.loads(text or "null")
        if not isinstance(raw, dict) or raw.pop("format", None) != _FORMAT:
            return None
        return SensorCursor(
            lineage=str(raw["lineage"]),
            epoch=int(raw["epoch"]),
            said={str(key): str(value) for key, value in raw["said"].items()},
            counts={str(key): int(value) for key, value in raw["counts"].items()},
            # Cursors of earlier releases have none.
            waiting={str(partition): str(key) for partition, key in raw.get("waiting", ())},
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
