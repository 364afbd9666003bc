"""A past epoch of a key, run again: the same calls, rows, state and timers as the job's, and what a changed function would have kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.seeds import some
from tidemark.errors import ColumnError, DefinitionError, StateMismatchError
from tidemark.spark.replay.replayed import ReplayedEpoch, differences
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = Mapping[str, Any]
SCHEMA = "k STRING, t BIGINT, v BIGINT"
LARGE, FAILED = tm.OutputTag("large"), tm.OutputTag("failed")
EPOCHS: list[list[tuple[str | None, int, int]]] = [
    [("a", 10, 1), ("b", 20, 2), ("a", 30, 70)],
    [("a", 40, 3), ("a", 45, 13), ("b", 50, 4), (None, 55, 5), ("a", 60, 4)],
    [("b", 400, 5), ("a", 420, 6), ("a", 390, 80)],
]
"""Elements of each epoch: key, time, value."""


class Quiet:
    """Totals of each key until it is quiet for a while."""

    total = tm.value_state("BIGINT", default=0)
    seen = tm.map_state("BIGINT", "BIGINT", ttl=tm.state_ttl("200 ms", domain="event"))
    last = tm.list_state("STRUCT<t: BIGINT, v: BIGINT>")

    def process(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        self.total.update(self.total.value() + element["v"])
        if element["v"] == 13:
            raise ValueError("13 is refused")
        self.seen.put(element["v"], ctx.timestamp)
        self.last.update([*self.last.get(), {"t": ctx.timestamp, "v": element["v"]}][-2:])
        ctx.timer_service().register_event_time_timer(ctx.timestamp + self.wait, "quiet")
        if element["v"] > 50:
            ctx.output(LARGE, {"v": element["v"]})
        yield {"what": "element", "n": self.total.value()}

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> Iterator[Row]:
        yield {"what": ctx.timer_name, "n": timestamp}
        self.total.clear()

    wait = 100


class Longer(Quiet):
    """Waits longer: what somebody tries."""

    wait = 200


class InBatches:
    """Counts the elements of a key."""

    n = tm.value_state("BIGINT", default=0)

    def process_batch(self, elements: Any, ctx: tm.ProcessContext) -> Iterator[object]:
        self.n.update(self.n.value() + elements.num_rows)
        yield elements.select(["v"]), ctx.timestamps


class Pairs:
    """Keeps the newest of the first input, and pairs the second's with it."""

    newest = tm.value_state("BIGINT")

    def process1(self, element: Row, ctx: tm.ProcessContext) -> None:
        del ctx
        self.newest.update(element["v"])

    def process2(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        del ctx
        yield {"v": element["v"], "newest": self.newest.value()}


def limited(element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
    """Yield elements with the limit of their key."""
    yield {"v": element["v"], "limit": (ctx.broadcast["limits"].get(element["k"]) or {}).get("v")}


def job_of(store: Path, function: object = Quiet) -> tm.Job:
    """Return a job with a process function of each kind, and a window whose results another one reads."""
    read = tm.source(
        "rides", tm.from_elements(epochs=EPOCHS, schema=SCHEMA), watermarks=tm.bounded_out_of_orderness("20 ms", timestamp="t")
    )
    rides = read.with_columns(twice="2 * v")
    quiet = rides.key_by("k").process(function, returns="what STRING, n BIGINT", side_outputs={LARGE: "v BIGINT"}, on_error=FAILED)
    streams = {
        "quiet": quiet.uid("quiet"),
        "batches": rides.key_by("k").process(InBatches, returns="v BIGINT").uid("batches"),
        "pairs": rides.filter("v < 4").key_by("k").connect(rides.filter("v >= 4").key_by("k"))
        .process(Pairs, returns="v BIGINT, newest BIGINT").uid("pairs"),
        "limited": rides.key_by("k").connect(rides.filter("v < 3").broadcast("limits", key="k", value="v BIGINT"))
        .process(limited, returns="v BIGINT, limit BIGINT").uid("limited"),
    }  # fmt: skip
    outputs = {name: tm.memory(stream, f"{store}/{name}") for name, stream in streams.items()}
    behind = rides.key_by("k").window(tm.tumbling("100 ms")).aggregate(n=tm.count()).uid("windows")
    outputs["behind"] = tm.memory(behind.key_by("k").process(counted, returns="n BIGINT").uid("behind"), f"{store}/behind")
    return tm.Job("replayed", outputs=outputs, store=str(store))


def counted(element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
    """Yield the counts of windows."""
    del ctx
    yield {"n": element["n"]}


@pytest.fixture(scope="module")
def store(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The job store after a run of three epochs and the end of input."""
    folder = tmp_path_factory.mktemp("replayed")
    tm.run(job_of(folder), spark=spark, clock=ManualClock(1_000), handle_signals=False)
    return folder


def replayed(spark: SparkSession, job: tm.Job, uid: str, key: object, *epochs: int) -> tuple[ReplayedEpoch, ...]:
    return tm.replay(job, uid, key={"k": key}, epochs=epochs, spark=spark)


@pytest.mark.spark
def test_it_makes_the_same_calls_and_keeps_the_same(spark: SparkSession, store: Path) -> None:
    first, second, third = replayed(spark, job_of(store), "quiet", "a", 0, 1, 2)
    assert [epoch.differences for epoch in (first, second, third)] == [(), (), ()]
    assert [(call.method, call.time) for call in second.calls] == [("process", 40), ("process", 45), ("process", 60)]
    assert second.calls[0].element == {"k": "a", "t": 40, "v": 3, "twice": 6}
    assert "13 is refused" in (second.calls[1].error or "")
    assert second.calls[2].emitted == [(None, {"what": "element", "n": 78})]
    assert second.states_before["total"] == 71
    assert second.states["total"] == 78
    assert second.timers == (("event", 160, "quiet"),)
    # The timer fires before the element at whose watermark it is due.
    assert [(call.method, call.time, call.watermark) for call in third.calls] == [
        ("on_timer", 160, 369),
        ("process", 390, 369),
        ("process", 420, 399),
    ]
    assert third.calls[1].emitted == [("large", {"v": 80}), (None, {"what": "element", "n": 80})]
    rows = [row for epoch in (first, second, third) for call in epoch.calls for tag, row in call.emitted if tag is None]
    table = tm.memory_table(f"{store}/quiet")
    assert table is not None
    assert all(row in table.to_pylist() for row in rows)
    assert "timer quiet" in str(third)


@pytest.mark.spark
@pytest.mark.parametrize(("uid", "key"), some([(uid, key) for uid in ("batches", "pairs", "limited") for key in ("a", "b", None)], 4))
def test_each_kind_keeps_what_was_committed(spark: SparkSession, store: Path, uid: str, key: object) -> None:
    epochs = replayed(spark, job_of(store), uid, key, 0, 1, 2)
    assert [epoch.differences for epoch in epochs] == [(), (), ()]
    table = tm.memory_table(f"{store}/{uid}")
    assert table is not None
    emitted = [row for epoch in epochs for call in epoch.calls for _, row in call.emitted]
    assert all(row in table.to_pylist() for row in emitted)
    assert emitted


@pytest.mark.spark
def test_a_changed_function_says_what_it_would_have_kept(spark: SparkSession, store: Path) -> None:
    (third,) = replayed(spark, job_of(store, Longer), "quiet", "b", 2)
    assert third.differences == (
        "the event-time timer 'quiet' at 600 (1970-01-01T00:00:00.600Z) is set, and was not",
        "the event-time timer 'quiet' at 500 (1970-01-01T00:00:00.500Z) is not set, and was",
    )
    (second,) = replayed(spark, job_of(store, Longer), "quiet", "b", 1)
    assert "the event-time timer 'quiet' at 250 (1970-01-01T00:00:00.250Z) is set, and was not" in second.differences


@pytest.mark.parametrize(
    ("kept", "committed", "same"),
    [
        (0.0, -0.0, False),
        (-0.0, -0.0, True),
        (float("nan"), float("nan"), True),
        (float("nan"), None, False),
        ([1.5, 0.0], [1.5, -0.0], False),
        ({"a": {"x": float("nan")}}, {"a": {"x": float("nan")}}, True),
        ({"a": {"x": 0.0}}, {"a": {"x": -0.0}}, False),
        ({0.0: 1}, {-0.0: 1}, False),
        ({0.0: 1, 1.0: 2}, {1.0: 2, 0.0: 1}, True),
        (None, 0.0, False),
    ],
)
def test_what_state_tells_apart_is_a_difference(*, kept: object, committed: object, same: bool) -> None:
    found = tuple(differences({"s": kept}, {"s": committed}, (), ()))
    assert found == (() if same else (f"the state 's' is {kept!r}, and {committed!r} was committed",))


class Broken(Quiet):
    """Fails when it is opened, and when it is closed."""

    def open(self, ctx: tm.ProcessContext) -> None:
        del ctx
        raise LookupError("there is no table of rates")

    def close(self) -> None:
        raise AttributeError("rates")


@pytest.mark.spark
def test_a_function_that_fails_says_so_whatever_its_close_does(spark: SparkSession, store: Path) -> None:
    with pytest.raises(LookupError, match="no table of rates"):
        replayed(spark, job_of(store, Broken), "quiet", "b", 2)


@pytest.mark.spark
def test_what_cannot_be_replayed(spark: SparkSession, store: Path) -> None:
    job = job_of(store)
    with pytest.raises(DefinitionError, match="there is no process function of a keyed stream 'windows'"):
        replayed(spark, job, "windows", "a", 1)
    with pytest.raises(DefinitionError, match="'behind' reads what 'windows' makes"):
        replayed(spark, job, "behind", "a", 1)
    with pytest.raises(ColumnError, match="'quiet' is keyed by k"):
        tm.replay(job, "quiet", key={"id": 7}, epochs=1, spark=spark)
    with pytest.raises(ColumnError, match=r"the key is 'a', which names no columns, and 'quiet' is keyed by k.*Fix: give key=\{'k': "):
        tm.replay(job, "quiet", key="a", epochs=1, spark=spark)  # type: ignore[arg-type]
    with pytest.raises(StateMismatchError, match="epoch 77 cannot be replayed") as caught:
        replayed(spark, job, "quiet", "a", 77)
    assert "0 to " in caught.value.fix
