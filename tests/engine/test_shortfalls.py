"""The engine counts late rows by how much more lateness would have kept them: for each kind of operator, over hours of lateness.

Which rows are late is what other tests compare with the reference; here the rows of the late side output are compared with the rule of
lateness, each row by itself, under each greater lateness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.engine.lab import NOW
from tests.engine.late_facts import LateWith, expected_facts, expected_shortfalls, facts_of_progress
from tests.seeds import new_seeds
from tidemark.semantics.deduplicate.deduplicate import Deduplication
from tidemark.semantics.joins.interval import IntervalJoin, Side
from tidemark.semantics.watermarks.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from tidemark.semantics.windows.assigners import Cumulative, DynamicSession, Session, Sliding, Tumbling
from tidemark.semantics.windows.local_windows import windows_of_element
from tidemark.semantics.windows.windows import Window
from tidemark.spark.operators.base import late_metrics
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemark.state.log.progress import EpochProgress

pytestmark = pytest.mark.spark

MINUTE = 60_000
HOUR = 60 * MINUTE
SCHEMA = "v INT, t BIGINT, k STRING, g BIGINT"
Row = tuple[int, int, str, int]


@dataclass(frozen=True)
class Late:
    """A side output of late rows: where it comes from, how far the operator allows lateness, and the windows or the rule of a row."""

    stream: tm.Stream
    uid: str
    counter: str
    lateness: int | None
    windows: Callable[[Row], Sequence[Window]] | None = None
    rule: Callable[[int, int], bool] | None = None
    """Whether an element of a time is late at a watermark, where there are no windows."""

    def expected(self, rows: Sequence[Row], watermark: int) -> Mapping[str, object]:
        """Return what has to be reported of late rows."""
        if self.windows is not None:
            assert self.lateness is not None
            found = expected_facts([self.windows(row) for row in rows], self.lateness, watermark)
            # Joins by window count no windows.
            return found if self.counter == "late" else found | {"most_late": ()}
        assert self.rule is not None
        rules = [_rule(self.rule, row[1], watermark) for row in rows]
        return {"shortfalls": expected_shortfalls(rules, self.lateness), "most_late": ()}


def _rule(rule: Callable[[int, int], bool], time: int, watermark: int) -> LateWith:
    return lambda more: watermark == MAX_WATERMARK or rule(time, watermark - more)


def random_epochs(random: Random, *, epochs: int = 2, rows: int = 200, keys: int = 12) -> list[list[Row]]:
    """Return rows that drift on by hours, one in three behind by seconds to days."""
    found: list[list[Row]] = []
    for number in range(epochs):
        batch: list[Row] = []
        for _ in range(rows):
            behind = random.choice([0, 0, 0, 0, 2_000, 15_000, 100_000, 10 * MINUTE, 2 * HOUR, 9 * HOUR, 60 * HOUR])
            time = number * 3 * HOUR + random.randrange(3 * HOUR) - random.randint(0, behind)
            batch.append((len(found) * rows + len(batch), time, random.choice("abcdefghijklmno"[:keys]), random.randint(1, HOUR)))
        found.append(batch)
    return found


def window_outputs(rows: tm.Stream) -> Iterator[Late]:
    """Yield the late rows of windows of each kind and way to run."""
    tumbling, sliding, gaps = Tumbling(HOUR, 0), Sliding(HOUR, 15 * MINUTE), Sliding(20 * MINUTE, HOUR)
    early = tm.event_time_trigger(early=tm.count_trigger(3))
    keyed = rows.key_by("k")
    local = tm.tumbling("1 day", zone="Europe/Berlin")
    cases: Mapping[str, tuple[Any, Any, int]] = {
        "tumbling": (tumbling, None, 10 * MINUTE),
        "sliding": (sliding, None, 0),
        "gaps": (gaps, None, 1),
        "cumulative": (Cumulative(6 * HOUR, HOUR), None, 0),
        "local": (local, None, 0),
        "triggered": (tumbling, early, 0),
        "session": (Session(10 * MINUTE), None, 5 * MINUTE),
        "gap": (DynamicSession("g"), None, 0),
    }
    for uid, (assigner, trigger, lateness) in cases.items():
        tag = tm.OutputTag(f"late-{uid}")
        windowed = keyed.window(assigner).allowed_lateness(f"{lateness} ms").late_to(tag)
        made = (windowed if trigger is None else windowed.trigger(trigger)).aggregate(n=tm.count()).uid(uid)
        yield Late(made.side_output(tag), uid, "late", lateness, windows=_windows(assigner))
    tag = tm.OutputTag("late-listed")
    listed = keyed.window(sliding).late_to(tag).process(number_of, returns="n BIGINT").uid("listed")
    yield Late(listed.side_output(tag), "listed", "late", 0, windows=_windows(sliding))


def number_of(elements: Sequence[object], ctx: object) -> Iterator[dict[str, object]]:  # noqa: ARG001
    yield {"n": len(elements)}


def _windows(assigner: Any) -> Callable[[Row], Sequence[Window]]:
    return lambda row: windows_of_element(assigner, row[1], row[3], None)


def other_outputs(rows: tm.Stream, others: tm.Stream) -> Iterator[Late]:
    """Yield the late rows of deduplications and joins."""
    for lateness in (0, 20 * MINUTE):
        tag, uid = tm.OutputTag(f"late-once-{lateness}"), f"once-{lateness}"
        once = rows.key_by("k").deduplicate(within="1 hour", allowed_lateness=f"{lateness} ms", late_to=tag).uid(uid)
        rule = Deduplication(HOUR, lateness)
        yield Late(once.side_output(tag), uid, "late", lateness, rule=rule.is_late)
    interval, window = IntervalJoin(-MINUTE, HOUR, "left"), Sliding(20 * MINUTE, HOUR)
    tags: dict[str, dict[Side, tm.OutputTag]] = {
        uid: {side: tm.OutputTag(f"{uid}-{side}") for side in ("left", "right")} for uid in ("interval", "windowed")
    }
    given = {f"{uid}_{side}": tag for uid, sides in tags.items() for side, tag in sides.items()}
    pairs = rows.join(
        others,
        on="k",
        how="left",
        within=("-1 minute", "1 hour"),
        late_left_to=given["interval_left"],
        late_right_to=given["interval_right"],
    ).uid("interval")
    joined = rows.window_join(
        others,
        on="k",
        window=window,
        allowed_lateness="1 minute",
        late_left_to=given["windowed_left"],
        late_right_to=given["windowed_right"],
    ).uid("windowed")
    for side in ("left", "right"):
        yield Late(pairs.side_output(tags["interval"][side]), "interval", f"late_{side}", None, rule=_interval_rule(interval, side))
        yield Late(joined.side_output(tags["windowed"][side]), "windowed", f"late_{side}", MINUTE, windows=_windows(window))


def _interval_rule(rule: IntervalJoin, side: Side) -> Callable[[int, int], bool]:
    return lambda time, watermark: rule.is_late(side, time, watermark)


def run(
    spark: SparkSession,
    folder: Path,
    given: tuple[list[list[Row]], list[list[Row]]],
    *,
    end_of_input: bool = False,
    watermark: int = MIN_WATERMARK,
) -> Iterator[tuple[Late, list[Row], int, EpochProgress]]:
    """Run all operators over two streams; yield, for each side output and epoch, its rows and the watermark that they were judged by.

    ``watermark`` is the one that the run begins with.
    """
    streams = [
        tm.source(name, tm.from_elements(epochs=epochs, schema=SCHEMA), watermarks=tm.bounded_out_of_orderness("1 minute", timestamp="t"))
        for name, epochs in zip(("one", "other"), given, strict=True)
    ]
    other = streams[1].select(w="v", u="t", k="k", h="g")
    late = [*window_outputs(streams[0]), *other_outputs(streams[0], other)]
    names = [f"{each.uid}-{each.counter}" for each in late]
    outputs = {name: tm.memory(each.stream, f"{folder}/{name}") for name, each in zip(names, late, strict=True)}
    before: dict[str, int] = {}
    found: list[tuple[Late, list[Row], int, EpochProgress]] = []

    def after(epoch: EpochProgress) -> None:
        for name, each in zip(names, late, strict=True):
            table = tm.memory_table(f"{folder}/{name}")
            tm.clear_memory(f"{folder}/{name}")
            rows = [] if table is None else [tuple(row.values())[:4] for row in table.select(_columns(table.column_names)).to_pylist()]
            found.append((each, rows, before.get(each.uid, watermark), epoch))
        for uid, operator in epoch.operators.items():
            before[uid] = MIN_WATERMARK if operator.watermark is None else operator.watermark

    job = tm.Job("job", outputs=outputs, store=str(folder / "store"), parallelism=2)
    tm.run(job, spark=spark, clock=ManualClock(NOW), on_epoch=after, end_of_input=end_of_input, handle_signals=False)
    yield from found


def _columns(names: Sequence[str]) -> list[str]:
    return ["w", "u", "k", "h"] if "w" in names else ["v", "t", "k", "g"]


def require_agreement(each: Late, rows: list[Row], watermark: int, epoch: EpochProgress) -> None:
    where = f"{each.uid} {each.counter} in epoch {epoch.epoch}"
    facts = facts_of_progress(epoch.operators[each.uid], each.counter)
    assert facts == each.expected(rows, watermark), where


@pytest.mark.slow
@pytest.mark.parametrize("seed", new_seeds("shortfalls", 1))
def test_they_are_those_of_the_rule_for_each_operator_and_after_the_end_of_input_none_is_kept(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    given = random_epochs(random), random_epochs(random)
    seen: dict[str, set[int]] = {}
    for each, rows, watermark, epoch in run(spark, tmp_path, given, end_of_input=True):
        if epoch.end_of_input:
            assert rows == []
            continue
        require_agreement(each, rows, watermark, epoch)
        shortfalls = epoch.operators[each.uid].shortfalls.get(each.counter)
        seen.setdefault(f"{each.uid} {each.counter}", set()).update(() if shortfalls is None else shortfalls.kept)
    # The rows of each operator are spread over several steps; of whole days, over fewer.
    assert len(seen) == 15
    assert all(len(kept) >= 2 for kept in seen.values()), seen
    assert sum(len(kept) >= 4 for kept in seen.values()) >= 8, seen
    more = [random_epochs(random, epochs=1, rows=10) for _ in given]
    require_that_no_lateness_keeps_a_row(list(run(spark, tmp_path, (given[0] + more[0], given[1] + more[1]), watermark=MAX_WATERMARK)))


def require_that_no_lateness_keeps_a_row(after_the_end: Sequence[tuple[Late, list[Row], int, EpochProgress]]) -> None:
    """Require of ten rows that come after the end of input that no lateness would have kept them."""
    assert len(after_the_end) == 15
    for each, rows, watermark, epoch in after_the_end:
        require_agreement(each, rows, watermark, epoch)
        found = epoch.operators[each.uid].shortfalls[each.counter]
        assert (found.rows, found.reachable, found.greatest) == (10, 0, None)


def test_rows_of_very_many_late_keys_are_counted_by_window_as_far_as_they_are_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_metrics, "MAX_GROUPS", 2)
    late = tm.OutputTag("late")
    epochs = [[(1, "a")], [(50 * HOUR, "a")], [(HOUR, "a"), (HOUR, "b"), (HOUR, "b"), (HOUR, "c"), (1, "c"), (1, "c"), (1, "c")]]
    rows = tm.source(
        "rows", tm.from_elements(epochs=epochs, schema="t BIGINT, k STRING"), watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="t")
    )
    panes = rows.key_by("k").window(tm.tumbling("1 hour")).late_to(late).aggregate(n=tm.count()).uid("w")
    outputs = {"panes": tm.memory(panes, f"{tmp_path}/panes"), "late": tm.memory(panes.side_output(late), f"{tmp_path}/late")}
    result = tm.run(tm.Job("job", outputs=outputs, store=str(tmp_path)), spark=spark, clock=ManualClock(NOW), handle_signals=False)
    found = result.epochs[-1].operators["w"]
    # Of the four groups of late rows those with the most rows are read; the shortfalls are of all rows.
    assert [(window.start, window.rows) for window in found.most_late] == [(0, 3), (HOUR, 2)]
    assert (found.shortfalls["late"].rows, found.shortfalls["late"].reachable) == (7, 7)
