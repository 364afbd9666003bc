"""A lifetime that a state has again, after it had none for a while: in the same time or another, under its name or another's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.verdict.stored import operator_of, stored_state, trips
from tidemark.graph.operators.keyed_process.descriptors import StateDescriptor
from tidemark.graph.operators.registry import encode
from tidemark.savepoints.compatibility.operators import check_operator
from tidemark.savepoints.model.verdict import OperatorVerdict
from tidemark.semantics.keyed_process.declarations import StateTtl
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = 3_600_000
NOW = 1_700_000_000_000
EVENT, PROCESSING = tm.state_ttl("1 day", domain="event"), tm.state_ttl("1 day")
States = Mapping[str, StateDescriptor]


def noting(element: Any, ctx: Any) -> None:
    """Do nothing."""


def judged(*declared: States, **names: str | None) -> OperatorVerdict:
    """Return the verdict on states that were declared in one way after the other; all but the last have left their columns."""
    nodes = [operator_of(trips().key_by("zone").process(noting, returns="n INT", state=states).uid("w")) for states in declared]
    stored = [stored_state(node) for node in nodes[:-1]]
    fields = {field["name"]: field for each in stored for field in each.definition["schema"]["fields"]}  # type: ignore[index]
    definition = {**encode(nodes[-2]), "schema": {"type": "struct", "fields": list(fields.values())}}
    return check_operator("w", replace(stored[-1], definition=definition), nodes[-1], stored_uid="w", names=names, types=None)


def value(ttl: StateTtl | None = None) -> StateDescriptor:
    return tm.value_state("INT", ttl=ttl)


def test_times_of_an_earlier_lifetime_are_dropped() -> None:
    again = judged({"a": value(EVENT)}, {"a": value()}, {"a": value(PROCESSING)})
    assert (again.status, again.rewrite.dropped, again.rewrite.added) == ("migrates", ("a__renewed",), ())
    assert any("what the state 'a' kept as 'a__renewed' before an earlier change" in each.text() for each in again.findings)


def test_they_do_not_meet_those_of_another_state_that_takes_the_name() -> None:
    found = judged(
        {"a": value(EVENT), "b": value(PROCESSING)}, {"a": value(), "b": value(PROCESSING)}, {"c": value(), "a": value(PROCESSING)},
        a="c", b="a",
    )  # fmt: skip
    assert (found.status, found.rewrite.dropped) == ("migrates", ("a__renewed",))
    assert found.rewrite.renamed == {"a__value": "c__value", "b__value": "a__value", "b__renewed": "a__renewed"}


def test_where_no_name_is_given_again_nothing_is_dropped() -> None:
    for found in (judged({"a": value(EVENT)}, {"a": value()}, {"a": value()}), judged({"a": value()}, {"a": value(EVENT)})):
        assert (found.status, found.rewrite.empty) == ("compatible", True)


def kinds(ttl: StateTtl | None) -> States:
    return {
        "value": tm.value_state("BIGINT", ttl=ttl),
        "list": tm.list_state("BIGINT", ttl=ttl),
        "map": tm.map_state("STRING", "BIGINT", ttl=ttl),
        "most": tm.reducing_state("BIGINT", max, ttl=ttl),
        "sum": tm.aggregating_state("BIGINT", create=int, add=lambda total, more: total + more, result=int, ttl=ttl),
    }


def remember(element: Any, ctx: Any) -> Iterator[Mapping[str, Any]]:
    """Emit what is known of a key, and remember a value that is not null."""
    state, found = ctx.state, element["v"]
    known = [state.value.value(), state.list.get(), dict(state.map.items()), state.most.get(), state.sum.get()]
    yield {"k": element["k"], "known": repr(known)}
    if found is not None:
        state.value.update(found)
        state.list.add(found)
        state.map.put("v", found)
        state.most.add(found)
        state.sum.add(found)


@pytest.mark.spark
def test_state_begins_the_new_lifetime(spark: SparkSession, tmp_path: Path) -> None:
    """In processing time after one in event time, and the other way round."""
    store, epochs, uids = str(tmp_path / "store"), [], ("one", "other")
    first, last = {"one": EVENT, "other": PROCESSING}, {"one": PROCESSING, "other": EVENT}

    def run(ttl: Mapping[str, StateTtl], hour: int, *rows: tuple[str, int | None]) -> dict[str, dict[str, str]]:
        epochs.append([(k, hour * HOUR, v) for k, v in rows])
        elements = tm.from_elements(epochs=epochs, schema="k STRING, t BIGINT, v BIGINT")
        read = tm.source("e", elements, watermarks=tm.ascending(timestamp="t"))
        outputs = {}
        for uid in uids:
            known = read.key_by("k").process(remember, returns="k STRING, known STRING", state=kinds(ttl.get(uid))).uid(uid)
            outputs[uid] = tm.memory(known, f"{tmp_path}/{uid}")
        job = tm.Job("job", outputs=outputs, store=store, parallelism=2)
        tm.run(job, spark=spark, clock=ManualClock(NOW + hour * HOUR), handle_signals=False)
        found = {}
        for uid in uids:
            made = tm.memory_table(f"{tmp_path}/{uid}")
            assert made is not None
            found[uid] = {row["k"]: row["known"] for row in made.to_pylist()}
            tm.clear_memory(f"{tmp_path}/{uid}")
        return found

    run(first, 1, ("a", 7), ("b", 7))
    run({}, 2, ("b", 8))
    kept = {"a": "[7, [7], {'v': 7}, 7, 7]", "b": "[8, [7, 8], {'v': 8}, 8, 15]"}
    assert run(last, 3, ("a", None), ("b", None)) == dict.fromkeys(uids, kept)
    run(last, 40, ("c", 1))
    nothing = dict.fromkeys("ab", "[None, [], {}, None, None]")
    assert run(last, 41, ("a", None), ("b", None)) == dict.fromkeys(uids, nothing)
