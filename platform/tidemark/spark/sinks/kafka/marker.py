"""The marker of what was published to a topic: metadata of a committed offset of the output's consumer group.

It is written in the transaction of the records, so that both are there or neither. A group's offset belongs to a partition of the topic:
with the topic, the broker deletes the marker.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Marker:
    """The newest part of an epoch that was published; ``parts`` is the number of the epoch's parts."""

    lineage: str
    epoch: int
    part: int
    parts: int

    @property
    def text(self) -> str:
        """The marker as it is stored.

        >>> Marker("a1", 7, 0, 1).text
        '{"tidemark":1,"lineage":"a1","epoch":7,"part":0,"parts":1}'
        """
        return json.dumps({"tidemark": 1, **asdict(self)}, separators=(",", ":"))

    @classmethod
    def of(cls, text: str | None) -> Marker | None:
        """Return a stored marker, None where there is none.

        Raises:
            ValueError: the text is no marker.

        >>> Marker.of(Marker("a1", 7, 0, 1).text)
        Marker(lineage='a1', epoch=7, part=0, parts=1)
        """
        if not text:
            return None
        try:
            found = json.loads(text)
            return cls(str(found["lineage"]), int(found["epoch"]), int(found["part"]), int(found["parts"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"no marker: {text[:100]!r}") from error

    @property
    def is_complete(self) -> bool:
        """Whether all parts of the epoch were published."""
        return self.part == self.parts - 1


def parts_done(marker: Marker | None, lineage: str, epoch: int, parts: int) -> int:
    """Return how many parts of an epoch were published already.

    >>> parts_done(Marker("a1", 7, 0, 2), "a1", 7, 2), parts_done(Marker("a1", 7, 1, 2), "a1", 8, 3), parts_done(None, "a1", 0, 1)
    (1, 0, 0)
    >>> parts_done(Marker("a1", 7, 1, 2), "a1", 6, 3), parts_done(Marker("a1", 7, 1, 2), "b2", 6, 3)
    (3, 0)
    """
    if marker is None or marker.lineage != lineage or marker.epoch < epoch:
        return 0
    return parts if marker.epoch > epoch else marker.part + 1
