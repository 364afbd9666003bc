"""Functions over elements without keys in the conformance suite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tidemark as tm
from tests.conformance.cases import Case

Tags = Mapping[str, tm.OutputTag]
Row = Mapping[str, Any]


class Sorts:
    """Doubles elements of keys, sends those without one aside, and refuses great ones."""

    def __init__(self, aside: tm.OutputTag) -> None:
        self.aside = aside
        self.opened = 0

    def open(self, ctx: tm.ProcessContext) -> None:
        del ctx
        self.opened += 1

    def process(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        if element["k"] is None:
            ctx.output(self.aside, {"v": element["v"], "late": ctx.timestamp <= ctx.current_watermark()})
            return
        yield {"k": element["k"], "v": element["v"], "opened": self.opened}
        if element["v"] > 90:
            raise ValueError(f"{element['v']} is too much")
        yield {"k": element["k"], "v": -element["v"], "opened": self.opened}


def sorts(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return elements twice; those without a key, and great ones, in side outputs."""
    aside = tags["aside"]
    returns = "k STRING, v BIGINT, opened BIGINT"
    return stream.process(Sorts(aside), returns=returns, side_outputs={aside: "v BIGINT, late BOOLEAN"}, on_error=tags["failed"])


# An element is late by the watermark that its epoch began with.
CASES = [Case("sorts", sorts, ("failed", "aside"), in_order=False)]
