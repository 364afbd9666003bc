"""Mistakes in interval joins: what is refused at definition, and what to write instead."""

from __future__ import annotations

from typing import Any

import pytest

import tidemark as tm
from tidemark.graph.checks.column_lineage import lineage
from tidemark.graph.checks.schema_inference import schema_of
from tidemark.graph.model.nodes import StatefulNode
from tidemark.graph.operators.registry import definition_changes, encode
from tidemark.semantics.joins.interval import How


def read(name: str, columns: str) -> tm.Stream:
    given = tm.from_elements(epochs=[], schema=columns)
    return tm.source(name, given, watermarks=tm.bounded_out_of_orderness("1 minute", timestamp="t"))


RIDES = read("rides", "t TIMESTAMP, ride_id BIGINT, zone STRING")
FARES = read("fares", "t TIMESTAMP, ride_id BIGINT, of BIGINT, fare DOUBLE").select("ride_id", "of", "fare", paid_at="t")
WITHIN = ("-10 minutes", "1 hour")
LATE = tm.OutputTag("late")


@pytest.mark.parametrize(
    ("arguments", "what", "fix"),
    [
        ({"on": "ride"}, "unknown column 'ride'; did you mean 'ride_id'?", "write 'ride_id'"),
        ({"on": []}, "is given [], not a list of columns", "write ['zone', 'day']"),
        ({"on": {}}, "is an empty mapping", "write on={'ride_id': 'fare_ride_id'}"),
        (
            {"on": {"zone": "of"}},
            "compares 'zone' of type STRING with 'of' of type BIGINT",
            "CAST(of AS STRING)",
        ),
        ({"on": {"zone": "fare +"}}, "cannot be parsed", "correct the SQL"),
        ({"how": "outer"}, "join(how='outer') is none of inner, left, right, full, semi, anti", "write how='full'"),
        ({"how": "left_outer"}, "join(how='left_outer') is none of", "write how='left'"),
        ({"within": "1 hour"}, "is not a pair of durations", "within=('-10 minutes', '1 hour')"),
        ({"within": ("1 hour", "0 minutes")}, "a lower bound that is greater than the upper one", "the least and the greatest time"),
        ({"within": (0, "1 hour")}, "join within=0 has no unit", "'0 seconds'"),
        ({"late_left_to": LATE, "late_right_to": LATE}, "uses the tag 'late' for the late rows of both streams", "each its own tag"),
        ({"late_left_to": "late"}, "late_left_to is 'late', not an output tag", "tm.OutputTag('late')"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], what: str, fix: str) -> None:
    given = {"on": "ride_id", "within": WITHIN, **arguments}
    with pytest.raises(tm.TidemarkError) as refused:
        RIDES.join(FARES, **given)
    assert what in str(refused.value)
    assert fix in str(refused.value)
    assert "test_interval_mistakes.py" in str(refused.value)


def test_names_that_both_streams_have() -> None:
    with pytest.raises(tm.TidemarkError, match=r"both sides have columns 't', 'zone'.*right_t='t'"):
        RIDES.join(RIDES, on="ride_id", within=WITHIN)
    assert schema_of(RIDES.join(RIDES, on="ride_id", how="semi", within=WITHIN).node) == schema_of(RIDES.node)


def test_what_it_is_joined_with() -> None:
    with pytest.raises(tm.TidemarkError, match=r"join is given .*, not a stream.*\.join\(other, on='id'"):
        RIDES.join(FARES.key_by("ride_id"), on="ride_id", within=WITHIN)  # type: ignore[arg-type]
    with pytest.raises(tm.TidemarkError, match=r"leave out within="):
        RIDES.join(FARES.as_changelog(key=["ride_id"]), on="ride_id", within=WITHIN)


def test_columns_and_where_they_come_from() -> None:
    joined = RIDES.join(FARES.select("ride_id", "fare"), on="ride_id", how="full", within=WITHIN)
    assert str(schema_of(joined.node)) == "t TIMESTAMP, ride_id BIGINT, zone STRING, fare DOUBLE"
    assert lineage(joined.node, "ride_id") == {("rides", "ride_id"), ("fares", "ride_id")}
    assert lineage(joined.node, "fare") == {("fares", "fare")}
    assert lineage(joined.node, "zone") == {("rides", "zone")}


def definition(how: How = "inner", upper: str = "1 hour", on: Any = "ride_id") -> dict[str, object]:
    fares = FARES.select("ride_id", "fare") if on == "ride_id" else FARES.select("of", "fare")
    node = RIDES.join(fares, on=on, how=how, within=("0 ms", upper)).node
    assert isinstance(node, StatefulNode)
    return encode(node)


def test_what_a_change_means_for_its_state() -> None:
    def effects(old: dict[str, object], new: dict[str, object]) -> list[tuple[str, str]]:
        return [(change.about, change.effect) for change in definition_changes(old, new)]

    assert effects(definition(), definition(upper="2 hours")) == [("interval", "none")]
    assert effects(definition("left"), definition("left", upper="2 hours")) == [("interval", "other")]
    assert effects(definition("left"), definition()) == [("how", "none")]
    assert effects(definition(), definition("left")) == [("how", "other")]
    assert effects(definition(), definition(on={"ride_id": "of"})) == [("key", "other")]
