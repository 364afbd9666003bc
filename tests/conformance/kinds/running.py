"""Running results in the conformance suite."""

from __future__ import annotations

from collections.abc import Mapping

import tidemark as tm
from tests.conformance.cases import Case

Tags = Mapping[str, tm.OutputTag]


def totals(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return aggregates over all elements so far: some that a row has as an expression, some that only an aggregate makes."""
    del tags
    found = {"total": tm.sum("v"), "n": tm.count(), "at": tm.max("at"), "of": tm.max_by("at", "v"), "kinds": tm.count_distinct("v")}
    return stream.key_by("k").running_aggregate(ttl=None, **found)


def lately(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return aggregates since the last gap."""
    del tags
    ttl = tm.state_ttl("500 ms", domain="event")
    return stream.key_by("k").running_aggregate(n=tm.count("v"), mean=tm.avg("v"), vs=tm.collect_list("v"), ttl=ttl)


def most(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return the element with the greatest value so far."""
    del tags
    return stream.key_by("k").max_by("v")


def least(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return the element with the least value since the last gap."""
    del tags
    return stream.key_by("k").min_by("v", ttl=tm.state_ttl("400 ms", domain="event"))


CASES = [
    Case("running-totals", totals, stays=True, only_long=True),
    Case("lately", lately),
    Case("most", most, stays=True, only_long=True),
    Case("least", least, only_long=True),
]
