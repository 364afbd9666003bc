"""How the values of a topic's records become columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ValueFormat = Literal["raw", "json", "avro"]


@dataclass(frozen=True)
class RecordDecoding:
    """A format of values, and the columns that are read of each; ``value`` is a struct of these, null for a tombstone.

    ``registry`` is the address of a schema registry, ``registry_env`` names the environment variable with its credentials, and
    ``subjects`` are those whose versions records may be written with; empty for ``TOPIC-value`` of each topic.
    """

    format: ValueFormat
    schema: str
    registry: str | None = None
    registry_env: str | None = None
    subjects: tuple[str, ...] = ()

    def encoded(self) -> list[object]:
        """Return what decides how a value is read."""
        return [self.format, self.schema, sorted(self.subjects)]
