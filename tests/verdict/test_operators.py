"""Every kind of operator, and every change of one: what the verdict says, and what becomes of the columns of its state."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

import tidemark as tm
from tests.verdict.stored import SCHEMA, Declare, columns, job_of, judged, node_of, record_of, trips, whole
from tidemark.errors import StateMismatchError
from tidemark.graph.operators.state_names import ELEMENT_ORDER
from tidemark.graph.operators.window.execution import is_incremental
from tidemark.savepoints.compatibility.state_check import check_compatibility
from tidemark.savepoints.model.verdict import OperatorVerdict
from tidemark.state.encoding.codec import to_jsonable


def each(elements: Any, context: Any) -> list[dict[str, object]]:
    return [{"n": len(list(elements)), "index": context.index}]


def over(assigner: Any, *triggers: Any, **aggregates: tm.Aggregate) -> Declare:
    def declare(stream: tm.Stream) -> tm.Stream:
        windowed = stream.key_by("zone").window(assigner)
        for trigger in triggers:
            windowed = windowed.trigger(trigger)
        return windowed.aggregate(**(aggregates or {"n": tm.count(), "fares": tm.sum("fare")})).uid("w")

    return declare


def hourly(key: str = "zone", **aggregates: tm.Aggregate) -> Declare:
    def declare(stream: tm.Stream) -> tm.Stream:
        return stream.key_by(key).window(tm.tumbling("1 hour")).aggregate(**aggregates).uid("w")

    return declare


def own(**functions: Any) -> tm.Aggregate:
    parts: dict[str, Any] = {"create": int, "add": max, "merge": max, "result": abs, **functions}
    return tm.python_aggregate(*parts.values(), arguments=["seats"], state="BIGINT", returns="BIGINT")


PURGING = tm.purging_trigger(tm.event_time_trigger(early=tm.count_trigger(5)))
KINDS: dict[str, Declare] = {
    "tumbling": over(tm.tumbling("1 hour")),
    "processing time": over(tm.tumbling("1 hour", time="processing")),
    "sliding": over(tm.sliding("1 hour", "10 minutes")),
    "cumulative": over(tm.cumulative("1 hour", "10 minutes")),
    "local days": over(tm.tumbling("1 day", zone="Europe/Berlin")),
    "local days of each row": over(tm.tumbling("1 day", zone_by="borough")),
    "session": over(tm.session("5 minutes")),
    "dynamic session": over(tm.session(gap_by="seats * 1000")),
    "count": over(tm.count_window(10)),
    "sliding count": over(tm.count_window(10, 5)),
    "triggered": over(tm.tumbling("1 hour"), tm.event_time_trigger(early=tm.count_trigger(5))),
    "triggered session": over(tm.session("5 minutes"), tm.count_trigger(5)),
    "global": over(tm.global_window(), tm.count_trigger(5)),
    "purging": over(tm.tumbling("1 hour"), PURGING),
    "purging session": over(tm.session("5 minutes"), tm.purging_trigger(tm.count_trigger(5))),
    "process": lambda s: s.key_by("zone").window(tm.tumbling("1 hour")).process(each, "n INT, index INT").uid("w"),
    "evicting": lambda s: (
        s.key_by("zone")
        .window(tm.global_window())
        .trigger(tm.count_trigger(3))
        .evictor(tm.count_evictor(5))
        .process(each, "n INT, index INT")
    ).uid("w"),
    "window_all": lambda s: s.window_all(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("w"),
    "reduce": lambda s: s.key_by("zone").window(tm.tumbling("1 hour")).reduce(fare="a.fare + b.fare").uid("w"),
    "behind aggregates": lambda s: (
        s.key_by("zone").window(tm.tumbling("1 hour")).aggregate(tm.window_function(each, "n INT, index INT"), n=tm.count())
    ).uid("w"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_operator_that_stays_as_it_is_fits(kind: str) -> None:
    found = judged(KINDS[kind], KINDS[kind])
    assert (found.status, found.findings, found.rewrite.empty) == ("compatible", (), True)


@pytest.mark.parametrize("before", KINDS)
def test_an_operator_of_one_kind_is_none_of_another(before: str) -> None:
    for name, after in KINDS.items():
        if name != before:
            found = judged(KINDS[before], after)
            functions = {"tumbling", "behind aggregates"}
            # Aggregates of one name fit; a function behind them may come and go.
            assert {before, name} == functions or found.status == "incompatible", (before, name, found)
            assert found.status != "incompatible" or all(each.lost and each.fix for each in found.findings if each.fit == "incompatible")


@dataclass(frozen=True)
class Change:
    """One change of an operator; ``says`` must be in the findings, ``state`` is what becomes of the columns."""

    before: Declare
    after: Declare
    status: str
    says: tuple[str, ...] = ()
    state: dict[str, object] = field(default_factory=dict)
    new: str = SCHEMA
    maps: dict[str, Any] = field(default_factory=dict)
    old: str = SCHEMA


COUNT, FARES = tm.count(), tm.sum("fare")
LATE: Declare = lambda s: (  # noqa: E731 - beside the others
    s.key_by("zone").window(tm.tumbling("1 hour")).allowed_lateness("10 minutes").aggregate(n=COUNT).uid("w")
)
PROCESS = KINDS["process"]
CHANGES: dict[str, Change] = {
    "lateness": Change(hourly(n=COUNT), LATE, "compatible", ("lateness was none and is now 10m",)),
    "order": Change(hourly(n=COUNT, f=FARES), hourly(f=FARES, n=COUNT), "compatible"),
    "blanks": Change(hourly("zone+1", n=COUNT), hourly("zone + 1", n=COUNT), "incompatible"),
    "blanks in an argument": Change(hourly(f=tm.sum("fare*2")), hourly(f=tm.sum("fare * 2")), "compatible"),
    "letters and quotes": Change(
        hourly("zone", f=tm.sum("fare * 2")), lambda s: s.key_by(zone="`Zone`").window(tm.tumbling("1 hour"))
        .aggregate(f=tm.sum("`FARE` * 2")).uid("w"), "compatible",
    ),
    "a name that reads like an expression": Change(
        hourly(f=tm.sum("fare + tip")), hourly(f=tm.sum("`fare + tip`")), "incompatible", new=f"{SCHEMA}, `fare + tip` DOUBLE",
    ),
    "blanks in one's own SQL": Change(
        hourly(f=tm.sql_aggregate({"s": ("sum(fare*2)", "sum({s})")}, "{s}")),
        hourly(f=tm.sql_aggregate({"s": ("sum( fare * 2 )", "SUM({s})")}, "{s} + 1")), "compatible",
    ),
    "one's own SQL": Change(
        hourly(f=tm.sql_aggregate({"s": ("sum(fare*2)", "sum({s})")}, "{s}")),
        hourly(f=tm.sql_aggregate({"s": ("sum(fare*3)", "sum({s})")}, "{s}")), "incompatible", ("computed differently",),
    ),
    "merged otherwise": Change(
        hourly(f=tm.sql_aggregate({"s": ("sum(fare)", "sum({s})"), "t": ("sum(tip)", "sum({t})")}, "{s}")),
        hourly(f=tm.sql_aggregate({"s": ("sum(fare)", "sum({t})"), "t": ("sum(tip)", "sum({t})")}, "{s}")), "incompatible",
    ),
    "column of one's own SQL renamed": Change(
        hourly(f=tm.sql_aggregate({"s": ("sum(fare * seats)", "sum({s})")}, "{s}")),
        hourly(f=tm.sql_aggregate({"s": ("sum(fare * places)", "sum({s})")}, "{s}")), "compatible",
        new=SCHEMA.replace("seats", "places"), maps={"columns": columns(seats="places")},
    ),
    "columns swapped": Change(
        hourly(f=tm.max_by("fare", "tip")), hourly(f=tm.max_by("tip", "fare")), "compatible",
        new=SCHEMA.replace("fare DOUBLE", "tmp").replace("tip D", "fare D").replace("tmp", "tip DOUBLE"),
        maps={"columns": columns(fare="tip", tip="fare")},
    ),
    "what one's own function makes of its state": Change(
        hourly(f=own(result=abs)), hourly(f=own(result=str)), "compatible",
    ),
    "what one's own function adds": Change(
        hourly(f=own(add=max)), hourly(f=own(add=min)), "incompatible", ("computed differently",),
    ),
    "key": Change(hourly(n=COUNT), hourly("borough", n=COUNT), "incompatible", ("key 'zone' was removed", "key 'borough' is new")),
    "size": Change(over(tm.tumbling("10 ms")), over(tm.tumbling("20 ms")), "incompatible", ("windows were",)),
    "gap": Change(over(tm.session("10 ms")), over(tm.session("20 ms")), "incompatible", ("windows were",)),
    "slide": Change(over(tm.sliding("10 ms", "5 ms")), over(tm.sliding("10 ms", "2 ms")), "incompatible", ("windows were",)),
    "count": Change(over(tm.count_window(10)), over(tm.count_window(12)), "incompatible", ("windows were",)),
    "domain": Change(over(tm.tumbling("10 ms")), KINDS["processing time"], "incompatible", ("windows were",)),
    "setting of a trigger": Change(
        over(tm.tumbling("10 ms"), tm.count_trigger(2)), over(tm.tumbling("10 ms"), tm.count_trigger(3)), "compatible", ("trigger was",)
    ),
    "trigger": Change(over(tm.tumbling("10 ms")), over(tm.tumbling("10 ms"), tm.count_trigger(3)), "incompatible", ("trigger was",)),
    "purging": Change(
        over(tm.tumbling("10 ms"), tm.count_trigger(3)),
        over(tm.tumbling("10 ms"), tm.purging_trigger(tm.count_trigger(3))),
        "incompatible",
        ("trigger was",),
    ),
    "aggregate added": Change(
        hourly(n=COUNT),
        hourly(n=COUNT, mean=tm.avg("fare")),
        "migrates",
        ("'mean' is new", "only elements from now on"),
        {"added": ["mean__sum", "mean__count", "mean__mean"]},
    ),
    "aggregate gone": Change(hourly(n=COUNT, f=FARES), hourly(n=COUNT), "incompatible", ("'f' was removed", "--column w:f=")),
    "aggregate left": Change(
        hourly(n=COUNT, f=FARES),
        hourly(n=COUNT),
        "migrates",
        ("'f' is dropped",),
        {"dropped": ["f__sum"]},
        maps={"columns": columns(f=None)},
    ),
    "aggregate renamed unsaid": Change(
        hourly(n=COUNT, f=FARES), hourly(n=COUNT, fares=FARES), "incompatible", ("'f' was removed", "--column w:f=fares")
    ),
    "aggregate renamed": Change(
        hourly(n=COUNT, f=FARES),
        hourly(n=COUNT, fares=FARES),
        "migrates",
        ("'f' is now called 'fares'",),
        {"renamed": {"f__sum": "fares__sum"}},
        maps={"columns": columns(f="fares")},
    ),
    "aggregates swapped": Change(
        hourly(a=tm.sum("fare"), b=tm.sum("seats")),
        hourly(a=tm.sum("seats"), b=tm.sum("fare")),
        "migrates",
        state={"renamed": {"a__sum": "b__sum", "b__sum": "a__sum"}},
        maps={"columns": columns(a="b", b="a")},
    ),
    "aggregate of something else": Change(
        hourly(f=FARES), hourly(f=tm.sum("fare + 1")), "incompatible", ("was sum(fare) and is now sum(fare + 1)", "add another")
    ),
    "aggregate of another kind": Change(hourly(f=FARES), hourly(f=tm.max("fare")), "incompatible", ("sum(fare) and is now max(fare)",)),
    "key renamed": Change(
        hourly(n=COUNT),
        lambda s: s.key_by(area="zone").window(tm.tumbling("1 hour")).aggregate(n=COUNT).uid("w"),
        "migrates",
        ("key 'zone' is now called 'area'",),
        {"renamed": {"key_zone": "key_area"}},
        maps={"columns": columns(zone="area")},
    ),
    "column renamed everywhere": Change(
        hourly(f=tm.sum("zone * fare")),
        hourly("area", f=tm.sum("area * fare")),
        "migrates",
        state={"renamed": {"key_zone": "key_area"}},
        new=SCHEMA.replace("zone", "area"),
        maps={"columns": columns(zone="area")},
    ),
    "key widened": Change(
        hourly(n=COUNT), hourly(n=COUNT), "migrates", ("'zone' was INT and is now BIGINT",), {"widened": {"key_zone": "long"}},
        new=SCHEMA.replace("zone INT", "zone BIGINT"),
    ),
    "key of fractions widened": Change(
        hourly("fare", n=COUNT), hourly("fare", n=COUNT), "incompatible", ("'fare' was FLOAT and is now DOUBLE", "cast it to FLOAT"),
        old=SCHEMA.replace("fare DOUBLE", "fare FLOAT"),
    ),
    "fractions widened": Change(
        hourly(top=tm.max("fare")), hourly(top=tm.max("fare")), "migrates", ("'top' was FLOAT and is now DOUBLE",),
        {"widened": {"top__max": "double"}}, old=SCHEMA.replace("fare DOUBLE", "fare FLOAT"),
    ),
    "distinct fractions widened": Change(
        hourly(all=tm.collect_set("fare")), hourly(all=tm.collect_set("fare")), "incompatible",
        ("'all' was ARRAY<FLOAT> and is now ARRAY<DOUBLE>",), old=SCHEMA.replace("fare DOUBLE", "fare FLOAT"),
    ),
    "key narrowed": Change(
        hourly("borough", n=COUNT), hourly("borough", n=COUNT), "incompatible", ("was STRING and is now INT", "cast it to STRING"),
        new=SCHEMA.replace("borough STRING", "borough INT"),
    ),
    "aggregate widened": Change(
        hourly(top=tm.max("seats"), all=tm.collect_set("seats")), hourly(top=tm.max("seats"), all=tm.collect_set("seats")), "migrates",
        ("'top' was INT and is now BIGINT", "'all' was ARRAY<INT> and is now ARRAY<BIGINT>"),
        {"widened": {"top__max": "long", "all__values": {"type": "array", "elementType": "long", "containsNull": True}}},
        new=SCHEMA.replace("seats INT", "seats BIGINT"),
    ),
    "decimal widened": Change(
        hourly(t=tm.sum("tip")), hourly(t=tm.sum("tip")), "migrates", ("DECIMAL(18,2) and is now DECIMAL(20,3)",),
        {"widened": {"t__sum": "decimal(20,3)"}}, new=SCHEMA.replace("DECIMAL(8, 2)", "DECIMAL(10, 3)"),
    ),
    "decimal narrowed": Change(
        hourly(t=tm.sum("tip")), hourly(t=tm.sum("tip")), "incompatible", ("DECIMAL(18,2) and is now DECIMAL(17,1)",),
        new=SCHEMA.replace("DECIMAL(8, 2)", "DECIMAL(7, 1)"),
    ),
    "sum of what is widened": Change(
        hourly(t=tm.sum("seats")), hourly(t=tm.sum("seats")), "compatible", new=SCHEMA.replace("seats INT", "seats BIGINT")
    ),
    "column of elements added": Change(
        PROCESS, PROCESS, "migrates", ("column 'color' from now on",), {"added": ["row_color"]}, new=f"{SCHEMA}, color STRING"
    ),
    "column of elements widened": Change(
        PROCESS, PROCESS, "migrates", ("'seats' of kept elements was INT",), {"widened": {"row_seats": "long"}},
        new=SCHEMA.replace("seats INT", "seats BIGINT"),
    ),
    "column of elements renamed": Change(
        PROCESS, PROCESS, "migrates", ("'seats' of kept elements is now called 'places'",), {"renamed": {"row_seats": "row_places"}},
        new=SCHEMA.replace("seats", "places"), maps={"columns": columns(seats="places")},
    ),
    "column of elements in other letters, widened": Change(
        PROCESS, PROCESS, "migrates", ("'seats' of kept elements was INT",), {"widened": {"row_seats": "long"}},
        new=SCHEMA.replace("seats INT", "Seats BIGINT"),
    ),
    "column of elements gone": Change(PROCESS, PROCESS, "compatible", new=SCHEMA.replace("seats INT, ", "")),
    "function": Change(
        PROCESS, lambda s: s.key_by("zone").window(tm.tumbling("1 hour")).process(each, "n BIGINT, index INT").uid("w"), "compatible",
        ("function was replaced",),
    ),
    "function gone with what it kept": Change(
        KINDS["behind aggregates"], hourly(n=COUNT), "migrates", ("its state is dropped: 7 rows",),
        {"without_function": True}, maps={"files": {"main": 5, "function": 7}},
    ),
    "evictor": Change(
        KINDS["evicting"],
        lambda s: (
            s.key_by("zone").window(tm.global_window()).trigger(tm.count_trigger(3)).evictor(tm.count_evictor(9))
            .process(each, "n INT, index INT")
        ).uid("w"),
        "compatible", ("evictor was",),
    ),
    "aggregates that keep elements": Change(
        KINDS["triggered session"], KINDS["purging session"], "incompatible",
        ("it kept aggregates and is now to keep all elements", "trigger was"),
    ),
    "aggregates that keep no elements any more": Change(
        KINDS["purging session"], KINDS["triggered session"], "incompatible",
        ("it kept all elements of a window and is now to keep aggregates", "trigger was"),
    ),
    "aggregate over kept elements": Change(
        KINDS["purging session"],
        over(tm.session("5 minutes"), tm.purging_trigger(tm.count_trigger(5)), top=tm.max("seats")),
        "migrates", ("elements keep the column 'seats'",), {"added": ["row_seats"]},
    ),
    "reduced otherwise": Change(
        KINDS["reduce"], lambda s: s.key_by("zone").window(tm.tumbling("1 hour")).reduce(fare="a.fare").uid("w"), "incompatible",
        ("computed differently",),
    ),
}  # fmt: skip
CHANGES["blanks"] = Change(
    lambda s: s.key_by(k="zone+1").window(tm.tumbling("10 ms")).aggregate(n=COUNT).uid("w"),
    lambda s: s.key_by(k="zone + 1").window(tm.tumbling("10 ms")).aggregate(n=COUNT).uid("w"),
    "compatible",
)


@pytest.mark.parametrize("name", CHANGES)
def test_changes(name: str) -> None:
    change = CHANGES[name]
    found = judged(change.before, change.after, old=change.old, new=change.new, **change.maps)
    assert found.status == change.status, found
    text = "\n".join(each.text() for each in found.findings)
    for part in change.says:
        assert part in text
    state = json.loads(json.dumps(to_jsonable(found.rewrite)))
    nothing = {"renamed": {}, "dropped": [], "widened": {}, "added": [], "without_function": False}
    assert state == {**nothing, **change.state}
    json.loads(json.dumps(to_jsonable(found)))


def test_every_finding_is_there_at_once() -> None:
    before = hourly(n=COUNT, f=FARES, t=tm.max("seats"))
    after = over(tm.tumbling("2 hours"), n=tm.count("fare"), more=COUNT, t=tm.max("seats"))
    verdicts = whole(before(trips()), after(trips(SCHEMA.replace("zone INT", "zone BIGINT").replace("seats INT", "seats STRING"))))
    with pytest.raises(StateMismatchError) as raised:
        verdicts.require()
    for part in ("windows were", "'n' was count()", "'f' was removed", "'t' was INT and is now STRING", "'w'", "epoch 3", "Fix:"):
        assert part in str(raised.value)
    assert "is new" not in str(raised.value)
    shown = verdicts.text()
    assert "'more' is new" in shown
    assert "key 'zone' was INT and is now BIGINT" in shown


def test_types_that_spark_told_count_more_than_those_of_the_graph() -> None:
    record, job = record_of(hourly(n=COUNT)(trips())), job_of(hourly(n=COUNT)(trips()))
    assert check_compatibility(record, job, types={"w": {"key_zone": "long", "n__count": "long"}}).status == "migrates"
    assert check_compatibility(record, job, types={"w": {"key_zone": "integer", "n__count": "integer"}}).status == "incompatible"


def test_combinations_that_are_told_apart_go_by_their_order_and_not_by_their_names() -> None:
    distinct, renamed = (hourly(n=tm.count_distinct("borough", name)) for name in ("seats", "places"))
    before, after = distinct(trips()), renamed(trips(SCHEMA.replace("seats", "places")))

    def combinations(last: str, kind: str = "integer") -> dict[str, object]:
        fields = [{"name": name, "type": of, "nullable": True, "metadata": {}} for name, of in (("borough", "string"), (last, kind))]
        return {"type": "array", "elementType": {"type": "struct", "fields": fields}, "containsNull": False}

    record = record_of(before)
    (column,) = [field for field in record.operators["w"].definition["schema"]["fields"] if "n__" in field["name"]]  # type: ignore[index]
    column["type"] = combinations("seats")

    def found(kind: str) -> OperatorVerdict:
        types = {"w": {"key_zone": "integer", column["name"]: combinations("places", kind)}}
        return check_compatibility(record, job_of(after), columns=columns(seats="places"), types=types).operator("w")

    assert found("integer").status == "migrates"
    assert found("integer").rewrite.widened == {column["name"]: combinations("places")}
    assert found("string").status == "incompatible"


def test_elements_that_an_earlier_build_kept_are_told_from_a_change_of_the_job() -> None:
    record, job = record_of(KINDS["count"](trips())), job_of(KINDS["count"](trips()))
    schema = record.operators["w"].definition["schema"]
    schema["fields"].append({"name": ELEMENT_ORDER, "type": "long", "nullable": True, "metadata": {}})  # type: ignore[index]
    (finding,) = check_compatibility(record, job).operator("w").findings
    assert finding.what == "the stored windows hold elements, as those of an earlier build did; now they are to hold partial results"


def test_an_operator_that_never_stored_anything_takes_any_columns() -> None:
    record = record_of(hourly(n=COUNT)(trips()))
    empty = record.operators["w"]
    empty.definition.pop("schema")  # type: ignore[attr-defined]
    found = check_compatibility(record, job_of(hourly(n=COUNT, f=FARES)(trips()))).operator("w")
    assert (found.status, found.rewrite.added) == ("migrates", ())


def test_what_keeps_elements_is_known_without_spark() -> None:
    keeping = {name for name, declare in KINDS.items() if not is_incremental(node_of(declare(trips())))}
    assert keeping == {"purging session", "process", "evicting"}
