"""What a duplicate is, and what is late: the rule, element by element."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemark as tm
from tidemark.errors import DefinitionError, DurationError
from tidemark.graph import kind_of, lineage, schema_of
from tidemark.graph.operators.deduplicate.node import DeduplicateNode
from tidemark.semantics.deduplicate.deduplicate import Deduplication, DeduplicationByElement
from tidemark.testing import OperatorHarness

AGAIN, LATE = tm.OutputTag("again"), tm.OutputTag("too-late")


def clicks() -> tm.Stream:
    """Return the elements that come into the operators here."""
    given_rows = tm.from_elements([], schema="at TIMESTAMP, user STRING, page STRING")
    return tm.source("clicks", given_rows, watermarks=tm.ascending(timestamp="at"))


def node_of(stream: tm.Stream) -> DeduplicateNode:
    """Return a stream's deduplication."""
    assert isinstance(stream.node, DeduplicateNode)
    return stream.node


def test_the_first_element_is_passed_on_and_within_counts_from_it() -> None:
    stream = clicks().key_by("user").deduplicate(within="10 seconds", duplicates_to=AGAIN, late_to=LATE).uid("once")
    harness = OperatorHarness(stream)
    for at, page in ((0, "a"), (9_999, "b"), (10_000, "c"), (15_000, "d")):
        harness.process({"user": "u", "page": page}, at=at)
    harness.process({"user": None, "page": "n"}, at=1)
    assert [row["page"] for row in harness.advance_watermark(15_000)] == ["a", "n", "c"]
    assert [row["page"] for row in harness.side_output(AGAIN)] == ["b", "d"]
    # 'a' may be forgotten, 'c' not yet: duplicates do not prolong what is known of it.
    assert [state["user"] for state in harness.state()] == ["u"]
    harness.process({"user": "u", "page": "e"}, at=15_000)
    harness.process({"user": "u", "page": "f"}, at=20_000)
    assert [row["page"] for row in harness.advance_watermark(29_999)] == ["f"]
    assert [row["page"] for row in harness.side_output(LATE)] == ["e"]
    assert harness.counts == {"in": 7, "accepted": 4, "duplicates": 2, "late": 1}
    harness.end_input()
    assert harness.state() == []


def test_an_element_before_one_that_was_kept_is_a_duplicate_too() -> None:
    harness = OperatorHarness(clicks().key_by("user").deduplicate(within="10 seconds", allowed_lateness="1 minute").uid("once"))
    harness.process({"user": "u"}, at=20_000)
    assert len(harness.advance_watermark(20_000)) == 1
    harness.process({"user": "u"}, at=10_001)
    harness.process({"user": "u"}, at=10_000)
    assert [each.time for each in harness.emitted] == [20_000]
    assert len(harness.advance_watermark(20_000)) == 1
    assert harness.counts == {"in": 3, "accepted": 2, "duplicates": 1, "late": 0}


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(-50, 50)), max_size=8), max_size=6),
    st.integers(1, 20),
    st.integers(0, 15),
    st.integers(0, 10),
)
def test_what_is_forgotten_is_never_missed(epochs: list[list[tuple[int, int]]], within: int, lateness: int, bound: int) -> None:
    rule = Deduplication(within, lateness)
    forgetful = DeduplicationByElement(rule)
    remembered: dict[int, list[int]] = {}
    watermark = newest = -(2**63)
    for epoch in epochs:
        for key, time in sorted(epoch, key=lambda element: element[1]):
            judged = rule.outcome_of(time, remembered.get(key, []), watermark)
            assert forgetful.process((key,), time) == judged
            if judged == "kept":
                remembered.setdefault(key, []).append(time)
        newest = max([newest, *(time for _, time in epoch)])
        watermark = max(watermark, newest - bound - 1)
        forgetful.advance_watermark(watermark)
        assert all(time + within - 1 + lateness > watermark for _, time in forgetful.kept())
    assert all(after - before >= within for times in remembered.values() for before, after in pairwise(sorted(times)))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), max_size=12), st.integers(1, 20), st.data())
def test_elements_in_order_do_not_depend_on_how_they_are_cut_into_epochs(
    elements: list[tuple[int, int]], within: int, data: st.DataObject
) -> None:
    ordered = sorted(elements, key=lambda element: element[1])
    found = []
    for _ in range(2):
        operator, kept = DeduplicationByElement(Deduplication(within)), []
        for key, time in ordered:
            if operator.process((key,), time) == "kept":
                kept.append((key, time))
            if data.draw(st.booleans()):
                # A watermark is behind the newest element, since others of its time may follow.
                operator.advance_watermark(time - 1)
        found.append(kept)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"within": "0 seconds"}, DefinitionError, "of zero length finds no duplicates"),
        ({"within": 3600}, DurationError, "3600"),
        ({"within": "1 hour", "keep": "last"}, DefinitionError, "keep='last'"),
        ({"within": "1 hour", "late_to": "late"}, DefinitionError, "late_to"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: dict[str, object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        clicks().key_by("user").deduplicate(**arguments)  # type: ignore[arg-type]


def test_it_comes_back_from_its_definition_and_tells_changes() -> None:
    node = node_of(clicks().key_by("user").deduplicate(within="1 hour").uid("once"))
    kind = kind_of(node)
    stored = json.loads(json.dumps(kind.encode(node)))
    assert kind.encode(kind.decode(stored, "once")) == stored
    longer = kind.encode(node_of(clicks().key_by(who="user").deduplicate(within="2 hours")))
    changes = kind.changes(stored, longer, {"user": "who"}, None)
    assert [(change.about, change.effect, change.what) for change in changes] == [
        ("key", "renamed", "the key 'user' is now called 'who'"),
        ("within", "none", "the time within which a row is a duplicate was 1h and is now 2h"),
    ]


def test_a_job_without_uid_is_told_how_to_name_it() -> None:
    stream = clicks().key_by("user").deduplicate(within="1 hour")
    with pytest.raises(DefinitionError, match="the operator that deduplicates by user keeps state and has no uid"):
        tm.Job("clicks", outputs={"once": tm.memory(stream, "once")})


def test_columns_come_through_and_keep_their_origins() -> None:
    stream = clicks().key_by("user").deduplicate(within="1 hour", duplicates_to=AGAIN).uid("once")
    for each in (stream, stream.side_output(AGAIN)):
        schema = schema_of(each.node)
        assert schema is not None
        assert schema.names == ("at", "user", "page")
        assert lineage(each.node, "page") == {("clicks", "page")}
