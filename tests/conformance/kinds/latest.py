"""The newest row of each key in the conformance suite."""

from __future__ import annotations

from collections.abc import Mapping

import tidemark as tm
from tests.conformance.cases import Case

Tags = Mapping[str, tm.OutputTag]


def newest(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return the newest element of each key; some delete their key."""
    del tags
    return stream.latest(by=["k"], deleted="v % 5 = 0")


def versions(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return the element with the greatest value of each key and parity; some delete their key."""
    return stream.latest(by=["k"], sequence="v - v % 3", deleted="v % 4 = 0", outdated_to=tags["outdated"])


def changed(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return the newest element of each key, with the value of one before where it has none; some delete their key."""
    return stream.latest(by=["k"], deleted="v % 5 = 0", unchanged={"v": "v % 3 > 0"}, incomplete_to=tags["incomplete"])


def lately(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return the newest element of each key and value, for a while."""
    del tags
    return stream.latest(by=["k", "v"], ttl=tm.state_ttl("9 seconds", domain="event"))


def last(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return the last element of each value."""
    del tags
    return stream.key_by("v").deduplicate(keep="last")


CASES = [
    Case("newest", newest, in_order=False, stays=True, only_long=True),
    Case("versions", versions, ("outdated",), in_order=False, stays=True),
    Case("newest-changed", changed, ("incomplete",), in_order=False, stays=True, only_long=True),
    Case("newest-lately", lately, in_order=False, only_long=True),
    Case("last", last, in_order=False, stays=True, only_long=True),
]
