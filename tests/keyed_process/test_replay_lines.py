"""Which epochs of a job that was restored are replayed, under the names that its states had, and by which keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tidemark.errors import ColumnError, StateMismatchError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.spark.replay.job_line import JobLine, PastNames
from tidemark.spark.replay.replayed import ReplayedEpoch
from tidemark.state.log.progress import EpochProgress
from tidemark.state.log.records import EpochRecord, OperatorState, ParentRef, RestoreRef
from tidemark.state.store.store import JobStore
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = Mapping[str, Any]
EPOCHS = [[(1, 10, 1), (2, 20, 2)], [(1, 40, 3), (2, 50, 4)], [(1, 100, 5), (1, 110, 6)]]
DEFINITION: Mapping[str, object] = {"kind": "keyed_process"}


def record(lineage: str, epoch: int, parent: ParentRef | None = None, restored: RestoreRef | None = None, uid: str = "w") -> EpochRecord:
    return EpochRecord(
        job="j",
        lineage=lineage,
        parent=parent,
        term=1,
        epoch=epoch,
        processing_time=0,
        offsets="",
        progress=EpochProgress("j", lineage, epoch, 0, 0, 0, 0),
        operators={uid: OperatorState(DEFINITION)},
        restored=restored,
    )


def line_after(*epochs: tuple[str, int], parent: ParentRef | None = None, uid: str = "w", **renamed: Any) -> list[EpochRecord]:
    restored = None if parent is None else RestoreRef("restore-1", renamed.pop("job", "j"), "friday", **renamed)
    return [record(lineage, epoch, parent, restored, uid) for lineage, epoch in epochs]


FIRST = line_after(("a", 0), ("a", 1), ("a", 2), ("a", 3))


def test_the_line_leaves_out_the_record_of_a_restore_and_what_came_before_it() -> None:
    restored = line_after(("b", 1), ("b", 2), parent=ParentRef("a", 1))
    line = JobLine(reversed([*FIRST, *restored]), "w")
    assert line.replayable == [0, 1, 2]
    assert [(line.epochs[n].record.lineage, line.epochs[n].before) for n in (0, 1, 2)] == [("a", None), ("a", FIRST[0]), ("b", restored[0])]
    assert "it came before a restore or rewind to an earlier epoch" in line.why_not(3)
    assert "does not retain it" in line.why_not(9)


def test_a_second_restore_follows_its_own_parent() -> None:
    second = line_after(("b", 1), ("b", 2), parent=ParentRef("a", 1))
    third = line_after(("c", 2), ("c", 3), parent=ParentRef("b", 2))
    line = JobLine(reversed([*FIRST, *second, *third]), "w")
    assert [line.epochs[n].record.lineage for n in (0, 1, 2, 3)] == ["a", "a", "b", "c"]


def test_a_line_that_begins_with_a_savepoint_of_another_job_says_so() -> None:
    line = JobLine(reversed(line_after(("b", 7), ("b", 8), parent=ParentRef("z", 7), job="other")), "w")
    assert line.replayable == [8]
    assert "restored from savepoint 'friday' of job 'other'" in line.why_not(7)


def test_an_operator_that_was_added_is_missed_by_name() -> None:
    line = JobLine(reversed([*line_after(("a", 0), uid="other"), *line_after(("a", 1), ("a", 2))]), "w")
    assert line.replayable == [1, 2]
    assert "the job had no process function 'w' then" in line.why_not(0)


def test_names_are_followed_through_restores() -> None:
    first = PastNames("w").before(RestoreRef("2", "j", "s", {"v": "w"}, {"w": {"total": "sum", "gone": None}}))
    assert (first.uid, first.of("sum"), first.of("total"), first.of("gone"), first.of("other")) == ("v", "total", None, None, "other")
    second = first.before(RestoreRef("1", "j", "s", {}, {"v": {"amount": "total"}}))
    assert (second.uid, second.of("sum"), second.of("amount")) == ("v", "amount", None)


class Old:
    """Totals and elements of each key."""

    total = tm.value_state("INT", default=0)
    last = tm.list_state("BIGINT")
    seen = tm.map_state("STRING", "BIGINT")
    counts = tm.value_state("MAP<STRING, BIGINT>")

    def process(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        self.total.update(self.total.value() + element["v"])
        self.last.add(element["v"])
        self.seen.put("fig", element["v"])
        self.counts.update({"fig": 1})
        ctx.timer_service().register_processing_time_timer(2_000_000)
        yield {"n": self.total.value()}

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> None:
        """Nothing is done."""


class New(Old):
    """The same with another name of ``last``, and a wider total."""

    total = tm.value_state("BIGINT", default=0)
    newest = tm.list_state("BIGINT")
    seen = tm.map_state("STRING", "BIGINT")
    counts = tm.value_state("MAP<STRING, BIGINT>")
    last = None

    def process(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        self.total.update(self.total.value() + element["v"])
        self.newest.add(element["v"])
        self.seen.put("fig", element["v"])
        self.counts.update({"fig": 1})
        ctx.timer_service().register_processing_time_timer(2_000_000)
        yield {"n": self.total.value()}


def job_of(store: Path, epochs: int, function: object = Old) -> tm.Job:
    read = tm.source(
        "e",
        tm.from_elements(epochs=EPOCHS[:epochs], schema="k BIGINT, t BIGINT, v BIGINT"),
        watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="t"),
    )
    keyed = read.key_by("k", day="CAST(timestamp_seconds(k) AS DATE)").process(function, returns="n BIGINT").uid("w")
    return tm.Job("restored", outputs={"out": tm.memory(keyed, f"{store}/out")}, store=str(store))


DAY = datetime(1970, 1, 1, tzinfo=UTC).date()


def replayed(spark: SparkSession, job: tm.Job, *epochs: int, k: object = 1, day: object = DAY) -> tuple[ReplayedEpoch, ...]:
    return tm.replay(job, "w", key={"k": k, "day": day}, epochs=epochs or None, spark=spark)


@pytest.mark.spark
def test_a_restored_job_replays_the_epochs_that_its_state_comes_from(spark: SparkSession, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"spark": spark, "clock": ManualClock(1_000), "handle_signals": False}
    tm.run(job_of(tmp_path, 2), **settings)
    SavepointStore(JobStore.open(str(tmp_path)), "restored").take("two")
    tm.run(job_of(tmp_path, 3), **settings)
    # An epoch of the first line that the restore leaves behind.
    tm.run(job_of(tmp_path, 2), restore=tm.Restore("two"), **settings)
    job = job_of(tmp_path, 3)
    (newest,) = replayed(spark, job)
    assert (newest.epoch, [call.time for call in newest.calls], newest.differences) == (1, [40], ())
    with pytest.raises(StateMismatchError, match="it came before a restore or rewind to an earlier epoch") as caught:
        replayed(spark, job, 2)
    assert caught.value.fix == "choose one of those that can: 0 to 1"

    changed = job_of(tmp_path, 3, New)
    tm.run(changed, restore=tm.Restore("two", columns={"w": {"last": "newest"}}), **settings)
    epochs = replayed(spark, changed, 0, 1, 2)
    assert [epoch.differences for epoch in epochs] == [(), (), ()]
    assert [epoch.states_before.get("newest") for epoch in epochs] == [None, [1], [1, 3]]
    assert epochs[2].states == {"total": 15, "newest": [1, 3, 5, 6], "seen": {"fig": 6}, "counts": {"fig": 1}}
    shown = str(epochs[1])
    assert "process at 40 (1970-01-01T00:00:00.040Z), watermark 39 (1970-01-01T00:00:00.039Z): {'k': 1, 't': 40, 'v': 3}" in shown
    assert "timers: processing-time timer at 2000000 (1970-01-01T00:33:20.000Z)" in shown
    assert "watermark the beginning of time to 19 (1970-01-01T00:00:00.019Z)" in str(epochs[0])

    for wrong, kind in (("k", "BIGINT"), ("day", "DATE")):
        with pytest.raises(ColumnError, match=rf"the key column '{wrong}' has the type {kind}, and is given 'one' \(str\)"):
            replayed(spark, changed, 1, **{wrong: "one"})
    (other,) = replayed(spark, changed, 1, k=77)
    assert "no call: the key had no element and no timer that was due" in str(other)
