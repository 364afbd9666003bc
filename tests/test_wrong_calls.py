"""Public functions called with arguments that they do not take: one line with a code, the user's line and how the call is written."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, Final

import pytest

import tidemark as tm
from tidemark.errors import DefinitionError

TIMED: Final = tm.bounded_out_of_orderness("1 second", timestamp="at")


def wrong(value: object) -> Any:
    """Pass for any type, as a caller without a type checker would."""
    return value


untyped: Final = wrong(tm)
STREAM: Final = tm.source("rows", tm.from_elements([], schema="at BIGINT, zone STRING"), watermarks=TIMED)
KEYED: Final = STREAM.key_by("zone")
WINDOWED: Final = KEYED.window(tm.tumbling("1 hour"))
JOB: Final = tm.Job("job", outputs={"rows": tm.memory(STREAM, "rows")})

CASES: Final[dict[str, tuple[Callable[[], object], str, tuple[str, ...]]]] = {
    "source without watermarks": (
        lambda: untyped.source("e", tm.rate(rows_per_second=1)),
        "TM100",
        ("tm.source(...) lacks watermarks", "watermarks=tm.bounded_out_of_orderness('5 minutes', timestamp='pickup_at')", "malformed_to="),
    ),
    "source without anything": (untyped.source, "TM100", ("lacks name, spec, watermarks",)),
    "source swapped": (
        lambda: tm.source(wrong(tm.rate(rows_per_second=1)), wrong("e"), watermarks=TIMED),
        "TM104",
        ("source name is a RateSpec, not text", "the name comes first: tm.source('trips', tm.files(...), watermarks=...)"),
    ),
    "job swapped": (
        lambda: tm.Job(wrong({"o": tm.memory(STREAM, "x")}), wrong("j")),
        "TM104",
        ("job name is a dict, not text", "tm.Job('taxi', outputs={...})"),
    ),
    "job of a stream": (lambda: tm.Job(wrong(STREAM), outputs={}), "TM104", ("job name is a Stream, not text",)),
    "job without outputs": (lambda: untyped.Job("j"), "TM100", ("tm.Job(...) lacks outputs", "tm.delta(stream, 'warehouse/fares')")),
    "job with a keyword mistyped": (lambda: untyped.Job("j", output={}), "TM100", ("no argument 'output' (did you mean 'outputs'?)",)),
    "delta without a path": (
        lambda: untyped.delta(STREAM),
        "TM100",
        ("tm.delta(...) lacks path", "tm.delta(stream, 'warehouse/fares')", "keys="),
    ),
    "delta partitioned, without a path": (
        lambda: untyped.delta(STREAM, partition_by=["zone"]),
        "TM100",
        ("has no argument 'partition_by' and lacks path", "not partitioned: leave it out"),
    ),
    "map without returns": (lambda: wrong(STREAM).map(dict), "TM100", (".map(...) lacks returns", "returns='zone INT, fare DOUBLE'")),
    "a column of a stream": (lambda: wrong(STREAM)["at"], "TM100", ("a stream is no DataFrame, and has no ['at']", ".select('zone'")),
    "a loop over a stream": (lambda: list(wrong(STREAM)), "TM100", ("a stream is no DataFrame", "read from the job's outputs")),
    "rows of a stream, counted": (
        lambda: len(wrong(STREAM)),
        "TM100",
        ("a stream is no DataFrame, and has no length", ".window_all(tm.tumbling('1 hour')).aggregate(n=tm.count())"),
    ),
    "streams added": (lambda: wrong(STREAM) + STREAM, "TM100", ("a stream is no DataFrame, and takes no '+'", "write .union(other)")),
    "sum of streams": (lambda: sum(wrong([STREAM, STREAM])), "TM100", ("takes no '+'", "write .union(other)")),
    "a stream as a condition": (
        lambda: wrong(STREAM) and STREAM,
        "TM100",
        ("a stream is no DataFrame, and is neither true nor false", "write 'stream is None'"),
    ),
    "a stream with 'not'": (lambda: not wrong(STREAM), "TM100", ("is neither true nor false",)),
    "a value in a stream": (lambda: "JFK" in wrong(STREAM), "TM100", ("has no rows to look in", ".filter(")),
    "a stream compared": (lambda: wrong(STREAM) > 3, "TM100", ("takes no '>'", ".filter('fare > 0')")),
    "a condition on a stream, negated": (lambda: ~wrong(STREAM), "TM100", ("takes no '~'",)),
    "a column of a keyed stream": (lambda: wrong(KEYED)["at"], "TM100", ("a keyed stream is no DataFrame, and has no ['at']",)),
    "a loop over windows": (lambda: list(wrong(WINDOWED)), "TM100", ("a windowed stream is no DataFrame, and has no rows to go through",)),
    "aggregates divided": (
        lambda: wrong(tm.sum("a")) / tm.count(),
        "TM100",
        ("an aggregate is no column, and takes no '/'", ".with_columns(mean='total / n')"),
    ),
    "a number less an aggregate": (lambda: 1 - wrong(tm.avg("a")), "TM100", ("an aggregate is no column, and takes no '-'",)),
    "jobs added": (
        lambda: wrong(JOB) + JOB,
        "TM100",
        ("a job is no collection, and takes no '+'", "tm.Job('taxi', outputs={**one.outputs, **other.outputs})", "(job 'job', at "),
    ),
    "jobs united": (lambda: wrong(JOB) | JOB, "TM100", ("takes no '|'", "{**one.outputs, **other.outputs}")),
    "sum of jobs": (lambda: sum(wrong([JOB, JOB])), "TM100", ("takes no '+'", "outputs of both")),
    "an output of a job": (lambda: wrong(JOB)["rows"], "TM100", ("a job is no collection, and has no ['rows']", "job.outputs['rows']")),
    "a loop over a job": (lambda: list(wrong(JOB)), "TM100", ("has no items to go through", "job.outputs.items()")),
    "outputs of a job, counted": (lambda: len(wrong(JOB)), "TM100", ("a job is no collection, and has no length", "len(job.outputs)")),
    "an output in a job": (lambda: "rows" in wrong(JOB), "TM100", ("has no items to look in", "'fares' in job.outputs")),
    "jobs sorted": (lambda: sorted(wrong([JOB, JOB])), "TM100", ("takes no ", "sorted(jobs, key=lambda job: job.name)")),
    "jobs in order": (lambda: wrong(JOB) >> JOB, "TM100", ("takes no '>>'", "job.outputs, job.name")),
    "sum of nothing": (untyped.sum, "TM100", ("tm.sum(...) lacks expression", "write tm.sum('fare')")),
    "sum of two": (lambda: untyped.sum("a", "b"), "TM100", ("is given 2 arguments without a name, and takes 1 (expression)",)),
    "a tag without a name": (untyped.OutputTag, "TM100", ("tm.OutputTag(...) lacks name",)),
    "a savepoint without a name": (untyped.Restore, "TM100", ("tm.Restore(...) lacks savepoint",)),
    "run of two jobs": (lambda: untyped.run(JOB, JOB), "TM100", ("is given 2 arguments without a name, and takes 1 (job)",)),
    "run with a keyword mistyped": (
        lambda: untyped.run(JOB, maxepochs=3),
        "TM100",
        ("tm.run(...) has no argument 'maxepochs' (did you mean 'max_epochs'?)", "max_epochs="),
    ),
    "run with a master": (lambda: tm.run(JOB, spark=wrong("local[2]")), "TM100", ("spark='local[2]' is a str", "SparkSession.builder")),
    "run with master=": (lambda: untyped.run(JOB, master="local[2]"), "TM100", ("has no argument 'master'", "spark=SparkSession.builder")),
    "run with no event to stop": (lambda: tm.run(JOB, stop=wrong(1)), "TM100", ("stop=1 is not an event", "threading.Event()")),
    "run with no function": (lambda: tm.run(JOB, on_epoch=wrong(1)), "TM100", ("on_epoch=1 is not a function",)),
    "run with a savepoint's name": (
        lambda: tm.run(JOB, restore=wrong("good")),
        "TM100",
        ("restore='good' is a str, not a restore", "write restore=tm.Restore('good')"),
    ),
    "run with a clock of another kind": (lambda: tm.run(JOB, clock=wrong("now")), "TM100", ("clock='now' is not a clock",)),
    "run with a path as store": (
        lambda: tm.run(JOB, store=wrong(Path("jobs"))),
        "TM100",
        ("names no folder", "write it as text: str(path)"),
    ),
    "run with a number as run_id": (
        lambda: tm.run(JOB, run_id=wrong(5)),
        "TM100",
        ("run_id=5 is not text", "write it as text: run_id='5'"),
    ),
    "run to the end of an endless run": (lambda: tm.run(JOB, trigger="1 s", end_of_input=True), "TM100", ("leave trigger= out to drain",)),
    "a restore from a number": (lambda: tm.Restore(wrong(5)), "TM100", ("tm.Restore(savepoint=5) is not the name of a savepoint",)),
    "a restore with uids in a list": (
        lambda: tm.Restore("a", uids=wrong(["b"])),
        "TM100",
        ("uids=['b']", "write uids={'hourly': 'per-hour'}"),
    ),
    "a restore with columns of no uid": (
        lambda: tm.Restore("a", columns=wrong({"total": "sum"})),
        "TM100",
        ("for each uid", "columns={'hourly': {'total': 'sum'}}"),
    ),
    "a restore in another mode": (lambda: tm.Restore("a", mode=wrong("own")), "TM100", ("mode='own'", "'no-claim' or 'claim'")),
    "options in a list": (
        lambda: tm.streaming_format("kafka", options=wrong(["subscribe"])),
        "TM100",
        ("streaming_format(options=['subscribe']) is not a dict of options by name",),
    ),
    "a number counted": (lambda: tm.count(wrong(5)), "TM100", ("count(5): the argument is not an SQL expression",)),
    "a table at a path of Python's": (lambda: tm.delta(STREAM, wrong(Path("a"))), "TM100", ("write it as text: str(path)",)),
    "files at a path of Python's": (
        lambda: tm.files(wrong(Path("a")), format="json", schema="at BIGINT"),
        "TM100",
        ("write it as text: str(path)",),
    ),
    "deduplicate without a time": (lambda: wrong(KEYED).deduplicate(), "TM100", ("within='1 hour', or keep='last'",)),
    "with_columns by place": (lambda: wrong(STREAM).with_columns("at + 1"), "TM100", ("is given 1 argument without a name", "name=...")),
    "keys in a list": (lambda: STREAM.key_by(wrong(["zone"])), "TM102", ("is a list, not a column", ".key_by('zone')")),
    "columns in a list": (lambda: STREAM.select(wrong(["zone", "at"])), "TM102", (".select('zone', 'at')",)),
    "session by an expression": (lambda: tm.session("timeout * 2"), "TM103", ("session('30 minutes')", "session(gap_by='timeout * 2')")),
    "window without windows": (lambda: wrong(KEYED).window(), "TM100", (".window(...) lacks assigner", "tm.tumbling('1 hour')")),
    "explode without a name": (lambda: wrong(STREAM).explode("zone"), "TM100", ("lacks as_", "as_='item'")),
}


@pytest.mark.parametrize(("act", "code", "says"), CASES.values(), ids=CASES)
def test_a_wrong_call_says_what_to_write_and_where(act: Callable[[], object], code: str, says: tuple[str, ...]) -> None:
    message = refusal(act)
    assert message.startswith(f"[{code}] "), message
    for text in (*says, "Fix: "):
        assert text in message, message
    assert re.search(rf"at {re.escape(__file__)}:\d+\)", message), message
    assert len(message.splitlines()) == 1
    assert len(message) < 600, message
    for leak in ("positional", "__init__", "Spec(", "Output("):
        assert leak not in message, message


CHECKED: Final = {
    **{f"tm.{name}": getattr(tm, name) for name in tm.__all__ if isinstance(getattr(tm, name), FunctionType)},
    **{f"tm.{kind.__name__}": kind for kind in (tm.Job, tm.OutputTag, tm.Restore)},
    **{
        f"{type(owner).__name__}.{name}": getattr(owner, name)
        for owner in (STREAM, KEYED, WINDOWED, JOB)
        for name, member in vars(type(owner)).items()
        if isinstance(member, FunctionType) and not name.startswith("_")
    },
}
TAKES_ANY_NAME: Final = {
    name
    for name, call in CHECKED.items()
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in inspect.signature(call).parameters.values())
}


@pytest.mark.parametrize("name", [name for name in CHECKED if name not in TAKES_ANY_NAME])
def test_every_public_call_refuses_an_argument_that_it_does_not_have(name: str) -> None:
    message = refusal(lambda: CHECKED[name](no_such_argument=1))
    assert message.startswith("[TM100] "), message
    assert "has no argument 'no_such_argument'" in message
    assert __file__ in message


def test_many_calls_are_checked() -> None:
    assert len(CHECKED) > 70
    assert {"Stream.select", "WindowedStream.aggregate"} <= TAKES_ANY_NAME


def test_signatures_stay_what_they_were() -> None:
    from tidemark.graph.api import sinks
    from tidemark.spark.loop import run

    assert inspect.signature(tm.delta) == inspect.signature(sinks.delta)
    assert inspect.signature(tm.run) == inspect.signature(run.run)
    assert tm.run.__doc__ == run.run.__doc__
    assert list(inspect.signature(tm.Job).parameters)[:3] == ["name", "outputs", "store"]
    assert list(inspect.signature(tm.Stream.map).parameters) == ["self", "function", "returns", "batches"]
    assert tm.delta is tm.delta


def test_a_type_error_of_ones_own_code_stays_what_it_is() -> None:
    class Odd:
        def __iter__(self) -> object:
            raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        STREAM.transform(wrong(lambda rows: rows), columns=wrong(Odd()))


def refusal(act: Callable[[], object]) -> str:
    try:
        act()
    except DefinitionError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is shown
        return f"{type(error).__name__}: {error}"
    return "nothing at all"


def test_a_job_is_true_as_other_objects_are() -> None:
    assert (wrong(JOB) or None) is JOB
