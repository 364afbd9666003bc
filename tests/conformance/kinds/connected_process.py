"""Connected streams in the conformance suite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tidemark as tm
from tests.conformance.cases import Case

Tags = Mapping[str, tm.OutputTag]
Row = Mapping[str, Any]


class Pairs:
    """Pairs each odd element with the newest even one of its key; one that waits too long is told aside."""

    even = tm.value_state("BIGINT", ttl=tm.state_ttl("20 seconds", domain="event"))
    waiting = tm.list_state("BIGINT")

    def __init__(self, alone: tm.OutputTag) -> None:
        self.alone = alone

    def process1(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        if element["v"] % 26 == 0:
            raise ValueError("refused")
        self.even.update(element["v"])
        for odd in self.waiting.get():
            yield {"k": element["k"], "odd": odd, "even": element["v"]}
        self.waiting.clear()
        ctx.timer_service().delete_event_time_timer(name="alone")

    def process2(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        even = self.even.value()
        if even is not None:
            yield {"k": element["k"], "odd": element["v"], "even": even}
            self.even.clear()
            return
        self.waiting.add(element["v"])
        ctx.timer_service().register_event_time_timer(ctx.timestamp + 2_000, "alone")

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> None:
        ctx.output(self.alone, {"at": timestamp, "odds": self.waiting.get()})
        self.waiting.clear()


def pairs(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return pairs of a stream's even and odd elements."""
    evens, odds = stream.filter("v % 2 = 0"), stream.filter("v % 2 = 1")
    alone = {tags["alone"]: "at BIGINT, odds ARRAY<BIGINT>"}
    both = evens.key_by("k").connect(odds.key_by("k"))
    return both.process(Pairs(tags["alone"]), returns="k STRING, odd BIGINT, even BIGINT", side_outputs=alone, on_error=tags["failed"])


def arrives(row: dict[str, Any]) -> tuple[str, dict[str, object]]:
    """Return the input that an element comes in by."""
    return "second" if row["v"] % 2 else "first", row


CASES = [Case("pairs", pairs, ("alone", "failed"), arrives=arrives)]
