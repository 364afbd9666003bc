"""Window joins by the engine against the element-by-element reference: all kinds of joins and windows, any cut, any parallelism."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

import tidemark as tm
from tests.engine.lab import MINUTE, NOW, Lab, elements, run_on
from tests.joins.programs import BOUND, Program, random_program, streams
from tests.joins.programs import NOW as CLOCK
from tests.seeds import PROFILE, only_long, some
from tidemark.semantics.joins.interval import HOWS, How, Side
from tidemark.semantics.joins.window import AlignedWindows, WindowJoin, WindowJoinByElement
from tidemark.spark.columns.state_files import read_files
from tidemark.state.log.progress import EpochProgress
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOWS: list[AlignedWindows] = [
    tm.tumbling("20 ms"),
    tm.tumbling("35 ms", offset="-4 ms"),
    tm.sliding("30 ms", "10 ms"),
    tm.sliding("25 ms", "15 ms", offset="3 ms"),
    tm.sliding("10 ms", "25 ms"),
    tm.cumulative("60 ms", "20 ms", offset="5 ms"),
]
EPOCHS = 4 if PROFILE == "long" else 3
ROWS = 60 if PROFILE == "long" else 80
"""As many elements in fewer epochs."""

Result = tuple[Any, ...]
"""The values of both sides, None where there is no partner; the window's bounds; timing and index of the pane."""
Epoch = tuple[Counter[Result], Counter[int], Counter[int], int]
"""Results, late values of both sides, and the number of accepted elements."""


def rules_of(random: Random) -> list[WindowJoin]:
    """Return a join of each kind, each with windows and lateness of its own."""
    windows = random.sample(WINDOWS, len(HOWS))
    return [WindowJoin(window, how, random.choice([0, 7, 30])) for how, window in zip(HOWS, windows, strict=True)]


def expected(program: Program, rule: WindowJoin) -> list[Epoch]:
    """Return what the contract says, element by element; the end of input is an epoch of its own."""
    reference = WindowJoinByElement[int](rule)
    newest: dict[Side, int] = {}
    found: list[Epoch] = []
    epochs = max(len(program.left), len(program.right))
    sides: list[tuple[Side, Any]] = [("left", program.left), ("right", program.right)]
    for number in range(epochs + 1):
        late: dict[Side, Counter[int]] = {"left": Counter(), "right": Counter()}
        accepted = 0
        for side, given in sides:
            for time, key, value in given[number] if number < len(given) else ():
                newest[side] = max(time, newest.get(side, time))
                if reference.process(side, (key,), time, value):
                    accepted += 1
                else:
                    late[side][value] += 1
        watermark = 2**62 if number == epochs else min(newest.values()) - BOUND - 1 if len(newest) == 2 else -(2**62)
        results = Counter(
            (each.left, each.right, each.window.start, each.window.end, each.timing, each.index) for each in reference.end_epoch(watermark)
        )
        found.append((results, late["left"], late["right"], accepted))
    assert reference.kept() == []
    return found


def run_program(spark: SparkSession, folder: Path, program: Program, rules: Sequence[WindowJoin], parallelism: int) -> list[list[Epoch]]:
    """Run joins of one program by the engine, all in one job; return what each epoch of each did."""
    left, right = streams(program)
    outputs: dict[str, tm.Output] = {}
    for number, rule in enumerate(rules):
        tags = [tm.OutputTag(f"{side}-late-{number}") for side in ("left", "right")]
        joined = left.window_join(
            right,
            on="k",
            window=rule.assigner,
            how=rule.how,
            allowed_lateness=f"{rule.allowed_lateness_ms} ms",
            late_left_to=tags[0],
            late_right_to=tags[1],
        ).uid(f"join-{number}")
        sides = {"left": joined.side_output(tags[0]), "right": joined.side_output(tags[1])}
        outputs |= {f"{name}-{number}": tm.memory(each, f"{folder}/{name}-{number}") for name, each in {"results": joined, **sides}.items()}
    seen: list[list[Epoch]] = [[] for _ in rules]

    def after(epoch: EpochProgress) -> None:
        for number in range(len(rules)):
            progress = epoch.operators[f"join-{number}"]
            late = [Counter(row[name] for row in taken(f"{folder}/{side}-{number}")) for side, name in (("left", "v"), ("right", "w"))]
            assert progress.rows_in == progress.rows_accepted + sum(each.total() for each in late)
            assert [progress.counters.get(f"late_{side}", 0) for side in ("left", "right")] == [each.total() for each in late]
            results = Counter(map(result, taken(f"{folder}/results-{number}")))
            seen[number].append((results, late[0], late[1], progress.rows_accepted))

    job = tm.Job("program", outputs=outputs, store=str(folder / "store"), parallelism=parallelism)
    tm.run(job, spark=spark, clock=ManualClock(CLOCK), on_epoch=after, end_of_input=True, handle_signals=False)
    return seen


def result(row: dict[str, Any]) -> Result:
    return row["v"], row.get("w"), ms(row["window_start"]), ms(row["window_end"]), row["pane_timing"], row["pane_index"]


def ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def taken(name: str) -> list[dict[str, Any]]:
    table = tm.memory_table(name)
    rows = [] if table is None else table.to_pylist()
    tm.clear_memory(name)
    return rows


@pytest.mark.spark
@pytest.mark.parametrize(("seed", "parallelism"), [pytest.param(1, 2, marks=only_long), pytest.param(2, 1, marks=only_long), (4, 7)])
def test_random_programs(spark: SparkSession, tmp_path: Path, seed: int, parallelism: int) -> None:
    random = Random(seed)
    program, rules = random_program(random, epochs=EPOCHS, rows=ROWS), some(rules_of(random), 2, first=1)
    found = run_program(spark, tmp_path, program, rules, parallelism)
    for rule, seen in zip(rules, found, strict=True):
        assert seen == expected(program, rule), rule
    panes = Counter(row[4:] for seen in found for epoch in seen for row in epoch[0])
    assert panes["ON_TIME", 0] > 200
    assert panes["LATE", 1] > 20
    assert panes["LATE", 0] > 0


@pytest.mark.spark
def test_any_cut_and_many_rows(spark: SparkSession, tmp_path: Path) -> None:
    """As above, with other epochs, the plans of many rows, and merged files."""
    random = Random(3)
    program, rules = random_program(random, epochs=EPOCHS, rows=ROWS).recut(random), some(rules_of(random), 2)
    with (
        mock.patch("tidemark.spark.operators.base.tables.FEW_ROWS", -1),
        mock.patch("tidemark.spark.operators.interval_join.state.plan_compaction", _merge_all),
    ):
        found = run_program(spark, tmp_path, program, rules, 2)
    for rule, seen in zip(rules, found, strict=True):
        assert seen == expected(program, rule), rule


def _merge_all(files: object, **_: object) -> object:
    from tidemark.state.gc.compaction import plan_compaction

    return plan_compaction(files, min_files=1)  # type: ignore[arg-type]


def test_the_last_panes_are_what_a_batch_join_gives() -> None:
    """Of the reference itself: each window's last pane is the join of all that the window accepted, whatever the cut."""
    for seed in range(30):
        random = Random(seed)
        program = random_program(random, rows=30, keys=6, disorder=0)
        for rule in (WindowJoin(random.choice(WINDOWS), how, 100) for how in HOWS):
            rows = [row for epoch in expected(program.recut(random), rule) for row in epoch[0].elements()]
            keys = [{value: key for epoch in side for _, key, value in epoch} for side in (program.left, program.right)]
            groups = {(row, keys[0][row[0]] if row[0] is not None else keys[1][row[1]]) for row in rows}
            last: dict[tuple[Any, ...], int] = {}
            for row, key in groups:
                last[key, row[3]] = max(row[5], last.get((key, row[3]), 0))
            shown = Counter(row[:4] for row, key in groups if row[5] == last[key, row[3]])
            if rule.how == "anti":
                # A pane without rows may have come after those that are shown.
                assert set(batch(program, rule)) <= set(shown)
            else:
                assert shown == batch(program, rule)


def batch(program: Program, rule: WindowJoin) -> Counter[Result]:
    """Return the join of all elements of each window."""
    left, right = (
        [(w, key, value) for epoch in side for t, key, value in epoch for w in rule.assigner.assign(t)]
        for side in (program.left, program.right)
    )
    pairs = [(one, other) for one in left for other in right if one[:2] == other[:2] and one[1] is not None]
    if rule.how == "semi":
        return Counter({(one[2], None, one[0].start, one[0].end): 1 for one, _ in pairs})
    found: Counter[Result] = Counter((one[2], other[2], one[0].start, one[0].end) for one, other in pairs if rule.how != "anti")
    met = [{side[i] for side in pairs} for i in (0, 1)]
    if rule.how in ("left", "full", "anti"):
        found.update((one[2], None, one[0].start, one[0].end) for one in left if one not in met[0])
    if rule.how in ("right", "full"):
        found.update((None, one[2], one[0].start, one[0].end) for one in right if one not in met[1])
    return found


@pytest.mark.spark
def test_windows_fire_in_epochs_without_input_and_read_no_state_before(spark: SparkSession, tmp_path: Path) -> None:
    silent = tm.bounded_out_of_orderness("0 ms", timestamp="t", idle_after="5 minutes", advance_when_idle=True)
    left = elements([(NOW, 1), (NOW + MINUTE, 2)], schema="t BIGINT, k INT", name="left", watermarks=silent)
    right = elements([(NOW + 2 * MINUTE, 2)], schema="t BIGINT, k INT", name="right", watermarks=silent).select("k", u="t")
    window = tm.tumbling("10 minutes", offset=f"{NOW % (10 * MINUTE)} ms")
    joined = left.window_join(right, on="k", window=window, how="left").uid("j")
    with mock.patch("tidemark.spark.operators.base.tables.read_files", wraps=read_files) as read:
        seen = run_on(joined, spark, tmp_path, waits=[5 * MINUTE, 5 * MINUTE + 1])
    assert [epoch.operators["j"].watermark for epoch in seen] == [NOW + MINUTE - 1, NOW + 5 * MINUTE - 1, NOW + 10 * MINUTE]
    assert [epoch.rows_in for epoch in seen] == [3, 0, 0]
    assert [epoch.rows_out for epoch in seen] == [0, 0, 2]
    assert read.call_count == 2, "the elements of both sides, in the epoch in which the window fires"
    table = tm.memory_table(f"{tmp_path}/job")
    assert table is not None
    assert sorted((row["k"], row["u"]) for row in table.to_pylist()) == [(1, None), (2, NOW + 2 * MINUTE)]


@pytest.mark.spark
def test_keys_columns_and_what_follows(spark: SparkSession, tmp_path: Path) -> None:
    """Keys of any kind, of outer rows too; joins may follow joins, and windows; what follows has no late elements."""
    given = elements(
        [(1, "A", 1.5), (2, "b", float("nan")), (3, None, 1.5), (4, "c", -0.0)], [(MINUTE, "z", 0.5)], schema="t BIGINT, s STRING, d DOUBLE"
    )
    other = elements(
        [(1, "a", 1.5, "one"), (2, "B", float("nan"), "two"), (3, None, 1.5, "three"), (4, "C", 0.0, "four")],
        [(MINUTE, "y", 0.5, "five")],
        schema="u BIGINT, c STRING, d DOUBLE, text STRING",
        name="other",
        watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="u"),
    )
    joined = given.window_join(other, on={"lower(s)": "lower(c)", "d": "d"}, window=tm.tumbling("10 ms"), how="full").uid("j")
    counted = joined.window_all(tm.tumbling("1 minute")).aggregate(n=tm.count()).uid("w")
    again = joined.select("d", "text").window_join(given.select("d", "s"), on="d", window=tm.tumbling("10 ms"), how="anti").uid("again")
    ran = Lab(spark, tmp_path).run({"j": joined, "w": counted, "again": again})
    assert tuple(ran.rows["j"][0]) == ("t", "s", "d", "u", "c", "text", "window_start", "window_end", "pane_timing", "pane_index")
    pairs = sorted((row["text"] or "", row["s"] or "", row["d"] == row["d"]) for row in ran.rows["j"])
    assert pairs == [
        ("", "", True),
        ("", "z", True),
        ("five", "", True),
        ("four", "c", True),
        ("one", "A", True),
        ("three", "", True),
        ("two", "b", False),
    ]
    assert [row["n"] for row in ran.rows["w"]] == [5, 2]
    assert ran.rows["again"] == []
    assert all(epoch.rows_late == 0 for epoch in ran.epochs)


@pytest.mark.spark
def test_a_side_that_never_has_a_row_and_the_size_of_state(spark: SparkSession, tmp_path: Path) -> None:
    def joins(hours: int, hows: Sequence[How]) -> dict[str, tm.Stream]:
        epochs = [[(MINUTE * n, n % 7) for n in range(at, at + 60)] for at in range(0, hours * 60, 60)]
        left = elements(*epochs, schema="t BIGINT, k INT", name="left")
        right = elements(*[[(MINUTE * at, 99)] for at in range(59, hours * 60, 60)], schema="t BIGINT, k INT", name="right")
        never = right.filter("k < 0").select("k", u="t")
        window = tm.sliding("30 minutes", "10 minutes")
        return {how: left.window_join(never, on="k", window=window, how=how).uid(how) for how in hows}

    # State is of the same rows whatever is joined: only one join runs for so long that it would grow.
    long = Lab(spark, tmp_path).run(joins(8, ["full"]), job="long")
    assert len(long.rows["full"]) == 3 * 8 * 60
    assert max(epoch.operators["full"].state_rows for epoch in long.epochs) <= 2 * 3 * 60
    assert max(epoch.operators["full"].state_files for epoch in long.epochs) <= 12
    ran = Lab(spark, tmp_path).run(joins(1, HOWS))
    assert {how: len(ran.rows[how]) for how in HOWS} == {"inner": 0, "left": 180, "right": 0, "full": 180, "semi": 0, "anti": 180}


def test_mistakes() -> None:
    def read(name: str, columns: str) -> tm.Stream:
        given = tm.from_elements(epochs=[], schema=columns)
        return tm.source(name, given, watermarks=tm.bounded_out_of_orderness("1 minute", timestamp="t"))

    rides = read("rides", "t TIMESTAMP, ride_id BIGINT, zone STRING")
    fares = read("fares", "t TIMESTAMP, ride_id BIGINT, fare DOUBLE").select("ride_id", "fare")
    late = tm.OutputTag("late")
    hour = tm.tumbling("1 hour")
    refused: list[tuple[dict[str, Any], str, str]] = [
        ({"window": tm.session("5 minutes")}, "sessions of two streams have no common bounds", "within=('-30 minutes', '30 minutes')"),
        ({"window": tm.count_window(5)}, "takes windows with fixed bounds", "tm.tumbling('10 minutes')"),
        ({"window": "1 hour"}, "window_join(window='1 hour') takes windows with fixed bounds", "tm.sliding("),
        ({"window": tm.tumbling("1 hour", time="processing")}, "windows of processing time", "leave out time='processing'"),
        ({"how": "outer"}, "window_join(how='outer') is none of inner, left", "write how='full'"),
        ({"on": "ride"}, "unknown column 'ride'", "write 'ride_id'"),
        ({"allowed_lateness": "-1 minute"}, "allowed_lateness", "0"),
        ({"late_left_to": late, "late_right_to": late}, "window_join uses the tag 'late' for the late rows of both", "its own tag"),
        ({"late_left_to": "late"}, "late_left_to is 'late', not an output tag", "tm.OutputTag('late')"),
    ]
    for arguments, what, fix in refused:
        with pytest.raises(tm.TidemarkError) as error:
            rides.window_join(fares, **{"on": "ride_id", "window": hour, **arguments})
        assert what in str(error.value)
        assert fix in str(error.value)
        assert "test_window_join.py" in str(error.value)
    with pytest.raises(tm.TidemarkError, match=r"both sides have columns 't', 'zone'"):
        rides.window_join(rides, on="ride_id", window=hour)
    with pytest.raises(tm.TidemarkError, match=r"window_join is given .*, not a stream"):
        rides.window_join(fares.key_by("ride_id"), on="ride_id", window=hour)  # type: ignore[arg-type]
    with pytest.raises(tm.TidemarkError, match=r"join changelogs without windows"):
        rides.window_join(fares.as_changelog(key=["ride_id"]), on="ride_id", window=hour)
    counts = rides.key_by("ride_id").window(hour).aggregate(n=tm.count()).uid("n")
    with pytest.raises(tm.TidemarkError, match=r"have 'window_start', .*, and it adds .*own_window_start='window_start'"):
        counts.window_join(fares, on="ride_id", window=hour)


def test_columns_their_origins_and_changes() -> None:
    from tidemark.graph.checks.column_lineage import lineage
    from tidemark.graph.checks.schema_inference import schema_of
    from tidemark.graph.model.nodes import StatefulNode
    from tidemark.graph.operators.registry import definition_changes, encode, kinds

    rides = tm.source(
        "rides",
        tm.from_elements(epochs=[], schema="t TIMESTAMP, k BIGINT, v INT"),
        watermarks=tm.bounded_out_of_orderness("1 minute", timestamp="t"),
    )
    other = rides.select("k", w="v")

    def definition(how: How = "inner", size: str = "1 hour", lateness: str = "0 s", on: Any = "k") -> dict[str, object]:
        node = rides.window_join(other, on=on, window=tm.tumbling(size), how=how, allowed_lateness=lateness).node
        assert isinstance(node, StatefulNode)
        encoded = encode(node)
        assert encode(kinds()["window_join"].decode(encoded, "j")) == encoded
        return encoded

    def effects(old: dict[str, object], new: dict[str, object]) -> list[tuple[str, str]]:
        return [(change.about, change.effect) for change in definition_changes(old, new)]

    joined = rides.window_join(other, on="k", window=tm.tumbling("1 hour"))
    assert str(schema_of(joined.node)) == (
        "t TIMESTAMP, k BIGINT, v INT, w INT, window_start TIMESTAMP, window_end TIMESTAMP, pane_timing STRING, pane_index INT"
    )
    assert lineage(joined.node, "w") == {("rides", "v")}
    assert lineage(joined.node, "window_end") == {("rides", "t")}
    assert effects(definition(), definition(lateness="1 hour")) == [("lateness", "none")]
    assert effects(definition(), definition(size="2 hours")) == [("windows", "other")]
    assert effects(definition(), definition("semi")) == [("how", "none")]
    assert effects(definition("full"), definition("left")) == [("how", "none")]
    assert effects(definition(), definition("anti")) == [("how", "other")]
    assert effects(definition(), definition(on={"k": "k", "v": "w"})) == [("key", "other")]
