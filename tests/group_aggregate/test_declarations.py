"""Aggregates of groups as users declare them: what is refused, with what to write, and what a change does to stored state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

import tidemark as tm
from tidemark.errors import TidemarkError
from tidemark.graph.checks.changelogs import changelog_keys
from tidemark.graph.model.nodes import StatefulNode
from tidemark.graph.operators.registry import definition_changes, encode

STREAM = tm.source(
    "fares",
    tm.from_elements(epochs=[], schema="zone STRING, id INT, fare DOUBLE, at TIMESTAMP, tags MAP<STRING, INT>"),
    watermarks=tm.ascending(timestamp="at"),
)
CHANGES = STREAM.as_changelog(key=["id"])
PYTHON = tm.python_aggregate(int, max, max, abs, arguments=["fare"], state="DOUBLE", returns="DOUBLE")


def wrong(value: object) -> Any:
    """Return a value that a type checker would refuse."""
    return cast("Any", value)


MISTAKES: Mapping[str, tuple[Callable[[], object], str, str, str]] = {
    "no aggregate": (lambda: STREAM.key_by("zone").aggregate(), "TM100", "given no aggregate", "trips=tm.count()"),
    "a function": (lambda: STREAM.key_by("zone").aggregate(n=wrong(tm.count)), "TM100", "the function count(...)", "n=tm.count(...)"),
    "like a key": (lambda: STREAM.key_by("zone").aggregate(zone=tm.count()), "TM104", "'zone' and 'zone'", "another name"),
    "an unknown column": (lambda: STREAM.key_by("zone").aggregate(n=tm.sum("tip")), "TM101", "unknown column 'tip'", "one of the columns"),
    "Python": (lambda: STREAM.key_by("zone").aggregate(n=PYTHON), "TM100", "'n' is a Python function", "aggregating_state"),
    "Python over a changelog": (
        lambda: CHANGES.key_by("zone").aggregate(top=PYTHON), "TM100", "'top' is a Python function, from which no row", "tm.sql_aggregate"
    ),
    "a lifetime as text": (
        lambda: STREAM.key_by("zone").aggregate(n=tm.count(), ttl=wrong("1 day")), "TM100", "no lifetime of state", "tm.state_ttl('1 day')"
    ),
    "an argument without its name": (lambda: wrong(STREAM.key_by("zone")).aggregate(tm.count()), "TM100", "without a name", "aggregate("),
    "a map": (lambda: STREAM.aggregate_all(n=tm.max("tags")), "TM102", "values have an order", "to_json(tags)"),
    "a window over it": (
        lambda: STREAM.key_by("zone").aggregate(n=tm.count()).uid("a").key_by("zone").window(tm.tumbling("1 hour")).aggregate(n=tm.count()),
        "TM100", "is given a changelog (key: zone)", ".as_elements()",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_refused_with_what_to_write(case: str) -> None:
    declare, code, what, fix = MISTAKES[case]
    with pytest.raises(TidemarkError) as caught:
        declare()
    text = str(caught.value)
    assert text.startswith(f"[{code}]"), text
    assert what in text
    assert fix in text.partition("Fix: ")[2]


def test_results_are_a_changelog_of_the_keys() -> None:
    by_zone = STREAM.key_by("zone", dear="fare > 10").aggregate(n=tm.count()).uid("a")
    assert changelog_keys(by_zone.node) == ("zone", "dear")
    assert changelog_keys(STREAM.aggregate_all(n=tm.count()).uid("b").node) == ()


def definition(stream: tm.Stream) -> dict[str, object]:
    """Return the definition of a stream's operator."""
    node = stream.uid("a").node
    assert isinstance(node, StatefulNode)
    return encode(node)


def by_zone(stream: tm.Stream = STREAM, **aggregates: tm.Aggregate) -> dict[str, object]:
    """Return the definition of aggregates by zone."""
    return definition(stream.key_by("zone").aggregate(ttl=None, **aggregates))


CHANGED: Mapping[str, tuple[dict[str, object], dict[str, object], list[str], str]] = {
    "nothing": (by_zone(n=tm.count()), by_zone(n=tm.count()), [], ""),
    "an aggregate added": (by_zone(n=tm.count()), by_zone(n=tm.count(), m=tm.max("fare")), ["added"], "'m' is new"),
    "one added over a changelog": (
        by_zone(CHANGES, n=tm.count()), by_zone(CHANGES, n=tm.count(), m=tm.max("fare")), ["other"], "could not be taken back from it"
    ),
    "one removed": (by_zone(n=tm.count(), m=tm.max("fare")), by_zone(n=tm.count()), ["gone"], "'m' was removed"),
    "another one": (by_zone(n=tm.sum("id")), by_zone(n=tm.sum("fare")), ["other"], "was sum(id) and is now sum(fare)"),
    "another key": (
        by_zone(n=tm.count()), definition(STREAM.key_by("id").aggregate(n=tm.count())), ["other", "other"], "'zone' was removed"
    ),
    "another input": (by_zone(n=tm.count()), by_zone(CHANGES, n=tm.count()), ["other"], "is now a changelog with the key id"),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGED)
def test_changes_of_a_definition(case: str) -> None:
    old, new, effects, what = CHANGED[case]
    found = definition_changes(old, new)
    assert [change.effect for change in found] == effects
    assert not effects or what in found[0].what


def test_a_lifetime_may_change() -> None:
    old, new = by_zone(n=tm.count()), definition(STREAM.key_by("zone").aggregate(n=tm.count(), ttl=tm.state_ttl("1 day")))
    (found,) = definition_changes(old, new)
    assert (found.about, found.effect) == ("ttl", "none")
