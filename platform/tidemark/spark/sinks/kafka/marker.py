"""The marker of what was published to a topic: metadata of a committed offset of the output's consumer group.

It is written in the transaction of the records, so that both are there or neither. A group's offset belongs to a partition of the topic:
with the topic, the broker deletes the marker.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Marker:
    """How many rows of the newest epoch were published, and how many it has."""

    lineage: str
    epoch: int
    rows: int
    of: int

    @property
    def text(self) -> str:
        """The marker as it is stored.

        >>> Marker("a1", 7, 5, 9).text
        '{"tidemark":1,"lineage":"a1","epoch":7,"rows":5,"of":9}'
        """
        return json.dumps({"tidemark": 1, **asdict(self)}, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str | None) -> Marker | None:
        """Return a stored marker, None where there is none.

        Raises:
            ValueError: the text is no marker.

        >>> Marker.parse(Marker("a1", 7, 5, 9).text)
        Marker(lineage='a1', epoch=7, rows=5, of=9)
        """
        if not text:
            return None
        try:
            found = json.loads(text)
            return cls(str(found["lineage"]), int(found["epoch"]), int(found["rows"]), int(found["of"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"no marker: {text[:100]!r}") from error


def rows_done(marker: Marker | None, lineage: str, epoch: int, rows: int) -> int:
    """Return how many of an epoch's rows were published already.

    >>> rows_done(Marker("a1", 7, 5, 9), "a1", 7, 9), rows_done(Marker("a1", 7, 9, 9), "a1", 8, 3), rows_done(None, "a1", 0, 1)
    (5, 0, 0)
    >>> rows_done(Marker("a1", 7, 9, 9), "a1", 6, 3), rows_done(Marker("a1", 7, 9, 9), "b2", 6, 3)
    (3, 0)
    """
    if marker is None or marker.lineage != lineage or marker.epoch < epoch:
        return 0
    return rows if marker.epoch > epoch else marker.rows
