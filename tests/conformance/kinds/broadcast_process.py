"""Streams with a broadcast one in the conformance suite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tidemark as tm
from tests.conformance.cases import Case

Tags = Mapping[str, tm.OutputTag]
Row = Mapping[str, Any]


class AboveLimit:
    """Counts elements above the limit of their key."""

    times = tm.value_state("BIGINT", default=0, ttl=tm.state_ttl("20 seconds", domain="event"))

    def process(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        limits = ctx.broadcast["limits"]
        limit = limits.get(element["k"])
        if limit is not None and element["v"] > limit["v"]:
            self.times.update(self.times.value() + 1)
            yield {"k": element["k"], "v": element["v"], "limit": limit["v"], "times": self.times.value(), "known": len(limits)}


def limited(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return the elements that are above a limit; small elements are the limits, and very small ones remove them."""
    del tags
    marked = stream.with_columns(gone="v < 5")
    limits = marked.filter("v < 40").broadcast("limits", key="k", value="v BIGINT", removes="gone")
    above = marked.filter("v >= 40").key_by("k").connect(limits)
    return above.process(AboveLimit, returns="k STRING, v BIGINT, limit BIGINT, times BIGINT, known BIGINT")


def arrives(row: dict[str, Any]) -> tuple[str, dict[str, object]]:
    """Return the input that an element comes in by."""
    return "elements" if row["v"] >= 40 else "broadcast", {**row, "gone": row["v"] < 5}


# An epoch applies all its broadcast elements first.
CASES = [Case("limited", limited, in_order=False, arrives=arrives)]
