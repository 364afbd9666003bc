"""Deduplication in the conformance suite."""

from __future__ import annotations

from collections.abc import Mapping

import tidemark as tm
from tests.conformance.cases import Case

Tags = Mapping[str, tm.OutputTag]


def first(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return the first element of each key in a while."""
    return stream.key_by("k").deduplicate(within="3 seconds", late_to=tags["late"], duplicates_to=tags["duplicates"])


def behind(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return the first element of each key and value, also some way behind the watermark; nobody takes the duplicates."""
    return stream.key_by("k", "v").deduplicate(within="20 seconds", allowed_lateness="6 seconds", late_to=tags["late"])


CASES = [Case("first", first, ("late", "duplicates")), Case("behind", behind, ("late",), only_long=True)]
