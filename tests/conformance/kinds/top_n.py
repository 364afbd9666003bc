"""The best rows of each group in the conformance suite."""

from __future__ import annotations

from collections.abc import Mapping

import tidemark as tm
from tests.conformance.cases import Case

Tags = Mapping[str, tm.OutputTag]


def places(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return the three greatest elements of each key, with their places."""
    del tags
    return stream.top_n(3, by=["k"], order="v % 50 DESC, at", rank="place")


def first(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return the least elements of all, without places."""
    del tags
    return stream.top_n(4, order="v", rank="place")


def lately(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return the three least elements of each value, with their places, for a while."""
    del tags
    return stream.top_n(3, by=["v"], order="at, k", rank="place", ttl=tm.state_ttl("9 seconds", domain="event"))


CASES = [
    Case("places", places, in_order=False, stays=True, only_long=True),
    Case("first-of-all", first, in_order=False, stays=True, only_long=True),
    Case("places-lately", lately, in_order=False),
]
