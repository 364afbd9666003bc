"""Session windows of the engine do in every epoch what the element-by-element reference does, whichever way they are carried out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.engine.lab import Lab, Ran, elements
from tests.engine.session_cases import random_case, require_same, run_engine, run_expected
from tests.few_rows import compiling
from tests.milliseconds import ms
from tests.seeds import PROFILE, new_seeds, only_long, some, times
from tidemark.errors import UserCodeError
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.windows.assigners import DynamicSession, Session
from tidemark.spark.operators.session import session_deferral, session_epoch, session_runtime
from tidemark.state.gc.compaction import plan_compaction
from tidemark.state.log.records import OperatorState, StateFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def write_touched_only(patch: pytest.MonkeyPatch) -> None:
    """Let every epoch with older state look for the sessions that it touches."""
    patch.setattr(session_epoch, "FEW_ROWS", -1)
    patch.setattr(session_epoch, "FEW_TOUCHED", 1e-4)
    patch.setattr(session_epoch, "MANY_OUT_OF_DATE", 10**9)


def put_off(patch: pytest.MonkeyPatch) -> None:
    """Let every epoch with older state put its merging off, if only until the next session is due."""
    patch.setattr(session_deferral, "MANY_OPEN", -1)
    patch.setattr(session_deferral, "FEW_TOUCHED", 0)
    patch.setattr(session_deferral, "EPOCHS_AHEAD", 0)
    patch.setattr(session_deferral, "EPOCHS_OF_DOUBT", 1)
    patch.setattr(session_deferral, "MAX_EPOCHS", 4)


def merge_files_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(session_epoch, "plan_compaction", partial(plan_compaction, min_files=1))


def take_rows_one_by_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(session_epoch, "MANY_IN_BUCKET", 10**9)


WAYS = {
    "all written": (),
    "touched and merged": (write_touched_only, merge_files_early, take_rows_one_by_one),
}
if PROFILE == "long":
    WAYS |= {"row by row": (take_rows_one_by_one,), "touched only": (write_touched_only,)}


def see_agreement(spark: SparkSession, folder: Path, seeds: Iterable[int], *, calm: bool = False, some_from: int | None = None) -> None:
    """Run the cases of these seeds through engine and reference; calm ones without lateness.

    Of all operators every second one is seen, from one on, outside of the long profile.
    """
    for seed in seeds:
        try:
            case = random_case(seed, calm=calm)
            if calm:
                case = replace(case, operators=tuple(operator for operator in case.operators if not operator.lateness))
            if some_from is not None:
                case = replace(case, operators=tuple(some(case.operators, 2, first=some_from)))
            require_same(run_engine(case, spark, folder / str(seed)), run_expected(case))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_sessions_agree_with_the_reference(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    for change in WAYS[way]:
        change(monkeypatch)
    see_agreement(spark, tmp_path, seeds_beside(1, few=bool(WAYS[way])), some_from=0 if WAYS[way] else 1)


@pytest.mark.slow
@pytest.mark.parametrize("touched", [pytest.param(False, marks=only_long), True])
def test_sessions_that_are_put_off_agree_with_the_reference(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, touched: bool
) -> None:
    for change in (put_off, write_touched_only, merge_files_early) if touched else (put_off,):
        change(monkeypatch)
    called: Counter[str] = Counter()
    for name in ("_defer", "_merge_deferred"):
        method = getattr(session_deferral.DeferringSessionEpoch, name)
        monkeypatch.setattr(session_deferral.DeferringSessionEpoch, name, noting(called, name, method))
    see_agreement(spark, tmp_path, seeds_beside(1), calm=True)
    assert called["_defer"] >= 4
    assert called["_merge_deferred"] >= 2


def noting(called: Counter[str], name: str, method: Callable[..., object]) -> Callable[..., object]:
    """Return a method that counts calls which did what they were asked for."""

    def call(*args: object) -> object:
        found = method(*args)
        called[name] += found is not False
        return found

    return call


def seeds_beside(known: int, *, few: bool = False) -> list[int]:
    """Return a known seed and some others, or only these."""
    others = new_seeds(f"sessions {known} {few}", times(1))
    return others if few else [known, *others] if PROFILE != "ci" else [known]


@pytest.mark.slow
def test_compiled_sessions_agree_with_the_reference(spark: SparkSession, tmp_path: Path) -> None:
    # One whose aggregates depend on order, and one whose do not.
    case = random_case(2, most=3 if PROFILE == "long" else 2)
    assert {operator.ordered for operator in case.operators} == {False, True}
    require_same(run_engine(case, compiling(spark), tmp_path), run_expected(case))


@pytest.mark.slow
def test_a_run_that_stops_and_goes_on_elsewhere_does_the_same(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_touched_only(monkeypatch)
    case = random_case(4, most=3)
    found = run_engine(case, spark, tmp_path, epochs=2, end_of_input=False)
    found += run_engine(case, spark, tmp_path, epochs=3, end_of_input=False, first=len(found), parallelism=3)
    monkeypatch.undo()
    found += run_engine(case, spark, tmp_path, first=len(found), parallelism=1)
    require_same(found, run_expected(case))


def test_sessions_of_processing_time(spark: SparkSession, tmp_path: Path) -> None:
    case = random_case(3, keys=8, rows=60, domain="processing")
    require_same(run_engine(case, spark, tmp_path), run_expected(case))


SCHEMA = "k STRING, t BIGINT, g BIGINT"


Given = Sequence[Sequence[tuple[object, ...]]]


def sessions_of(epochs: Given, assigner: Session | DynamicSession, *, name: str = "sessions", lateness: int = 0) -> tm.Stream:
    """Return the panes over elements of a source of their own."""
    windows = elements(*epochs, schema=SCHEMA, name=name).key_by("k").window(assigner).allowed_lateness(ms(lateness))
    return windows.aggregate(n=tm.count()).uid(name)


def pane_of(row: dict[str, Any]) -> tuple[object, ...]:
    """Return a pane: key, bounds, timing, index, replaced sessions, number of elements."""

    def millis(moment: datetime) -> int:
        return (moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)

    return (
        row["k"],
        millis(row["window_start"]),
        millis(row["window_end"]),
        row["pane_timing"],
        row["pane_index"],
        tuple(tuple(map(millis, each.values())) for each in row["replaces"]),
        row["n"],
    )


TOUCHING = [("c", 0, 0), ("c", 10, 0), ("b", 0, 0), ("b", 11, 0), (None, 5, 0)]

JOINED: Given = [
    [("a", 0, 0), ("a", 30, 0), ("z", 60, 0), *TOUCHING],
    # Joins nothing, but makes the second one longer.
    [("a", 35, 0)],
    [("a", 8, 0), ("a", 15, 0), ("a", 22, 0)],
    [("z", 200, 0), ("a", 25, 0)],
    [("a", 26, 0)],
]

GROWING: Given = [[("a", 0, 0), ("z", 12, 0)], [("a", 9, 0)], [("z", 18, 0)], [("z", 19, 0)]]

GAPS = {"small": "CAST(g AS SMALLINT)", "computed": "make_dt_interval(0, 0, 0, g / 1000)"}
if PROFILE == "long":
    GAPS |= {"number": "g", "literal": "if(g > 5, INTERVAL '0.010' SECOND, INTERVAL '0.005' SECOND)"}
"""Of numbers and of intervals; ``random_case`` has numbers as they are."""

CUTS: Sequence[Sequence[int]] = ([], [60], [10, 11, 40, 90])


def with_gaps() -> dict[str, tm.Stream]:
    """Return sessions whose gaps are columns."""
    keyed = elements([("a", 0, 5), ("a", 5, 10), ("a", 14, 5), ("a", 20, 5), (None, 20, 10)], schema=SCHEMA, name="gaps").key_by("k")
    return {name: keyed.window(DynamicSession(gap)).aggregate(n=tm.count()).uid(name) for name, gap in GAPS.items()}


def of_all() -> dict[str, tm.Stream]:
    """Return sessions of all rows of a stream, and the late ones."""
    late, rows = tm.OutputTag("late"), elements([("a", 0, 5), ("b", 10, 5)], [("a", 21, 5), ("b", 3, 5)], schema=SCHEMA, name="all")
    panes = rows.window_all(Session(10)).late_to(late).aggregate(n=tm.count()).uid("all")
    return {"all": panes, "late": panes.side_output(late)}


def cut_up() -> dict[str, tm.Stream]:
    """Return sessions of the same rows, which come in other epochs."""
    random = Random(7)
    rows: list[tuple[object, ...]] = [(random.choice(["a", "b", None]), number * 3 + random.randint(-20, 20), 0) for number in range(120)]
    streams = {}
    for number, cuts in enumerate(CUTS):
        epochs = [rows[first:last] for first, last in pairwise([0, *cuts, len(rows)])]
        streams[f"cut{number}"] = sessions_of(epochs, Session(9), name=f"cut{number}", lateness=40)
    return streams


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """What one job does with streams of their own, at each of which a test looks."""
    streams = {
        "joined": sessions_of(JOINED, Session(10), name="joined", lateness=100),
        "growing": sessions_of(GROWING, Session(10), name="growing", lateness=5),
    }
    return Lab(spark, tmp_path_factory.mktemp("sessions")).run(streams | with_gaps() | of_all() | cut_up())


def panes_of(ran: Ran, output: str) -> list[tuple[object, ...]]:
    """Return the panes of an output, in the order they came."""
    return list(map(pane_of, ran.rows[output]))


def test_sessions_that_touch_are_one(ran: Ran) -> None:
    assert sorted((pane for pane in panes_of(ran, "joined") if pane[0] not in {"a", "z"}), key=str) == [
        ("b", 0, 10, "ON_TIME", 0, (), 1),
        ("b", 11, 21, "ON_TIME", 0, (), 1),
        ("c", 0, 20, "ON_TIME", 0, (), 2),
        (None, 5, 15, "ON_TIME", 0, (), 1),
    ]


def test_a_late_element_joins_sessions_whose_results_are_out(ran: Ran) -> None:
    found = [pane for pane in panes_of(ran, "joined") if pane[0] == "a"]
    assert sorted(found, key=lambda pane: (pane[4], pane[1])) == [
        ("a", 0, 10, "ON_TIME", 0, (), 1),
        ("a", 30, 40, "ON_TIME", 0, (), 1),
        ("a", 30, 45, "LATE", 1, ((30, 40),), 2),
        ("a", 0, 45, "LATE", 2, ((0, 10), (30, 45)), 6),
        ("a", 0, 45, "LATE", 3, (), 7),
    ]


def test_a_session_that_grows_past_the_watermark_again_waits_for_its_new_end(ran: Ran) -> None:
    found = [pane for pane in panes_of(ran, "growing") if pane[0] == "a"]
    assert found == [("a", 0, 10, "ON_TIME", 0, (), 1), ("a", 0, 19, "ON_TIME", 1, ((0, 10),), 2)]


def test_gaps_from_a_column(ran: Ran) -> None:
    for name in GAPS:
        assert sorted(panes_of(ran, name), key=str) == [
            ("a", 0, 19, "ON_TIME", 0, (), 3),
            ("a", 20, 25, "ON_TIME", 0, (), 1),
            (None, 20, 30, "ON_TIME", 0, (), 1),
        ], name


def test_all_rows_in_one_stream_of_sessions(ran: Ran) -> None:
    assert ran.of("all", "n") == [1, 3]
    assert ran.of("late", "k") == []


def test_what_a_session_shows_at_last_does_not_depend_on_the_cuts(ran: Ran) -> None:
    shown: list[dict[tuple[object, object, object], object]] = []
    for number in range(len(CUTS)):
        last_panes: dict[tuple[object, object, object], object] = {}
        for key, start, end, _, _, replaced, n in panes_of(ran, f"cut{number}"):
            assert isinstance(replaced, tuple)
            for gone in replaced:
                del last_panes[key, *gone]
            last_panes[key, start, end] = n
        shown.append(last_panes)
    assert shown[0] == shown[1] == shown[2]


@pytest.mark.parametrize("gap", [0, pytest.param(-1, marks=only_long), None, 2**53 + 1])
def test_an_element_without_a_gap_ends_the_epoch(spark: SparkSession, tmp_path: Path, gap: int | None) -> None:
    with pytest.raises(UserCodeError, match=f"the gap g of a session is {'null' if gap is None else gap}, not a positive number"):
        Lab(spark, tmp_path).run({"panes": sessions_of([[("a", 0, 5), ("a", 1, gap)]], DynamicSession("g"))})


def test_a_gap_of_months_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UserCodeError, match="has type interval year to month, neither"):
        Lab(spark, tmp_path).run({"panes": sessions_of([[("a", 0, 5)]], DynamicSession("make_ym_interval(0, g)"))})


def test_an_epoch_that_touches_few_sessions_reads_and_writes_those(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_epoch, "FEW_ROWS", 50)
    many: list[tuple[object, ...]] = [(f"k{number}", 0, 0) for number in range(400)]
    epochs: list[list[tuple[object, ...]]] = [many, [("k1", 1, 0), (None, 1, 0)], [("k1", 2, 0), (None, 2, 0), ("k2", 40, 0)]]
    stream = elements(*epochs, schema=SCHEMA).key_by("k").window(Session(1000)).aggregate(n=tm.count()).uid("sessions")
    ran = Lab(spark, tmp_path).run({"panes": stream})
    assert [epoch.operators["sessions"].state_rows for epoch in ran.epochs] == [400, 401, 404, 0]
    assert max(epoch.spark_jobs for epoch in ran.epochs) <= 3
    assert ran.of("panes", "n") == [1] * 398 + [2, 2, 3]
    assert [epoch.operators["sessions"].panes_on_time for epoch in ran.epochs] == [0, 0, 0, 401]


def step_with(gap: int = 10) -> session_runtime.SessionRuntime:
    stream = elements(schema=SCHEMA).key_by("k").window(Session(gap)).aggregate(n=tm.count()).uid("sessions")
    node = stream.node
    assert isinstance(node, WindowNode)
    return session_runtime.SessionRuntime(node)


@pytest.mark.parametrize(
    ("files", "counters", "due"),
    [
        ([], {}, None),
        ([(120, 150)], {}, 119),
        ([(120, 150), (110, 300)], {}, 109),
        # All that these hold has fired.
        ([(80, 101)], {}, None),
        # Some of it may be due any moment, until an epoch without input has looked.
        ([(80, 150)], {}, 101),
        ([(80, 150)], {"next_end": 140}, 139),
        ([(80, 150), (120, 130)], {"next_end": 140}, 119),
        ([(80, 150)], {"next_end": 90}, 101),
    ],
)
def test_when_the_next_session_is_due(files: list[tuple[int, int]], counters: dict[str, int], due: int | None) -> None:
    listed = tuple(StateFile(f"{number}.parquet", 1, 1, low, high, 0) for number, (low, high) in enumerate(files))
    assert step_with().next_timer(OperatorState({}, listed, watermark=100, counters=counters)) == due
