"""Regular joins in the conformance suite."""

from __future__ import annotations

from collections.abc import Mapping

import tidemark as tm
from tests.conformance.cases import Case

Tags = Mapping[str, tm.OutputTag]


def halves(stream: tm.Stream) -> tuple[tm.Stream, tm.Stream]:
    """Return a stream's even and odd elements as tables."""
    evens = stream.filter("v % 2 = 0").as_changelog(key=["at", "k", "v"])
    odds = stream.filter("v % 2 = 1").select(seen="at", k="k", odd="v").as_changelog(key=["seen", "k", "odd"])
    return evens, odds


def everything(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return pairs of even and odd elements of a key and of equal tens, and those without a partner."""
    del tags
    evens, odds = halves(stream)
    return evens.with_columns(tens="v DIV 10").join(odds.with_columns(tens="odd DIV 10"), on=["k", "tens"], how="full")


def alone(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return the even elements whose key has no odd one of the same tens."""
    del tags
    evens, odds = halves(stream)
    return evens.with_columns(tens="v DIV 10").join(odds.with_columns(tens="odd DIV 10"), on=["k", "tens"], how="anti")


def lately(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return pairs of even and odd elements of a key and of equal tens; odd elements are kept for a while."""
    del tags
    evens, odds = halves(stream)
    left, right = evens.with_columns(tens="v DIV 10"), odds.with_columns(tens="odd DIV 10")
    return left.join(right, on=["k", "tens"], how="left", ttl=(None, tm.state_ttl("9 seconds", domain="event")))


def arrives(row: dict[str, object]) -> tuple[str, dict[str, object]]:
    """Return the input that an element comes in by."""
    value = int(str(row["v"]))
    if value % 2:
        return "right", {"seen": row["at"], "k": row["k"], "odd": value, "tens": value // 10}
    return "left", {**row, "tens": value // 10}


# The changes of an epoch are net, so that they depend on where it ends.
CASES = [
    Case("joined", everything, in_order=False, stays=True, arrives=arrives),
    Case("joined-lately", lately, in_order=False, stays=True, arrives=arrives, only_long=True),
    Case("alone", alone, in_order=False, stays=True, arrives=arrives, only_long=True),
]
