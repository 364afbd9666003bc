"""Names that streams, jobs and the package do not have: the error says what to write instead.

Users of Spark and Flink write the names they know. Each class falls back on ``unknown_member`` for names it does not have, hidden
from type checkers, which still find such names themselves.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal

from tidemark.errors import UnknownMemberError
from tidemark.graph.model.call_site import call_site
from tidemark.semantics.user_mistakes import bare

Kind = Literal["stream", "keyed stream", "windowed stream", "connected stream", "broadcast stream", "output", "job", "package"]

_WINDOWS = ".key_by('zone').window(tm.tumbling('1 hour')).aggregate(total=tm.sum('fare')).uid('hourly')"
_KEYED = ".key_by('zone').window(tm.tumbling('1 hour'))"
_JOB = "tm.Job('taxi', outputs={'fares': tm.delta(stream, 'warehouse/fares')})"

_MEANT: Final[Mapping[str, str]] = {
    words: fix
    for names, fix in (
        ("groupby groupbykey keyby partitionby keyedby", "write .key_by('zone'), then .window(tm.tumbling('1 hour')).aggregate(...)"),
        ("where", "write .filter('fare > 0')"),
        (
            "withwatermark assigntimestampsandwatermarks assigntimestamps withtimestampassigner",
            "watermarks belong to the source: tm.source(..., watermarks=tm.bounded_out_of_orderness('10 minutes', timestamp='pickup_at'))",
        ),
        ("withcolumn assign", "write .with_columns(fare='amount / 100')"),
        ("withcolumnrenamed withcolumnsrenamed alias", "write .select('amount AS fare', ...) with every column that is to stay"),
        ("selectexpr", "write .select('zone', 'amount / 100 AS fare')"),
        ("drop", "write .select(...) with the columns that are to stay"),
        (
            "agg sum avg mean min max stddev variance",
            f"aggregate per window: {_WINDOWS}; or of all so far, as a changelog: .key_by('zone').aggregate(total=tm.sum('fare'))",
        ),
        ("maxby minby", "write .key_by('zone').max_by('fare'), for each element; in windows tm.max_by('zone', 'fare')"),
        ("timewindow hop tumble", "write .key_by('zone').window(tm.tumbling('1 hour')), or tm.sliding, tm.cumulative, tm.session"),
        ("timewindowall", "write .window_all(tm.tumbling('1 hour'))"),
        ("countwindow", "write .key_by('zone').window(tm.count_window(100))"),
        ("countwindowall", "write .window_all(tm.count_window(100))"),
        ("sideoutputlatedata", "write .late_to(tm.OutputTag('late')) after .window(...) and before .aggregate(...)"),
        ("getsideoutput", "write .side_output(tag)"),
        ("apply", "write .key_by('zone').window(...).process(function, returns='...')"),
        ("setparallelism setmaxparallelism repartition coalesce", "write tm.Job(..., parallelism=8)"),
        ("setuid name cache persist rebalance shuffle", "leave it out; an operator that keeps state is named with .uid('hourly')"),
        ("mappartitions mapinpandas mapinarrow applyinpandas", "write .map(function, returns='...', batches=True)"),
        ("asyncwait orderedwait unorderedwait asyncinvoke amap", "write .async_map(function, returns='...', ordered=True)"),
        ("foreach foreachbatch", f"write .map(function, returns='...'), and to a sink: {_JOB}"),
        (
            "intervaljoin leftouterjoin rightouterjoin fullouterjoin innerjoin leftjoin crossjoin cogroup",
            "write .join(other, on='id', how='left', within=('-10 minutes', '1 hour'))",
        ),
        ("connect", "key both: .key_by('id').connect(other.key_by('id')).process(...), or .connect(rules.broadcast(...))"),
        (
            "dropduplicates dropduplicateswithinwatermark distinct",
            "write .key_by('id').deduplicate(within='1 hour').uid('first')",
        ),
        (
            "orderby sort sortby limit head take first",
            "a stream has no end to sort at; write .top_n(10, by=['zone'], order='fare DESC'), tm.top_k per window, or sort the table",
        ),
        ("unionall unionbyname", "write .union(other)"),
        (
            "write writestream writeto addsink sinkto sink to_delta totable format save start awaittermination outputmode",
            f"bind the stream to a sink: {_JOB}, and run that: tm.run(job)",
        ),
        ("execute executeasync env", f"bind streams to sinks: {_JOB}, and run that: tm.run(job)"),
        ("show display print printschema columns schema dtypes", "write tm.console(stream) as an output, or print job.explain()"),
        (
            "collect topandas tolocaliterator",
            "write tm.memory(stream, 'name') as an output, and read tm.memory_table('name') after the run",
        ),
    )
    for words in names.replace("_", "").split()
}
"""What to write instead of a name of Spark's or Flink's; by the name in lower case, without underscores."""

_OF_JOBS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("run", "start", "execute", "submit", "launch"), "write tm.run(job), or tidemark submit MODULE:JOB"),
    **dict.fromkeys(("check", "validate"), "write tm.check(job)"),
    **dict.fromkeys(("savepoint", "savepoints"), "write tm.savepoints_of(job)"),
    **dict.fromkeys(("graph", "plan", "draw", "show"), "write job.explain()"),
}
_OF_PACKAGE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("mean", "average"), "write tm.avg('fare')"),
    **dict.fromkeys(("std", "stddevsamp"), "write tm.stddev('fare')"),
    **dict.fromkeys(("countif", "sumif"), 'write tm.count("CASE WHEN fare > 0 THEN 1 END")'),
    **dict.fromkeys(("percentile", "percentileapprox", "median"), "write tm.approx_percentile('fare', 0.5)"),
    **dict.fromkeys(("window", "tumblingeventtimewindows", "timewindow"), "write tm.tumbling('1 hour')"),
    **dict.fromkeys(("slidingeventtimewindows", "hopping", "hop"), "write tm.sliding('1 hour', '10 minutes')"),
    **dict.fromkeys(("sessionwindow", "eventtimesessionwindows"), "write tm.session('30 minutes')"),
    **dict.fromkeys(("globalwindows",), "write tm.global_window()"),
    **dict.fromkeys(("kafka", "readstream"), "write tm.streaming_format('kafka', options={...})"),
    **dict.fromkeys(("watermarks", "withwatermark", "forboundedoutoforderness"), "write tm.bounded_out_of_orderness('5 minutes', ...)"),
    **dict.fromkeys(("formonotonoustimestamps",), "write tm.ascending(timestamp='pickup_at')"),
}

_ROWS: Final = (
    "select",
    "with_columns",
    "filter",
    "explode",
    "map",
    "flat_map",
    "transform",
    "split",
    "union",
    "join",
    "latest",
    "top_n",
    "as_changelog",
)
_FIRING: Final = ("allowed_lateness", "late_to", "trigger", "evictor", "discarding", "accumulating")
_OF_KEYS: Final = ("deduplicate", "running_aggregate", "max_by", "min_by")
_RESULTS: Final = ("aggregate", "reduce", "process")


def unknown_member(owner: object, name: str, kind: Kind, known: Collection[str]) -> AttributeError:
    """Return the error for a name that an object does not have.

    Names that begin with ``_`` are looked up by Python itself (copy, pickle, doctest), which expects a plain AttributeError.

    Args:
        owner: the object that lacks it.
        name: the name.
        kind: the object's kind, as users call it.
        known: the names that it has.
    """
    plain = f"{type(owner).__name__!r} object has no attribute {name!r}"
    if name.startswith("_") or name in known:
        return AttributeError(plain, name=name, obj=owner)
    fix = _misplaced(name, kind) or _other_word(name, kind)
    if fix is not None:
        return UnknownMemberError(f"{with_article(kind)} has no {name!r}", fix=fix, place=call_site())
    names = sorted(each for each in known if not each.startswith("_"))
    near = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    listed = f"{with_article(kind)} has {', '.join(names)}"
    fix = f"write {near[0]!r}; {listed}" if near else f"use one of its names: {listed}"
    return UnknownMemberError(f"{with_article(kind)} has no {name!r}{hint}", fix=fix, place=call_site())


def unknown_name(name: str, known: Iterable[str]) -> AttributeError:
    """Return the error for a name that the package does not have."""
    plain = f"module 'tidemark' has no attribute {name!r}"
    fix = _OF_PACKAGE.get(bare(name))
    near = difflib.get_close_matches(name, known, n=1)
    if name.startswith("_") or not (fix or near):
        return AttributeError(plain)
    return UnknownMemberError(plain, fix=fix or f"write tm.{near[0]}", place=call_site())


def _other_word(name: str, kind: Kind) -> str | None:
    return _OF_JOBS.get(bare(name)) if kind == "job" else _MEANT.get(bare(name))


def _misplaced(name: str, kind: Kind) -> str | None:
    """Return where a method of another step of the chain goes; None if no step has it."""
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    if kind == "keyed stream":
        return _misplaced_on_keys(snake)
    if kind == "windowed stream":
        return _misplaced_on_windows(snake)
    if snake in _FIRING:
        return f"it goes after .window(...) and before .aggregate(...): {_KEYED}.{snake}(...).aggregate(...)"
    if snake in _RESULTS:
        return f"it goes after .window(...): {_KEYED}.{snake}(...).uid('hourly'); or after .key_by('zone'), for each element"
    if snake in _OF_KEYS:
        return f"it goes after .key_by(...): .key_by('zone').{snake}(...).uid('by-zone')"
    if snake == "window":
        return f"it goes after .key_by(...): {_KEYED}; over all rows .window_all(tm.tumbling('1 hour'))"
    if kind in {"output", "job"} and snake in {*_ROWS, "key_by", "window_all", "side_output", "uid"}:
        return f"it goes on the stream, before that is bound to a sink: tm.delta(stream.{snake}(...), 'path')"
    return None


def _misplaced_on_keys(snake: str) -> str | None:
    if snake in _FIRING:
        return f"it goes after .window(...): {_KEYED}.{snake}(...).aggregate(...)"
    if snake == "key_by":
        return "name all keys in one .key_by('zone', 'vendor')"
    if snake == "window_all":
        return f"write {_KEYED}; .window_all(...) goes on a stream without keys"
    return _around_the_windows(snake)


def _misplaced_on_windows(snake: str) -> str | None:
    if snake in {"key_by", "window", "window_all"}:
        return f"it goes before: {_KEYED}; windows of windows are on the results, after .aggregate(...)"
    return _around_the_windows(snake)


def _around_the_windows(snake: str) -> str | None:
    if snake in _ROWS:
        return f"it goes before .key_by(...), on single rows: .{snake}(...).key_by('zone'); or on the results, after .aggregate(...)"
    if snake in {"uid", "side_output"}:
        return f"it goes after .aggregate(...): {_KEYED}.aggregate(total=tm.sum('fare')).{snake}(...)"
    return None


def with_article(noun: str) -> str:
    """Return a noun behind its article.

    >>> with_article("output"), with_article("stream")
    ('an output', 'a stream')
    """
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"
