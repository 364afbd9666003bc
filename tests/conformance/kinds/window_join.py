"""Window joins in the conformance suite: of a stream's even and odd elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tidemark as tm
from tests.conformance.cases import Case
from tidemark.semantics.joins.interval import How
from tidemark.semantics.joins.window import AlignedWindows

Tags = Mapping[str, tm.OutputTag]
Build = Callable[[tm.Stream, Tags], tm.Stream]


def joined(how: How, window: AlignedWindows, lateness: str = "0 seconds") -> Build:
    """Return what joins the even elements of a stream with its odd ones."""

    def build(stream: tm.Stream, tags: Tags) -> tm.Stream:
        odds = stream.filter("v % 2 = 1").select("k", then="at", odd="v")
        late = {"late_left_to": tags["late_left"], "late_right_to": tags["late_right"]} if tags else {}
        evens = stream.filter("v % 2 = 0")
        return evens.window_join(odds, on="k", how=how, window=window, allowed_lateness=lateness, **late)

    return build


def arrives(row: dict[str, Any]) -> tuple[str, dict[str, object]]:
    """Return the input that an element comes in by."""
    return ("right", {"k": row["k"], "then": row["at"], "odd": row["v"]}) if row["v"] % 2 else ("left", row)


LATE = ("late_left", "late_right")
CASES = [
    Case("window-join", joined("inner", tm.tumbling("700 ms"), "4 seconds"), LATE, arrives=arrives),
    Case("full-window-join", joined("full", tm.sliding("600 ms", "300 ms", offset="-100 ms")), LATE, arrives=arrives, only_long=True),
    Case("anti-window-join", joined("anti", tm.cumulative("2 seconds", "500 ms"), "2 seconds"), arrives=arrives, only_long=True),
]
