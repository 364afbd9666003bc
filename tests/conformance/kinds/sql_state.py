"""State machines in SQL, and ``reduce``, in the conformance suite."""

from __future__ import annotations

from collections.abc import Mapping

import tidemark as tm
from tests.conformance.cases import Case

Tags = Mapping[str, tm.OutputTag]


def doubled(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return the elements of more than twice the value of the one before; what a field is depends on the element only."""
    del tags
    fields = {"last": ("v", "BIGINT"), "seen": ("at", "TIMESTAMP")}
    returns = {"key": "k", "v": "v", "last": "last", "seen": "seen", "now": "new.last"}
    return stream.key_by("k").process(tm.sql_state(fields, emit_when="v > 2 * last", returns=returns))


def recent(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return each element with the one before it, as long as that is not too long ago; a value of 7 is forgotten at once."""
    del tags
    fields = {"last": ("nullif(v, 7)", "BIGINT", "-1")}
    ttl = tm.state_ttl("300 ms", domain="event")
    return stream.key_by("k").process(tm.sql_state(fields, returns={"v": "v", "last": "last"}, ttl=ttl))


def streaks(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return streaks of growing values of each key, which end in a while without elements."""
    del tags
    fields: dict[str, tuple[str, str] | tuple[str, str, str]] = {
        "n": ("CASE WHEN last IS NULL OR v > last THEN n + 1 ELSE 1 END", "BIGINT", "0"),
        "last": ("v", "BIGINT"),
        "total": ("CASE WHEN v % 5 = 0 THEN NULL ELSE coalesce(total, 100) + v END", "BIGINT"),
    }
    returns = {"k": "k", "v": "v", "n": "new.n", "before": "n", "total": "total"}
    ttl = tm.state_ttl("700 ms", domain="event")
    return stream.key_by("k").process(tm.sql_state(fields, emit_when="new.n >= 2 OR total > 500", returns=returns, ttl=ttl))


def merged(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return elements merged with those before them, for which order counts."""
    del tags
    return stream.key_by(key="k").reduce(v="2 * a.v % 1000 + b.v", at="greatest(a.at, b.at)", ttl=tm.state_ttl("1 second", domain="event"))


def newest(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return elements merged with all before them."""
    del tags
    return stream.key_by("k").reduce(v="a.v + b.v")


CASES = [
    Case("doubled", doubled, stays=True),
    Case("recent", recent, only_long=True),
    Case("streaks", streaks, only_long=True),
    Case("merged", merged, only_long=True),
    Case("merged-for-ever", newest, stays=True, only_long=True),
]
