"""What a sensor remembers between ticks: how far it has looked, and what it has said."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

_FORMAT = 1


@dataclass(frozen=True)
class SensorCursor:
    """The newest epoch looked at, and what was last said about each subject.

    ``counts`` are totals at that epoch, so that rows of epochs that the history no longer has are not missed.
    """

    lineage: str
    epoch: int
    said: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)

    def encode(self) -> str:
        """Return it as the text that Dagster keeps."""
        return json.dumps({"format": _FORMAT, **asdict(self)}, sort_keys=True)


def decode_cursor(text: str | None) -> SensorCursor | None:
    """Read a cursor; none where there is none yet, or where another release or a person wrote something else.

    A sensor without a cursor looks at everything since the lineage began, which is the safe reading of a text it does not
    know: it may tell again what it told before, and misses nothing.
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
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
