"""One job with every operator there is, over two sources, and files to run it on.

Golden savepoints are restored into this job for ever: operators may be added, and those that are here stay as they are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import tidemark as tm
from tests.savepoints.joined_streams import joined, looked_up, of_changelogs, versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILES = 3
"""Files of each source, unless there are fewer; an epoch reads one of each, and one more ends the input."""

SCHEMA = "k STRING, s STRING, t BIGINT, g BIGINT, v INT"
TOLD = "vs ARRAY<INT>, calls_of_window BIGINT, calls_of_key BIGINT"


def land(folder: Path, *, files: int = FILES, unique: bool = False) -> None:
    """Write files of the sources below a folder: elements that drift on, some of them late, some malformed, some before 1970.

    With ``unique`` no two elements of a source have one time, so that their order does not depend on where the files lie.
    """
    random = Random(6)
    for source, rows in (("rides", 40), ("taps", 10)):
        (folder / source).mkdir(parents=True)
        taken: set[int] = set()
        for epoch in range(files):
            found = [_row(random, epoch, taken if unique else set()) for _ in range(rows)]
            if source == "rides":
                found[epoch]["t"] = None
                found[epoch + 1]["t"] = -2_500 * epoch  # too late for every window, but in the first epoch
            write_rows(folder / source / f"{epoch}.json", found, epoch)


def write_rows(path: Path, rows: Sequence[Mapping[str, object]], number: int) -> None:
    """Write a file of rows, dated by its number."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    date(path, number)


def date(path: Path, number: int) -> None:
    """Date a file by its number, since files are read by age."""
    os.utime(path, (1_600_000_000 + number,) * 2)


def _row(random: Random, epoch: int, taken: set[int]) -> dict[str, object]:
    time = 600 * epoch + random.randint(-900, 400)
    while time in taken:
        time += 1
    taken.add(time)
    key = random.choice([None, *"abcde"])
    return {"k": key, "s": random.choice("xy"), "t": time, "g": random.randint(20, 200), "v": random.choice([None, *range(-9, 10)])}


def streams_of(landing: Path) -> dict[str, tm.Stream]:
    """Return the streams of the job by output, from files below a folder."""
    malformed, rejected, ups, downs = (tm.OutputTag(name) for name in ("malformed", "rejected", "ups", "downs"))
    read = tm.source(
        "rides",
        tm.files(str(landing / "rides"), format="json", schema=SCHEMA, max_files_per_epoch=1),
        watermarks=tm.bounded_out_of_orderness("200 ms", timestamp="t", split_by="s"),
        malformed_to=malformed,
    )
    rides = read.filter("v IS NULL OR v > -9", rejects_to=rejected).with_columns(double="v * 2")
    taps = tm.source(
        "taps",
        tm.files(str(landing / "taps"), format="json", schema=SCHEMA, max_files_per_epoch=1),
        watermarks=tm.ascending(timestamp="t"),
    )
    signs = rides.split({ups: "v > 0"}, otherwise=downs)
    by_sign = signs.side_output(ups).key_by("k").window(tm.tumbling("500 ms"))
    return _all_of(
        {"malformed": read.side_output(malformed), "rejected": rides.side_output(rejected), "downs": signs.side_output(downs)},
        _at_their_end(rides, changed(taps)),
        _by_triggers(rides),
        _by_functions(rides),
        _without_keys(rides),
        _by_element(rides),
        _groups(rides),
        _as_changelogs(rides),
        of_changelogs(rides, taps),
        joined(rides, taps),
        versions(rides, taps),
        looked_up(rides, names_beside(landing)),
        {"reduced": by_sign.reduce(v="a.v + b.v", t="greatest(a.t, b.t)").uid("reduced")},
    )


def _all_of(*parts: Mapping[str, tm.Stream]) -> dict[str, tm.Stream]:
    """Return the streams of all parts; none hides another one of its name."""
    names = [name for part in parts for name in part]
    assert len({*names}) == len(names), sorted(name for name in names if names.count(name) > 1)
    return {name: stream for part in parts for name, stream in part.items()}


def names_beside(landing: Path) -> Path:
    """Return the folder of the table that is looked up in."""
    return landing.parent / "names"


def changed(taps: tm.Stream) -> tm.Stream:
    """Return taps after each kind of step that makes other rows of rows."""
    several = taps.map(halved, returns=SCHEMA).flat_map(repeated, returns=SCHEMA).explode("array(v, 1)", as_="u")
    return several.transform(raised, columns=("k", "s", "t", "g", "v", "u", "w")).select("k", v="CAST(w + u AS INT)")


def _at_their_end(rides: tm.Stream, taps: tm.Stream) -> dict[str, tm.Stream]:
    """Return what is made of windows that fire at their end, and of groups by number."""
    late = tm.OutputTag("late")
    by_key = rides.key_by("k")
    tumbling = by_key.window(tm.tumbling("300 ms")).allowed_lateness("250 ms").late_to(late).aggregate(**every_aggregate()).uid("tumbling")
    growing = by_key.window(tm.cumulative("800 ms", "200 ms")).aggregate(**aggregates()).uid("growing")
    own = tm.python_aggregate(nothing, plus, plus, itself, arguments=["v"], state="BIGINT", returns="BIGINT")
    both = rides.select("k", "v").union(taps)
    return {
        "tumbling": tumbling,
        "late": tumbling.side_output(late),
        "sliding": by_key.window(tm.sliding("600 ms", "200 ms")).allowed_lateness("100 ms").aggregate(**aggregates()).uid("sliding"),
        "growing": growing,
        "after": growing.window_all(tm.tumbling("1000 ms")).aggregate(panes=tm.count(), total=tm.sum("total")).uid("after"),
        "sessions": by_key.window(tm.session("120 ms")).allowed_lateness("150 ms").aggregate(**aggregates()).uid("sessions"),
        "gaps": by_key.window(tm.session(gap_by="g")).aggregate(**aggregates()).uid("gaps"),
        "clock": by_key.window(tm.tumbling("1000 ms", time="processing")).aggregate(**aggregates()).uid("clock"),
        "everything": both.window_all(tm.tumbling("700 ms")).aggregate(n=tm.count(), own=own).uid("everything"),
        "counted": by_key.window(tm.count_window(4)).aggregate(**aggregates()).uid("counted"),
        "recent": by_key.window(tm.count_window(5, 2)).aggregate(**aggregates()).uid("recent"),
        "once": rides.select("k", "v").key_by("k").deduplicate(within="150 ms", allowed_lateness="100 ms").uid("once"),
    }


def _by_triggers(rides: tm.Stream) -> dict[str, tm.Stream]:
    """Return what is made of windows that triggers fire, and by functions in Python."""
    by_key = rides.key_by("k")
    early = tm.event_time_trigger(early=tm.count_trigger(3))
    kept = by_key.window(tm.tumbling("400 ms")).allowed_lateness("100 ms").trigger(early).evictor(tm.count_evictor(4))
    leaping = tm.window_function(listed_in_batches, TOLD, batches=True)
    described = tm.window_function(told, "text STRING, calls BIGINT")
    whole = by_key.window(tm.global_window())
    return {
        "early": by_key.window(tm.tumbling("500 ms")).allowed_lateness("100 ms").trigger(early).aggregate(**aggregates()).uid("early"),
        "days": by_key.window(tm.tumbling("1 day", zone="Asia/Kathmandu")).trigger(early).aggregate(**aggregates()).uid("days"),
        "eager": by_key.window(tm.session("200 ms")).trigger(early).aggregate(**aggregates()).uid("eager"),
        "whole": whole.trigger(tm.purging_trigger(tm.count_trigger(4))).aggregate(**aggregates()).uid("whole"),
        "kept": kept.process(listed, returns=TOLD).uid("kept"),
        "leaps": whole.trigger(tm.delta_trigger(6, apart)).process(leaping).uid("leaps"),
        "described": by_key.window(tm.tumbling("300 ms"))
        .allowed_lateness("250 ms")
        .aggregate(described, total=tm.sum("v"))
        .uid("described"),
    }


def _by_functions(rides: tm.Stream) -> dict[str, tm.Stream]:
    """Return what functions with state and timers make of elements: of one input, of two, and with a map that all keys read."""
    positive, negative = rides.filter("v > 0").key_by("k"), rides.filter("v <= 0").key_by("k")
    limits = rides.filter("s = 'x'").broadcast("limits", key="k", value="g INT")
    return {
        "waited": rides.key_by("k").process(Waits, returns="n BIGINT, total BIGINT, at BIGINT").uid("waited"),
        "paired": positive.connect(negative).process(Pairs, returns="k STRING, up INT, down INT").uid("paired"),
        "limited": rides.key_by("k").connect(limits).process(limited, returns="k STRING, g INT, limit INT").uid("limited"),
    }


def _without_keys(rides: tm.Stream) -> dict[str, tm.Stream]:
    """Return what functions make of single elements: with a side output, with a map that they read, and asynchronously."""
    small = tm.OutputTag("small")
    sorted_out = rides.process(Sorts(small), returns="k STRING, v INT", side_outputs={small: "v INT"}).uid("sorted_out")
    limits = rides.filter("s = 'y'").broadcast("bounds", key="k", value="g INT")
    return {
        "sorted_out": sorted_out,
        "small": sorted_out.side_output(small),
        "bounded": rides.connect(limits).map(bounded, returns="k STRING, v INT, bound INT").uid("bounded"),
        "named": rides.async_map(named, returns="k STRING, name STRING").uid("named"),
    }


class Sorts:
    """Sends small values aside."""

    def __init__(self, small: tm.OutputTag) -> None:
        self.small = small

    def process(self, element: Mapping[str, Any], ctx: tm.ProcessContext) -> Iterator[dict[str, object]]:
        """Yield an element, or emit its value to the side output."""
        if (element["v"] or 0) < 3:
            ctx.output(self.small, {"v": element["v"]})
        else:
            yield {"k": element["k"], "v": element["v"]}


def bounded(element: Mapping[str, Any], ctx: tm.ProcessContext) -> dict[str, object]:
    """Return an element with the bound of its key."""
    bound = ctx.broadcast["bounds"].get(element["k"])
    return {"k": element["k"], "v": element["v"], "bound": bound["g"] if bound else None}


async def named(row: Mapping[str, Any]) -> dict[str, object]:
    """Return a key with a name."""
    return {"k": row["k"], "name": f"the {row['k']}"}


def _by_element(rides: tm.Stream) -> dict[str, tm.Stream]:
    """Return what native expressions make of each element and the state of its key."""
    by_key, ttl = rides.key_by("k"), tm.state_ttl("400 ms", domain="event")
    rises = tm.sql_state({"last": ("v", "INT")}, emit_when="v > last", returns={"k": "k", "v": "v", "last": "last"}, ttl=ttl)
    numbers = tm.sql_state({"n": ("n + 1", "BIGINT", "0")}, returns={"k": "k", "v": "v", "n": "new.n"})
    return {
        "rises": by_key.process(rises).uid("rises"),
        "numbers": by_key.process(numbers).uid("numbers"),
        "added": by_key.reduce(v="coalesce(a.v, 0) + coalesce(b.v, 0)", t="greatest(a.t, b.t)", ttl=ttl).uid("added"),
        "so_far": by_key.running_aggregate(ttl=None, **aggregates(), mean=tm.avg("v"), last=tm.last("v")).uid("so_far"),
        "greatest": by_key.max_by("v").uid("greatest"),
    }


def _groups(rides: tm.Stream) -> dict[str, tm.Stream]:
    """Return changelogs of groups: of all rides, and of the groups of these, from which rows are taken back."""
    groups = rides.key_by("k").aggregate(ttl=None, **aggregates(), mean=tm.avg("v"), last=tm.last("v")).uid("groups")
    return {
        "groups": groups,
        "groups_of_groups": groups.key_by(parity="mean % 2")
        .aggregate(n=tm.count(), least=tm.min("mean"), spread=tm.variance("mean"), ks=tm.collect_list("k"))
        .uid("groups_of_groups"),
    }


def _as_changelogs(rides: tm.Stream) -> dict[str, tm.Stream]:
    """Return changelogs: the newest rows, the best rows of elements and of a changelog, and panes of windows."""
    newest = rides.latest(by=["k"]).uid("newest")
    ttl = tm.state_ttl("900 ms", domain="event")
    sessions = rides.key_by("k").window(tm.session("90 ms")).allowed_lateness("150 ms").aggregate(**aggregates()).uid("refired")
    groups = rides.key_by("k").window(tm.count_window(3)).aggregate(n=tm.count()).uid("grouped")
    return {
        "newest": newest,
        "versions": rides.latest(by=["k", "s"], sequence="g", deleted="v = 0", ttl=ttl).uid("versions"),
        "places": rides.top_n(3, by=["k"], order="v DESC, g", rank="place").uid("places"),
        "places_lately": rides.top_n(2, by=["s"], order="t DESC, g", key=["t"], ttl=ttl).uid("places_lately"),
        "best": newest.top_n(2, by=["s"], order="g").uid("best").as_elements(operation="change"),
        "panes": sessions.latest_panes().uid("panes"),
        "numbered": groups.latest_panes(),
    }


class Waits:
    """Counts the elements of a key until none has come for a while."""

    n = tm.value_state("BIGINT", default=0)
    total = tm.reducing_state("BIGINT", lambda one, other: one + other)

    def process(self, element: Mapping[str, Any], ctx: tm.ProcessContext) -> None:
        """Count an element, and move the timer."""
        self.n.update(self.n.value() + 1)
        self.total.add(element["v"] or 0)
        ctx.timer_service().register_event_time_timer(ctx.timestamp + 350, "quiet")

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> Iterator[dict[str, object]]:
        """Yield what was counted."""
        del ctx
        yield {"n": self.n.value(), "total": self.total.get(), "at": timestamp}
        self.n.clear()
        self.total.clear()


class Pairs:
    """Pairs each element that is not positive with the newest positive one of its key, for a while."""

    up = tm.value_state("INT", ttl=tm.state_ttl("2 seconds", domain="event"))

    def process1(self, element: Mapping[str, Any], ctx: tm.ProcessContext) -> None:
        """Keep the element's value."""
        del ctx
        self.up.update(element["v"])

    def process2(self, element: Mapping[str, Any], ctx: tm.ProcessContext) -> Iterator[dict[str, object]]:
        """Yield a pair."""
        del ctx
        yield {"k": element["k"], "up": self.up.value(), "down": element["v"]}


def limited(element: Mapping[str, Any], ctx: tm.ProcessContext) -> Iterator[dict[str, object]]:
    """Yield an element with the limit of its key."""
    limit = ctx.broadcast["limits"].get(element["k"])
    if limit is not None and element["g"] >= limit["g"]:
        yield {"k": element["k"], "g": element["g"], "limit": limit["g"]}


def aggregates() -> dict[str, tm.Aggregate]:
    """Return a few aggregates, one of which depends on the order of elements."""
    return {"n": tm.count(), "total": tm.sum("v"), "vs": tm.collect_list("v")}


def every_aggregate() -> dict[str, tm.Aggregate]:
    """Return all aggregates that come with Tidemark, and one in SQL."""
    return {
        **aggregates(),
        "mean": tm.avg("v"),
        "least": tm.min("v"),
        "most": tm.max("double"),
        "spread": tm.stddev("v"),
        "spread_pop": tm.stddev_pop("v"),
        "var": tm.variance("v"),
        "var_pop": tm.variance_pop("v"),
        "first": tm.first("v"),
        "last": tm.last("v", ignore_nulls=True),
        "kinds": tm.collect_set("v"),
        "distinct": tm.count_distinct("v", "s"),
        "about": tm.approx_count_distinct("v"),
        "half": tm.approx_percentile("v", 0.5),
        "of_most": tm.max_by("t", "v"),
        "of_least": tm.min_by("t", "v"),
        "top": tm.top_k("v", 2),
        "weighed": tm.sql_aggregate({"sum": ("sum(v * g)", "sum({sum})"), "of": ("sum(g)", "sum({of})")}, "{sum} / {of}"),
    }


def halved(row: Mapping[str, Any]) -> dict[str, object]:
    """Return a row with half the value."""
    return {**row, "v": (row["v"] or 0) // 2}


def repeated(row: Mapping[str, Any]) -> Iterator[Mapping[str, object]]:
    """Return a row twice where its value is odd, not at all where it is a multiple of four."""
    yield from [row] * (2 if row["v"] % 2 else 1 if row["v"] % 4 else 0)


def raised(rows: DataFrame) -> DataFrame:
    """Add a column."""
    from pyspark.sql import functions as F

    return rows.withColumn("w", F.expr("v + 1"))


def listed(rows: Sequence[Mapping[str, Any]], context: tm.WindowContext) -> Iterator[dict[str, object]]:
    """Return the values of a window, with how often it and its key were called."""
    calls = _once_more(context.window_state), _once_more(context.key_state)
    yield {"vs": [row["v"] for row in rows], "calls_of_window": calls[0], "calls_of_key": calls[1]}


def listed_in_batches(batches: Iterator[Any], context: tm.WindowContext) -> Iterator[dict[str, object]]:
    """Return the same of batches."""
    return listed([row for batch in batches for row in batch.to_pylist()], context)


def told(rows: Sequence[Mapping[str, Any]], context: tm.WindowContext) -> Iterator[dict[str, object]]:
    """Return a text on the result of a window, with how often the window was called."""
    (row,) = rows
    yield {"text": f"{context.key['k']}, {context.timing}: {row['total']}", "calls": _once_more(context.window_state)}


def _once_more(state: Any) -> int:
    state["calls"] = int(str(state.get("calls", 0))) + 1
    return int(state["calls"])


def apart(last: Mapping[str, Any], element: Mapping[str, Any]) -> float:
    """Return how far the values of two elements are from each other."""
    return float(abs((last["v"] or 0) - (element["v"] or 0)))


def nothing() -> int:
    """Return the sum of nothing."""
    return 0


def plus(one: int, other: int | None) -> int:
    """Return a sum."""
    return one + (other or 0)


def itself(total: int) -> int:
    """Return the sum as it is."""
    return total
