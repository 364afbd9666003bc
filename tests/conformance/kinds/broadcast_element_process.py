"""Functions over elements with a broadcast stream in the conformance suite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tidemark as tm
from tests.conformance.cases import Case
from tidemark.graph.api.connected_streams import BroadcastConnectedElements

Tags = Mapping[str, tm.OutputTag]
Row = Mapping[str, Any]


def labelled(element: Row, ctx: tm.ProcessContext) -> Row:
    """Return an element with the limit of its key, and how many limits there are."""
    limits = ctx.broadcast["bounds"]
    limit = limits.get(element["k"])
    return {"k": element["k"], "v": element["v"], "limit": limit and limit["v"], "known": len(limits)}


def labels(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return elements with limits; small elements are the limits, and very small ones remove them."""
    del tags
    return _connected(stream).map(labelled, returns="k STRING, v BIGINT, limit BIGINT, known BIGINT")


def above(element: Row, ctx: tm.ProcessContext) -> bool:
    """Return whether an element is above the limit of its key; raise an error where there is none."""
    return bool(element["v"] > ctx.broadcast["bounds"][element["k"]]["v"] + 30)


def chosen(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return the elements above the limit of their key; those without one in a side output."""
    return _connected(stream).filter(above, on_error=tags["failed"])


def _connected(stream: tm.Stream) -> BroadcastConnectedElements:
    marked = stream.with_columns(gone="v < 5")
    return marked.filter("v >= 40").connect(marked.filter("v < 40").broadcast("bounds", key="k", value="v BIGINT", removes="gone"))


def arrives(row: dict[str, Any]) -> tuple[str, dict[str, object]]:
    """Return the input that an element comes in by."""
    return "elements" if row["v"] >= 40 else "broadcast", {**row, "gone": row["v"] < 5}


# An epoch applies all its broadcast elements first.
CASES = [
    Case("labels", labels, in_order=False, arrives=arrives, stays=True, only_long=True),
    Case("chosen", chosen, ("failed",), in_order=False, arrives=arrives, stays=True),
]
