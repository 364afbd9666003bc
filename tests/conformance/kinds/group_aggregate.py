"""Aggregates of groups in the conformance suite."""

from __future__ import annotations

from collections.abc import Mapping

import tidemark as tm
from tests.conformance.cases import Case

Tags = Mapping[str, tm.OutputTag]


def grown(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return aggregates over all elements."""
    del tags
    found = {"total": tm.sum("v"), "n": tm.count(), "at": tm.max("at"), "of": tm.max_by("at", "v"), "kinds": tm.count_distinct("v")}
    return stream.key_by("k").aggregate(ttl=None, **found)


def grown_lately(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return aggregates of keys until the watermark has gone on a while without an element."""
    del tags
    return stream.key_by("k", "v").aggregate(n=tm.count(), mean=tm.avg("v"), ttl=tm.state_ttl("15 seconds", domain="event"))


def grown_whole(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return aggregates of one group."""
    del tags
    return stream.aggregate_all(n=tm.count("v"), least=tm.min("v"), vs=tm.collect_set("v"))


def grown_changes(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return aggregates of a changelog, in all ways that rows are taken back from state."""
    del tags
    rows = stream.as_changelog(key=["at", "k", "v"])
    found = {"total": tm.sum("v"), "mean": tm.avg("v"), "most": tm.max("v"), "kinds": tm.count_distinct("v")}
    return rows.key_by("k").aggregate(n=tm.count(), of=tm.min_by("at", "v"), vs=tm.collect_list("v"), ttl=None, **found)


CASES = [
    Case("grown", grown, stays=True, in_order=False, only_long=True),
    Case("grown_lately", grown_lately, in_order=False),
    Case("grown_whole", grown_whole, stays=True, in_order=False, only_long=True),
    Case("grown_changes", grown_changes, stays=True, in_order=False),
]
