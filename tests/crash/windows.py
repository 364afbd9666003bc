"""The job whose windows of every other kind are killed: panes that empty them, counts, kept elements, slices merged ahead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import tidemark as tm
from tests.crash import sessions
from tests.crash.fares import clock_of, open_session, run
from tidemark.spark.operators.aligned import pre_aggregation, sliced, triggered
from tidemark.spark.operators.count import counted
from tidemark.spark.operators.keyed import input as keyed_input
from tidemark.spark.operators.keyed import key_table
from tidemark.spark.operators.process import buffered
from tidemark.state.gc.compaction import plan_compaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OUTPUTS = ("purged", "recent", "kept", "sliding", "described", "late")
RETURNS = "values ARRAY<BIGINT>, window_calls BIGINT, key_calls BIGINT"


def listed(rows: Sequence[Mapping[str, Any]], context: tm.WindowContext) -> Iterator[dict[str, object]]:
    """Return the values of a window, with how often it and its key were called."""
    for state in (context.window_state, context.key_state):
        state["calls"] = int(str(state.get("calls", 0))) + 1
    calls = context.window_state["calls"], context.key_state["calls"]
    yield {"values": [row["v"] for row in rows], "window_calls": calls[0], "key_calls": calls[1]}


def described(rows: Sequence[Mapping[str, Any]], context: tm.WindowContext) -> Iterator[dict[str, object]]:
    """Return a text on the result of a window, with how often the window was called."""
    state = context.window_state
    state["calls"] = int(str(state.get("calls", 0))) + 1
    (row,) = rows
    assert context.window is not None
    yield {"text": f"{context.window.start}: {row['total']}", "calls": state["calls"]}


def write_landing(folder: Path) -> Path:
    """Write the input, that of the sessions in fewer epochs; returns the folder."""
    first, second, third, *others = sessions.FILES
    return sessions.write_landing(folder, [first, [*second, *third], *others])


def make_job(folder: Path) -> tm.Job:
    """Return the job on the files below a folder; it writes there too."""
    source = tm.source(
        "e",
        tm.files(str(folder / "landing"), format="json", schema=sessions.SCHEMA, max_files_per_epoch=1),
        watermarks=tm.ascending(timestamp="t"),
    )
    late = tm.OutputTag("late")
    keyed = source.key_by("k")
    tens = keyed.window(tm.tumbling("10 ms")).allowed_lateness("60 ms")
    early = tm.event_time_trigger(early=tm.count_trigger(2))
    slices = keyed.window(tm.sliding("40 ms", "10 ms")).allowed_lateness("20 ms").late_to(late)
    sliding = slices.aggregate(n=tm.count(), total=tm.sum("v")).uid("sliding")
    about = tm.window_function(described, returns="text STRING, calls BIGINT")
    streams: dict[str, tm.Stream] = {
        "purged": tens.trigger(tm.purging_trigger(early)).aggregate(n=tm.count(), values=tm.collect_list("v")).uid("purged"),
        "recent": keyed.window(tm.count_window(4, 2)).aggregate(total=tm.sum("v"), values=tm.collect_list("v")).uid("recent"),
        "kept": tens.trigger(early).evictor(tm.count_evictor(3)).process(listed, returns=RETURNS).uid("kept"),
        "sliding": sliding,
        "described": tens.aggregate(about, total=tm.sum("v")).uid("described"),
        "late": sliding.side_output(late),
    }
    outputs = {name: tm.delta(stream, str(folder / name)) for name, stream in streams.items()}
    return tm.Job("windows", outputs=outputs, store=str(folder / "store"), parallelism=1)


@contextmanager
def many_files() -> Iterator[None]:
    """Let every epoch look for the keys that it touches, merge slices ahead, and merge files."""
    merging = {"plan_compaction": partial(plan_compaction, min_files=1)}
    seeking = {"FEW_ROWS": -1}
    patches: dict[Any, dict[str, Any]] = {
        pre_aggregation: merging,
        buffered: merging | seeking,
        keyed_input: seeking,
        key_table: merging | {"MAX_GARBAGE": 0},
        counted: merging | seeking | {"FEW_TOUCHED": 0},
        sliced: merging | {"MANY_ROWS": 0},
        triggered: merging,
    }
    with ExitStack() as stack:
        for module, values in patches.items():
            stack.enter_context(mock.patch.multiple(module, **values))
        yield


def run_to_the_end(folder: Path, spark: SparkSession, attempt: int) -> None:
    """Run the job to the end of its input."""
    with many_files():
        run(make_job(folder), spark, clock_of(attempt), end_of_input=True)


def drive(folder: str, attempt: str = "0") -> None:
    """Run the job to its end; what a killed process was doing, and what its successor does."""
    run_to_the_end(Path(folder), open_session(), int(attempt))
