"""Interval joins in the conformance suite: of a stream's even and odd elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tidemark as tm
from tests.conformance.cases import Case
from tidemark.semantics.joins.interval import How

Tags = Mapping[str, tm.OutputTag]
Build = Callable[[tm.Stream, Tags], tm.Stream]


def joined(how: How, lower: str, upper: str) -> Build:
    """Return what joins the even elements of a stream with its odd ones."""

    def build(stream: tm.Stream, tags: Tags) -> tm.Stream:
        odds = stream.filter("v % 2 = 1").select("k", then="at", odd="v")
        sides = tags.get("late_left"), tags.get("late_right")
        return stream.filter("v % 2 = 0").join(odds, on="k", how=how, within=(lower, upper), late_left_to=sides[0], late_right_to=sides[1])

    return build


def arrives(row: dict[str, Any]) -> tuple[str, dict[str, object]]:
    """Return the input that an element comes in by."""
    return ("right", {"k": row["k"], "then": row["at"], "odd": row["v"]}) if row["v"] % 2 else ("left", row)


LATE = ("late_left", "late_right")
CASES = [
    Case("inner-join", joined("inner", "-300 ms", "1 second"), LATE, arrives=arrives, only_long=True),
    Case("left-join", joined("left", "0 s", "200 ms"), LATE, arrives=arrives, only_long=True),
    Case("right-join", joined("right", "-2 seconds", "-1 second"), LATE, arrives=arrives, only_long=True),
    Case("full-join", joined("full", "-150 ms", "60 ms"), LATE, arrives=arrives),
    Case("semi-join", joined("semi", "50 ms", "400 ms"), arrives=arrives, only_long=True),
    Case("anti-join", joined("anti", "-200 ms", "200 ms"), LATE, arrives=arrives, only_long=True),
]
