"""Keyed process functions in the conformance suite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import tidemark as tm
from tests.conformance.cases import Case

DAY = 24 * 3_600_000

Tags = Mapping[str, tm.OutputTag]
Row = Mapping[str, Any]


class Quiet:
    """Emits a row for each key that had no element for a while, with its states; odd values go to a side output."""

    total = tm.value_state("BIGINT", default=0)
    newest = tm.list_state("STRUCT<at: TIMESTAMP, v: BIGINT>")
    seen = tm.map_state("BIGINT", "STRING", ttl=tm.state_ttl("6 seconds", domain="event"))
    least = tm.reducing_state("BIGINT", min)
    mean = tm.aggregating_state(
        "STRUCT<sum: DOUBLE, n: BIGINT>",
        create=lambda: {"sum": 0.0, "n": 0},
        add=lambda so_far, v: {"sum": so_far["sum"] + v, "n": so_far["n"] + 1},
        result=lambda so_far: so_far["sum"] / so_far["n"],
    )

    def __init__(self, aside: tm.OutputTag) -> None:
        self.aside = aside

    def process(self, element: Row, ctx: tm.ProcessContext) -> None:
        v = element["v"]
        self.total.update(self.total.value() + v)
        if v % 17 == 0:
            # After a change, which is undone.
            raise ValueError(f"{v} is refused")
        self.newest.update([*self.newest.get(), {"at": element["at"], "v": v}][-3:])
        self.seen.put(v, element["k"] or "nobody")
        self.least.add(v)
        self.mean.add(v)
        ctx.timer_service().register_event_time_timer(ctx.timestamp + 1_500, "quiet")
        if v % 3 == 0:
            ctx.timer_service().register_event_time_timer(ctx.timestamp + 4_000)
        if v % 2:
            ctx.output(
                self.aside, {"k": element["k"], "late": ctx.timestamp <= ctx.current_watermark(), "times": len(list(self.seen.keys()))}
            )

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> Iterator[Row]:
        # Not what has expired by now: the watermark at a timer may be anywhere between its time and that of the next element.
        yield {
            "k": ctx.current_key["k"],
            "timer": ctx.timer_name,
            "at": timestamp,
            "total": self.total.value(),
            "newest": self.newest.get(),
            "least": self.least.get(),
            "mean": self.mean.get(),
        }
        if ctx.timer_name is None and timestamp % 2:
            for state in (self.total, self.newest, self.least, self.mean):
                state.clear()


def quiet(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return the rows of keys that were quiet."""
    returns = "k STRING, timer STRING, at BIGINT, total BIGINT, newest ARRAY<STRUCT<at: TIMESTAMP, v: BIGINT>>, least BIGINT, mean DOUBLE"
    aside = {tags["aside"]: "k STRING, late BOOLEAN, times BIGINT"}
    return stream.key_by("k").process(Quiet(tags["aside"]), returns=returns, side_outputs=aside, on_error=tags["failed"])


def changes(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return changes of a value; by a plain function, whose state expires by the watermark."""
    del tags
    state = {"last": tm.value_state("BIGINT", ttl=tm.state_ttl("9 seconds", domain="event", on_read=True))}
    return stream.key_by("k").process(watched, returns="v BIGINT, before BIGINT", state=state)


def watched(element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
    """Yield an element whose value differs from that before it."""
    last = ctx.state.last.value()
    ctx.state.last.update(element["v"])
    if last != element["v"]:
        yield {"v": element["v"], "before": last}


class Totals:
    """Totals of each key, of many elements at once, until its end. Large values go to a side output."""

    total = tm.value_state("BIGINT", default=0)

    def __init__(self, aside: tm.OutputTag) -> None:
        self.aside = aside

    def process_batch(self, elements: pa.RecordBatch, ctx: tm.ProcessContext) -> Iterator[object]:
        values = elements.column("v")
        if pc.any(pc.equal(values, 95)).as_py():
            raise ValueError("95 is refused")
        totals = pc.cumulative_sum(values, start=self.total.value())
        self.total.update(totals[-1].as_py())
        ctx.timer_service().register_event_time_timer(ctx.timestamp + DAY, "end")
        ctx.output(self.aside, elements.select(["k", "v"]).filter(pc.greater(values, 40)))
        yield pa.RecordBatch.from_arrays([elements.column("k"), values, totals], names=["k", "v", "total"]), ctx.timestamps

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> None:
        del timestamp, ctx
        self.total.clear()


def totals(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return running totals."""
    aside = {tags["aside"]: "k STRING, v BIGINT"}
    function = Totals(tags["aside"])
    return stream.key_by("k").process(function, returns="k STRING, v BIGINT, total BIGINT", side_outputs=aside, on_error=tags["failed"])


CASES = [
    Case("quiet", quiet, ("aside", "failed")),
    Case("changes", changes, only_long=True),
    Case("totals", totals, ("aside", "failed"), only_long=True),
]
