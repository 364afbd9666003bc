"""Everything that can be wrong with windows: the class of the error, the names in it, the user's line, and the fix."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import tidemark as tm
from tests.graph.test_definition_errors import COUNT, HOUR, LATE, Case, job, total, trips, wrong
from tidemark.errors import ColumnError, DefinitionError, DurationError, ExpressionError, InvalidNameError, TidemarkError

SESSION = tm.session("30 minutes")
DAY_OF_CLOCK = tm.tumbling("1 day", time="processing")
COUNTS = tm.count_trigger(10)


def zones(assigner: Any = HOUR) -> tm.WindowedStream:
    return trips().key_by("zone").window(assigner)


def every(elements: Any, context: Any) -> Iterator[dict[str, object]]:
    yield {"n": len(list(elements)), "index": context.index}


def added(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    return {name: a[name] + b[name] for name in a}


def untyped() -> tm.WindowedStream:
    return trips().with_columns(odd="my_function(fare)").key_by("zone").window(HOUR)


def uid_after_process() -> tm.Job:
    stream = zones().late_to(LATE).process(every, "n INT")
    return job(stream.uid("w"), stream.side_output(LATE))


class HalfTrigger:
    """Lacks most of what a trigger needs."""

    can_merge = True

    def describe(self) -> str:
        return "half"


CASES = {
    # assigners
    "slide unreadable": Case(lambda: tm.sliding("1 day", "1 moon"), DurationError, ("slide", "'1 moon'"), "whole number and a unit"),
    "no slide": Case(lambda: tm.sliding("1 day", "0 ms"), DurationError, ("slide", "positive"), "whole number"),
    "offset beyond slide": Case(lambda: tm.sliding("1 day", "1 hour", offset="2 hours"), DurationError, ("offset", "slide"), "modulo"),
    "step that does not divide": Case(lambda: tm.cumulative("1 day", "7 hours"), DurationError, ("no multiple",), "divides"),
    "step of nothing": Case(lambda: tm.cumulative("1 day", "0 s"), DurationError, ("step",), "whole number"),
    "session without gap": Case(lambda: tm.session(time="event"), DefinitionError, ("no gap",), "session('30 minutes')"),
    "session with two gaps": Case(lambda: tm.session("1 hour", gap_by="fare"), DefinitionError, ("both",), "gap_by='if("),
    "session of no gap": Case(lambda: tm.session("0 ms"), DurationError, ("gap", "positive"), "whole number"),
    "blank gap": Case(lambda: tm.session(gap_by=" "), DefinitionError, ("gap_by=' '",), "INTERVAL"),
    "gap as a number": Case(lambda: tm.session(gap_by=wrong(5)), DefinitionError, ("gap_by=5",), "gap_by='timeout_ms'"),
    "gap by an unknown column": Case(
        lambda: zones(tm.session(gap_by="zon * 1000")).aggregate(n=COUNT), ColumnError, ("gap_by", "'zon'"), "'zone'"
    ),
    "gap of another type": Case(lambda: zones(tm.session(gap_by="note")).aggregate(n=COUNT), ExpressionError, ("STRING",), "CAST(note AS"),
    "gap unparsable": Case(lambda: zones(tm.session(gap_by="zone *")).aggregate(n=COUNT), ExpressionError, ("gap_by",), "correct the SQL"),
    "gap by an aggregate": Case(
        lambda: zones(tm.session(gap_by="max(zone)")).aggregate(n=COUNT), ExpressionError, ("'max'",), ".aggregate("
    ),
    "count of text": Case(lambda: tm.count_window(wrong("10")), DurationError, ("size='10'",), "whole number"),
    "count of a fraction": Case(lambda: tm.count_window(10, wrong(2.5)), DurationError, ("slide=2.5",), "whole number"),
    "count of true": Case(lambda: tm.count_window(wrong(True)), DurationError, ("size=True",), "whole number"),
    "count of none": Case(lambda: tm.count_window(0), DurationError, ("size=0",), "whole number"),
    "another time": Case(lambda: tm.tumbling("1 hour", time=wrong("event_time")), DefinitionError, ("'event_time'",), "time='processing'"),
    "assigner not called": Case(lambda: zones(tm.global_window), DefinitionError, ("global_window",), "tm.global_window(...)"),
    "window of all by text": Case(lambda: trips().window_all(wrong("1 hour")), DefinitionError, ("'1 hour'",), "tm.tumbling"),
    # triggers
    "count trigger of none": Case(lambda: tm.count_trigger(0), DefinitionError, ("count_trigger", "n=0"), "from 1"),
    "count trigger of text": Case(lambda: tm.count_trigger(wrong("5")), DefinitionError, ("n='5'",), "from 1"),
    "continuous without interval": Case(
        lambda: tm.continuous_event_time_trigger("0 ms"), DurationError, ("interval", "positive"), "whole number"
    ),
    "continuous by clock": Case(
        lambda: tm.continuous_processing_time_trigger("1 parsec"), DurationError, ("interval", "'1 parsec'"), "whole number"
    ),
    "delta without a function": Case(lambda: tm.delta_trigger(5, wrong("a - b")), DefinitionError, ("'a - b'",), "lambda last, element"),
    "delta of one argument": Case(lambda: tm.delta_trigger(5, wrong(abs)), DefinitionError, ("'abs'", "two arguments"), "two elements"),
    "delta without a number": Case(
        lambda: tm.delta_trigger(wrong("5"), lambda _last, _element: 0.0), DefinitionError, ("threshold='5'",), "pass a number"
    ),
    "delta of nan": Case(
        lambda: tm.delta_trigger(float("nan"), lambda _last, _element: 0.0), DefinitionError, ("threshold=nan",), "pass a number"
    ),
    "early that is no trigger": Case(
        lambda: tm.event_time_trigger(early=wrong(5)), DefinitionError, ("early", "5"), "tm.count_trigger(100)"
    ),
    "late that is not called": Case(
        lambda: tm.event_time_trigger(late=wrong(tm.each_epoch_trigger)), DefinitionError, ("late",), "tm.each_epoch_trigger(...)"
    ),
    "purging what is no trigger": Case(lambda: tm.purging_trigger(wrong(None)), DefinitionError, ("purging_trigger", "None"), "tm.count"),
    "purging twice": Case(lambda: tm.purging_trigger(tm.purging_trigger(COUNTS)), DefinitionError, ("twice",), "once"),
    "trigger as text": Case(lambda: zones().trigger(wrong("count")), DefinitionError, ("'count'", "not a trigger"), "tm.count_trigger"),
    "trigger as a class": Case(
        lambda: zones().trigger(wrong(tm.QuietTrigger)), DefinitionError, ("class QuietTrigger",), "QuietTrigger(...)"
    ),
    "trigger not called": Case(
        lambda: zones().trigger(wrong(tm.count_trigger)), DefinitionError, ("count_trigger",), "tm.count_trigger(...)"
    ),
    "trigger that lacks members": Case(
        lambda: zones().trigger(wrong(HalfTrigger())), DefinitionError, ("lacks on_element", "on_merge"), "tm.Trigger"
    ),
    "two triggers": Case(lambda: zones().trigger(COUNTS).trigger(COUNTS), DefinitionError, ("count_trigger(10)", "already"), "give one"),
    "trigger that cannot merge": Case(
        lambda: zones(SESSION).trigger(tm.delta_trigger(5, lambda _a, _b: 0.0)).aggregate(n=COUNT),
        DefinitionError,
        ("delta_trigger(5", "cannot merge"),
        "another trigger",
    ),
    "early trigger that cannot merge": Case(
        lambda: zones(SESSION).trigger(tm.event_time_trigger(early=tm.delta_trigger(5, lambda _a, _b: 0.0))).aggregate(n=COUNT),
        DefinitionError,
        ("cannot merge",),
        "on_merge",
    ),
    "global window without a trigger": Case(
        lambda: zones(tm.global_window()).aggregate(n=COUNT),
        DefinitionError,
        ("never fire before the end of input",),
        "tm.count_trigger(100)",
    ),
    "global window by the clock": Case(
        lambda: zones(tm.global_window()).trigger(tm.processing_time_trigger()).aggregate(n=COUNT),
        DefinitionError,
        ("never fires",),
        "continuous_processing_time_trigger",
    ),
    "count window with a trigger": Case(
        lambda: zones(tm.count_window(5)).trigger(COUNTS).aggregate(n=COUNT), DefinitionError, ("count_window(5)",), "tm.global_window()"
    ),
    # discarding
    "discarding twice": Case(
        lambda: zones().discarding().discarding(), DefinitionError, ("discarding() comes after discarding()",), "once"
    ),
    "both ways": Case(lambda: zones().discarding().accumulating(), DefinitionError, ("accumulating() comes after discarding()",), "one of"),
    "discarding what fires once": Case(
        lambda: zones().discarding().aggregate(n=COUNT), DefinitionError, ("no effect", "fire once"), ".allowed_lateness(...)"
    ),
    "discarding what the clock fires once": Case(
        lambda: zones(DAY_OF_CLOCK).discarding().aggregate(n=COUNT), DefinitionError, ("no effect", "fire once"), "leave it out"
    ),
    "discarding what never fires": Case(
        lambda: zones().trigger(tm.never_trigger()).discarding().aggregate(n=COUNT), DefinitionError, ("no effect",), "leave it out"
    ),
    "discarding what is purged": Case(
        lambda: zones().trigger(tm.purging_trigger(COUNTS)).discarding().aggregate(n=COUNT), DefinitionError, ("purges already",), "leave"
    ),
    "discarding counts": Case(
        lambda: zones(tm.count_window(5)).discarding().aggregate(n=COUNT), DefinitionError, ("no effect", "count_window(5)"), "leave it out"
    ),
    "accumulating what is purged": Case(
        lambda: zones().trigger(tm.purging_trigger(COUNTS)).accumulating().aggregate(n=COUNT),
        DefinitionError,
        ("contradicts", "purging_trigger(count_trigger(10))"),
        "leave out",
    ),
    # evictors
    "count evictor of none": Case(lambda: tm.count_evictor(0), DefinitionError, ("count_evictor", "n=0"), "from 1"),
    "time evictor of none": Case(lambda: tm.time_evictor("0 ms"), DurationError, ("size", "positive"), "whole number"),
    "delta evictor of one": Case(lambda: tm.delta_evictor(5, wrong(abs)), DefinitionError, ("two arguments",), "lambda element, last"),
    "evictor not called": Case(lambda: zones().evictor(wrong(tm.time_evictor)), DefinitionError, ("time_evictor",), "tm.time_evictor('5"),
    "evictor as a number": Case(lambda: zones().evictor(wrong(5)), DefinitionError, ("5, not an evictor",), "tm.count_evictor(100)"),
    "two evictors": Case(
        lambda: zones().evictor(tm.count_evictor(1)).evictor(tm.count_evictor(2)), DefinitionError, ("already",), "one .evictor"
    ),
    "evictor before aggregates": Case(
        lambda: zones().evictor(tm.count_evictor(1)).aggregate(n=COUNT), DefinitionError, ("aggregates keep none",), ".process(function"
    ),
    "evictor before reduce": Case(
        lambda: zones().evictor(tm.count_evictor(1)).reduce(fare="a.fare"), DefinitionError, ("aggregates keep none",), ".process(function"
    ),
    "evictor of counts": Case(
        lambda: zones(tm.count_window(5)).evictor(tm.count_evictor(1)).process(every, "n INT"),
        DefinitionError,
        ("count_window(5)", "no evictor"),
        "tm.global_window()",
    ),
    # lateness
    "late counts": Case(
        lambda: zones(tm.count_window(5)).late_to(LATE).aggregate(n=COUNT), DefinitionError, ("late_to",), "leave .late_to"
    ),
    "lateness of counts": Case(
        lambda: zones(tm.count_window(5)).allowed_lateness("1 hour").aggregate(n=COUNT), DefinitionError, ("count_window(5)",), "leave"
    ),
    "late for the global window": Case(
        lambda: zones(tm.global_window()).trigger(COUNTS).late_to(LATE).aggregate(n=COUNT), DefinitionError, ("global_window()",), "leave"
    ),
    "late for the clock": Case(
        lambda: zones(DAY_OF_CLOCK).late_to(LATE).aggregate(n=COUNT), DefinitionError, ("processing time",), "leave"
    ),
    "lateness of the clock": Case(
        lambda: zones(DAY_OF_CLOCK).allowed_lateness("1 ms").aggregate(n=COUNT), DefinitionError, ("allowed_lateness", "ever late"), "leave"
    ),
    "lateness of the clock with gaps": Case(
        lambda: zones(tm.sliding("5 ms", "10 ms", time="processing")).allowed_lateness("1 ms").aggregate(n=COUNT),
        DefinitionError,
        ("ever late",),
        "leave",
    ),
    # names
    "aggregate named replaces": Case(lambda: zones(SESSION).aggregate(replaces=COUNT), InvalidNameError, ("'replaces'",), "my_replaces"),
    "key named replaces": Case(
        lambda: trips().key_by(Replaces="zone").window(SESSION).aggregate(n=COUNT), InvalidNameError, ("'Replaces'",), "another name"
    ),
    "function's column like a bound": Case(
        lambda: zones().process(every, "n INT, window_end TIMESTAMP"), InvalidNameError, ("'window_end'",), "another name"
    ),
    "function's column like a key": Case(lambda: zones().process(every, "n INT, Zone INT"), InvalidNameError, ("'Zone'",), "another name"),
    "function's column of the engine": Case(
        lambda: zones().process(every, "n INT, __tm_x INT"), InvalidNameError, ("'__tm_x'",), "another name"
    ),
    "reduced column like a key": Case(lambda: zones().reduce(zone="a.zone"), InvalidNameError, ("'zone'", "key"), "leave 'zone' out"),
    "aggregates before a function that differ in case": Case(
        lambda: zones().aggregate(tm.window_function(every, "n INT"), x=COUNT, X=COUNT), InvalidNameError, ("'x'", "'X'"), "another name"
    ),
    # functions
    "process of text": Case(lambda: zones().process(wrong("f"), "n INT"), DefinitionError, ("process", "'f'"), ".process(function"),
    "process of nothing": Case(lambda: zones().process(wrong(None)), DefinitionError, ("None", "not a function"), ".process(function"),
    "process of one argument": Case(lambda: zones().process(wrong(abs), "n INT"), DefinitionError, ("two arguments",), "the context"),
    "aggregate before a function like a key": Case(
        lambda: zones().aggregate(tm.window_function(every, "n INT"), Zone=COUNT), InvalidNameError, ("'Zone'",), "another name"
    ),
    "aggregate before a function like a bound": Case(
        lambda: zones().aggregate(tm.window_function(every, "n INT"), window_end=COUNT), InvalidNameError, ("'window_end'",), "another name"
    ),
    "process without returns": Case(lambda: zones().process(every), DefinitionError, ("'every'", "without"), "returns='n BIGINT"),
    "returns unreadable": Case(lambda: zones().process(every, "n INTT"), DefinitionError, ("process(returns=...)", "INTT"), "Spark DDL"),
    "returns of another type": Case(lambda: zones().process(every, wrong(7)), DefinitionError, ("process(returns=...)", "7"), "Spark DDL"),
    "returns twice": Case(
        lambda: zones().process(tm.window_function(every, "n INT"), "n INT"), DefinitionError, ("has its own",), "leave returns out"
    ),
    "window function of text": Case(
        lambda: tm.window_function(wrong("f"), "n INT"), DefinitionError, ("window_function", "'f'"), "tm.window_function(function"
    ),
    "window function without columns": Case(lambda: tm.window_function(every, ""), DefinitionError, ("window_function(returns",), "DDL"),
    "function behind aggregates as it is": Case(
        lambda: zones().aggregate(wrong(every), n=COUNT), DefinitionError, ("'every'",), "tm.window_function(function"
    ),
    "aggregate without a name": Case(lambda: zones().aggregate(wrong(tm.count())), DefinitionError, ("count",), "result=tm.count("),
    "text behind aggregates": Case(lambda: zones().aggregate(wrong("n"), n=COUNT), DefinitionError, ("'n'",), "trips=tm.count()"),
    "batches of one row": Case(
        lambda: zones().aggregate(tm.window_function(every, "n INT", batches=True), n=COUNT), DefinitionError, ("batches",), "leave out"
    ),
    "function without aggregates": Case(
        lambda: zones().aggregate(tm.window_function(every, "n INT")), DefinitionError, ("no aggregate",), ".process("
    ),
    "unknown column before a function": Case(
        lambda: zones().aggregate(tm.window_function(every, "n INT"), tips=total("tip")), ColumnError, ("'tip'",), "add it before"
    ),
    "uid of a process": Case(
        lambda: job(zones().process(every, "n INT")), DefinitionError, ("processes with every", "no uid"), ".process(..."
    ),
    "side output from before the uid of a process": Case(uid_after_process, DefinitionError, ("no uid",), ".uid('w')"),
    "uid of a reduce": Case(lambda: job(zones().reduce(fare="a.fare")), DefinitionError, ("reduces fare", "no uid"), ".reduce(...)"),
    # reduce
    "reduce of nothing": Case(lambda: zones().reduce(), DefinitionError, ("nothing to merge",), "a.fare + b.fare"),
    "reduce of an unknown column": Case(lambda: zones().reduce(fair="a.fair + b.fair"), ColumnError, ("'fair'",), "'fare'"),
    "reduce unparsable": Case(lambda: zones().reduce(fare="a.fare +"), ExpressionError, ("reduce column 'fare'",), "correct the SQL"),
    "reduce by no text": Case(lambda: zones().reduce(fare=wrong(7)), ExpressionError, ("7, not SQL",), "a.fare + b.fare"),
    "reduce by an aggregate": Case(lambda: zones().reduce(fare="sum(a.fare)"), ExpressionError, ("'sum'",), ".aggregate("),
    "reduce reading the column": Case(lambda: zones().reduce(fare="fare + b.fare"), ExpressionError, ("'fare'", "neither"), "a.fare"),
    "reduce reading a third row": Case(lambda: zones().reduce(fare="a.fare + c.fare"), ExpressionError, ("'c'", "'a' and 'b'"), "b.fare"),
    "reduce reading what is not reduced": Case(
        lambda: zones().reduce(fare="if(a.note > b.note, a.fare, b.fare)"), ColumnError, ("a.note", "only the columns fare"), "note='...'"
    ),
    "reduce to another type": Case(
        lambda: zones().reduce(stops="size(a.stops) + size(b.stops)"), ExpressionError, ("INT", "ARRAY<STRING>"), "AS ARRAY<STRING>"
    ),
    "reduce to a fraction": Case(
        lambda: trips().key_by("note").window(HOUR).reduce(zone="(a.zone + b.zone) / 2"), ExpressionError, ("DOUBLE", "INT"), "AS INT"
    ),
    "reduce a map": Case(
        lambda: trips().with_columns(m="CAST(NULL AS MAP<STRING, INT>)").key_by("note").window(HOUR).reduce(m="a.m"),
        ColumnError,
        ("'m'", "MAP<STRING, INT>", "no order"),
        "in Python",
    ),
    "reduce with columns only": Case(lambda: zones().reduce(columns=["fare"]), DefinitionError, ("columns", "no function"), "a.fare"),
    "reduce of a column called returns": Case(
        lambda: zones().reduce(returns="a.returns", fare="a.fare"), DefinitionError, ("returns",), "another name"
    ),
    "reduce both ways": Case(lambda: zones().reduce(added, columns=["fare"], fare="a.fare"), DefinitionError, ("'fare'",), "one of them"),
    "reduce by a function of one": Case(
        lambda: zones().reduce(wrong(abs), columns=["fare"]), DefinitionError, ("two arguments",), "two rows"
    ),
    "reduce by text": Case(lambda: zones().reduce(wrong("a"), columns=["fare"]), DefinitionError, ("'a'",), "two rows"),
    "reduce without columns": Case(lambda: zones().reduce(added), DefinitionError, ("no columns",), "columns=['fare'"),
    "reduce columns as text": Case(lambda: zones().reduce(added, columns="fare"), DefinitionError, ("'fare'",), "columns=['fare']"),
    "reduce unknown columns": Case(lambda: zones().reduce(added, columns=["fair"]), ColumnError, ("'fair'",), "'fare'"),
    "reduce a column of no known type": Case(
        lambda: untyped().reduce(added, columns=["odd"]), ColumnError, ("'odd'", "not known"), "returns='odd DOUBLE'"
    ),
    "reduce returns unreadable": Case(
        lambda: zones().reduce(added, returns="fare"), DefinitionError, ("reduce(returns=...)",), "Spark DDL"
    ),
    "reduce returns others": Case(
        lambda: zones().reduce(added, columns=["fare"], returns="note STRING"), DefinitionError, ("note STRING",), "the same columns"
    ),
    "reduce returns another type": Case(
        lambda: zones().reduce(added, returns="fare INT"), ColumnError, ("'fare'", "INT", "DOUBLE"), "CAST(fare AS INT)"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_error_says_what_where_and_how_to_mend_it(case: Case) -> None:
    with pytest.raises(TidemarkError) as caught:
        case.build()
    error = caught.value
    assert type(error) is case.error, error
    message = str(error)
    what, fix = message.split(" Fix: ")
    for part in case.says:
        assert part in what, message
    assert case.fix in fix, message
    assert re.search(rf"at {re.escape(__file__)}:\d+\)", what.rstrip(". ")), message


GOOD = {
    "slide greater than size": lambda: zones(tm.sliding("1 hour", "1 day")).late_to(LATE).aggregate(n=COUNT),
    "late for the clock's gaps": lambda: zones(tm.sliding("5 ms", "10 ms", time="processing")).late_to(LATE).aggregate(n=COUNT),
    "gap of an interval": lambda: zones(tm.session(gap_by="if(zone > 1, INTERVAL 5 MINUTES, INTERVAL 1 HOUR)")).aggregate(n=COUNT),
    "gap of a cast": lambda: zones(tm.session(gap_by="CAST(note AS INTERVAL MINUTE)")).aggregate(n=COUNT),
    "gap of a number": lambda: zones(tm.session(gap_by="zone * 1000")).aggregate(n=COUNT),
    "global that never fires": lambda: zones(tm.global_window()).trigger(tm.never_trigger()).aggregate(n=COUNT),
    "global that fires in the end": lambda: zones(tm.global_window()).trigger(tm.event_time_trigger()).aggregate(n=COUNT),
    "delta before aggregates": lambda: zones().trigger(tm.delta_trigger(5, lambda _a, _b: 0.0)).aggregate(n=COUNT),
    "replaces where nothing merges": lambda: zones().aggregate(replaces=COUNT),
    "purged though it fires once": lambda: zones().trigger(tm.purging_trigger(tm.event_time_trigger())).aggregate(n=COUNT),
    "evictor before a function": lambda: zones().evictor(tm.time_evictor("5 minutes", after=True)).process(every, "n INT"),
    "aggregate named as the function's column": lambda: zones().aggregate(tm.window_function(every, "n INT"), n=COUNT),
    "reduce with casts": lambda: zones().reduce(fare="CAST(a.fare + b.fare AS DOUBLE)", stops="array_union(a.stops, b.stops)"),
    "reduce with functions in it": lambda: zones().reduce(stops="filter(concat(a.stops, b.stops), a -> a > 'x')"),
    "reduce a struct": lambda: zones().reduce(place="if(a.place.lat > b.place.lat, a.place, b.place)"),
    "reduce a map in Python": lambda: (
        trips().select("zone", m="CAST(NULL AS MAP<STRING, INT>)").window_all(HOUR).reduce(added, columns=["m"])
    ),
    "reduce a column called map": lambda: trips().with_columns(map="1").window_all(HOUR).reduce(map="a.map + b.map"),
    "reduce what is not known": lambda: untyped().reduce(added, returns="odd DOUBLE"),
    "reduce behind a transform": lambda: trips().transform(lambda df: df).key_by("x").window(HOUR).reduce(y="a.y + b.y"),
}


@pytest.mark.parametrize("build", GOOD.values(), ids=GOOD.keys())
def test_what_is_unusual_but_right_passes(build: Any) -> None:
    assert isinstance(build(), tm.Stream)
