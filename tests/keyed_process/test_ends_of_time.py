"""Process functions in epochs without input, and at the end of time: what fails there, what is kept there, what others read of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import tidemark as tm
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = Mapping[str, Any]
FAILED = tm.OutputTag("failed")


def rides(*epochs: list[tuple[str, int, int]], name: str = "rides") -> tm.Stream:
    given = tm.from_elements(epochs=list(epochs), schema="k STRING, t BIGINT, v BIGINT")
    return tm.source(name, given, watermarks=tm.ascending(timestamp="t"))


def rows_of(name: str) -> list[dict[str, Any]]:
    table = tm.memory_table(name)
    tm.clear_memory(name)
    return [] if table is None else table.to_pylist()


class FailsLater:
    """Sets a timer far ahead that fails, and keeps something there."""

    last = tm.value_state("BIGINT", ttl=tm.state_ttl("1 hour", domain="event"))

    def process(self, element: Row, ctx: tm.ProcessContext) -> None:
        ctx.timer_service().register_event_time_timer(element["t"] + 1_000_000)
        ctx.timer_service().register_event_time_timer(element["t"] + 2_000_000)

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> Iterator[Row]:
        del ctx
        yield {"v": self.last.value()}
        self.last.update(timestamp)
        if timestamp % 2_000_000 > 1_000_000:
            raise ValueError("too late")


class Forever:
    """Waits for the end of time."""

    def process(self, element: Row, ctx: tm.ProcessContext) -> None:
        del element
        ctx.timer_service().register_event_time_timer(2**63 - 1)
        ctx.timer_service().register_processing_time_timer(2**63 - 1)

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> Iterator[Row]:
        yield {"k": ctx.current_key["k"], "at": timestamp}


def test_a_timer_may_wait_for_the_end_of_time(spark: SparkSession, tmp_path: Path) -> None:
    stream = rides([("a", 10, 1)], [("b", 20, 2)]).key_by("k").process(Forever, returns="k STRING, at BIGINT").uid("forever")
    job = tm.Job("forever", outputs={"o": tm.memory(stream, f"{tmp_path}/o")}, store=str(tmp_path / "s"))
    tm.run(job, spark=spark, clock=ManualClock(50_000_000), handle_signals=False)
    timers = tm.savepoint(job).tables("forever", spark)["timers"].collect()
    assert sorted((row["k"], row["domain"], row["due"]) for row in timers) == [
        (key, domain, None) for key in "ab" for domain in ("event", "processing")
    ]
    tm.run(job, spark=spark, clock=ManualClock(60_000_000), handle_signals=False, end_of_input=True)
    assert sorted((row["k"], row["at"]) for row in rows_of(f"{tmp_path}/o")) == [("a", 2**63 - 1), ("b", 2**63 - 1)]


def test_timers_that_fail_in_an_epoch_without_input_have_the_columns_of_elements(spark: SparkSession, tmp_path: Path) -> None:
    stream = rides([("a", 10, 1)], [("b", 20, 2)]).key_by("k").process(FailsLater, returns="v BIGINT", on_error=FAILED).uid("later")
    failed = stream.side_output(FAILED)
    streams = {
        "results": stream,
        "failed": failed.select("k", "v", "error"),
        "counts": failed.key_by("k").running_aggregate(n=tm.count()).uid("counts"),
    }
    job = tm.Job("ends", outputs={name: tm.memory(each, f"{tmp_path}/{name}") for name, each in streams.items()}, store=str(tmp_path / "s"))
    tm.run(job, spark=spark, clock=ManualClock(50_000_000), handle_signals=False)
    tm.run(job, spark=spark, clock=ManualClock(60_000_000), handle_signals=False, end_of_input=True)
    # What the first timer of each key wrote and emitted is undone; the second one reads nothing, and keeps its time to the end of time.
    assert rows_of(f"{tmp_path}/results") == [{"v": None}] * 2
    found = rows_of(f"{tmp_path}/failed")
    assert [(row["k"], row["v"]) for row in found] == [(None, None)] * 2
    assert all("too late" in row["error"] for row in found)
    assert [row["n"] for row in rows_of(f"{tmp_path}/counts")] == [1, 2]


class EmptiedInBatches:
    """Keeps the last value, of which 0 is none; what it emits has no rows."""

    last = tm.value_state("BIGINT")

    def process_batch(self, elements: pa.RecordBatch, ctx: tm.ProcessContext) -> Iterator[pa.RecordBatch]:
        del ctx
        value = elements.column("v")[-1].as_py()
        if value:
            self.last.update(value)
        else:
            self.last.clear()
        yield elements.select(["v"]).slice(0, 0)


def test_input_may_end_where_no_key_keeps_anything(spark: SparkSession, tmp_path: Path) -> None:
    stream = rides([("a", 10, 1)], [("a", 20, 0)]).key_by("k").process(EmptiedInBatches, returns="v BIGINT").uid("emptied")
    job = tm.Job("emptied", outputs={"o": tm.memory(stream, f"{tmp_path}/o")}, store=str(tmp_path / "s"))
    keys: list[int | None] = []
    for clock, ends in ((50_000_000, False), (60_000_000, True)):
        tm.run(
            job,
            spark=spark,
            clock=ManualClock(clock),
            handle_signals=False,
            end_of_input=ends,
            on_epoch=lambda progress: keys.append(progress.operators["emptied"].keys),
        )
    assert keys == [1, 0, 0]
    assert rows_of(f"{tmp_path}/o") == []


class Remembers:
    """Emits how many elements it remembers, as a value, a list and a map."""

    def process(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        state = ctx.state
        state.n.update(state.n.value() + 1)
        state.all.add(element["v"])
        state.by_value.put(element["v"], 1)
        yield {"n": [state.n.value(), len(state.all.get()), len(list(state.by_value.keys()))]}


def remembered(epochs: list[list[tuple[str, int, int]]], ttl: Any) -> tm.Stream:
    states = {
        "n": tm.value_state("BIGINT", default=0, ttl=ttl),
        "all": tm.list_state("BIGINT", ttl=ttl),
        "by_value": tm.map_state("BIGINT", "BIGINT", ttl=ttl),
    }
    return rides(*epochs).key_by("k").process(Remembers, returns="n ARRAY<BIGINT>", state=states).uid("remembered")


def test_a_lifetime_in_another_time_begins_when_the_job_is_changed(spark: SparkSession, tmp_path: Path) -> None:
    event, processing = tm.state_ttl("1 hour", domain="event"), tm.state_ttl("1 hour")
    epochs = [[("a", 10, 1)], [("a", 20, 2)], [("a", 30, 3)]]
    seen = []
    for number, ttl in enumerate([event, processing, event], start=1):
        stream = remembered(epochs[:number], ttl)
        job = tm.Job("lives", outputs={"o": tm.memory(stream, f"{tmp_path}/o")}, store=str(tmp_path / "s"))
        tm.run(job, spark=spark, clock=ManualClock(1_700_000_000_000 + number * 60_000), handle_signals=False)
        seen += [row["n"] for row in rows_of(f"{tmp_path}/o")]
    assert seen == [[1, 1, 1], [2, 2, 2], [3, 3, 3]]


class Numbered:
    """Counts the elements of a key."""

    n = tm.value_state("BIGINT", default=0)

    def process(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        del element, ctx
        self.n.update(self.n.value() + 1)
        yield {"n": self.n.value()}


def test_nan_null_and_both_zeros_are_keys_like_any_other(spark: SparkSession, tmp_path: Path) -> None:
    values = [float("nan"), 0.0, None, 1.5]
    epochs = [[(value, number) for number, value in enumerate(values)], [(-0.0, 5), (float("nan"), 6), (None, 7)]]
    read = tm.source("numbers", tm.from_elements(epochs=epochs, schema="v DOUBLE, t BIGINT"), watermarks=tm.ascending(timestamp="t"))
    streams = {
        "process": read.key_by("v").process(Numbered, returns="n BIGINT").uid("numbered"),
        "aggregate": read.key_by("v").running_aggregate(n=tm.count()).uid("counted").select("n"),
    }
    job = tm.Job("odd", outputs={name: tm.memory(each, f"{tmp_path}/{name}") for name, each in streams.items()}, store=str(tmp_path / "s"))
    tm.run(job, spark=spark, clock=ManualClock(1_700_000_000_000), handle_signals=False)
    for name in streams:
        assert [row["n"] for row in rows_of(f"{tmp_path}/{name}")] == [1, 1, 1, 1, 2, 2, 2], name


class Pairs:
    """Counts the elements of the first input, and says to each of the second how many there were."""

    n = tm.value_state("BIGINT", default=0, ttl=tm.state_ttl("1 second", domain="event"))

    def process1(self, element: Row, ctx: tm.ProcessContext) -> None:
        del element, ctx
        self.n.update(self.n.value() + 1)

    def process2(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        del ctx
        yield {"k": element["k"], "n": self.n.value()}


def test_what_is_kept_before_there_is_a_watermark_lives_from_the_first_one(spark: SparkSession, tmp_path: Path) -> None:
    first = rides([("a", 10_000, 1), ("b", 10_500, 1)], [("a", 11_000, 2)], [], [("c", 12_500, 3)])
    second = rides([], [], [("a", 11_500, 3), ("b", 11_600, 3)], [("a", 12_500, 4)], name="others")
    streams = {
        "pairs": first.key_by("k").connect(second.key_by("k")).process(Pairs, returns="k STRING, n BIGINT").uid("pairs"),
        "counts": first.union(second)
        .key_by("k")
        .running_aggregate(n=tm.count(), ttl=tm.state_ttl("1 second", domain="event"))
        .uid("counts"),
    }
    outputs = {name: tm.memory(each, f"{tmp_path}/{name}") for name, each in streams.items()}
    job = tm.Job("silent", outputs=outputs, store=str(tmp_path / "s"))
    kept = []

    def after(_: object) -> None:
        kept.append([sorted(map(tuple, tm.savepoint(job).tables(uid, spark)["keys"].collect())) for uid in streams])

    tm.run(job, spark=spark, clock=ManualClock(1_700_000_000_000), on_epoch=after, handle_signals=False)
    # The second input's elements of the third epoch are the first that give a watermark: that of the first input, 10,999. All that was
    # written before lives from then on, and is expired at the fourth epoch's elements.
    found = {name: [(row["k"], row["n"]) for row in rows_of(f"{tmp_path}/{name}")] for name in streams}
    assert sorted(found["pairs"][:2]) == [("a", 2), ("b", 1)]
    assert found["pairs"][2:] == [("a", 0)]
    counts = found["counts"]
    assert [sorted(counts[:2]), counts[2:3], sorted(counts[3:5]), sorted(counts[5:])] == [
        [("a", 1), ("b", 1)],
        [("a", 2)],
        [("a", 3), ("b", 2)],
        [("a", 1), ("c", 1)],
    ]
    assert kept == [
        [[("a", 1), ("b", 1)], [("a", 1), ("b", 1)]],
        [[("a", 2), ("b", 1)], [("a", 2), ("b", 1)]],
        [[("a", 2), ("b", 1)], [("a", 3), ("b", 2)]],
        [[("c", 1)], [("a", 1), ("c", 1)]],
    ]
