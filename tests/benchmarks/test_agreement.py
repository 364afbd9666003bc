"""The check of results must find each kind of wrong result; a check that passes everything would make the figures worthless."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.checks import aligned_windows, session_windows
from benchmarks.checks.verdicts import DisagreementError, Flags
from benchmarks.data.fares import FIRST_TIME_MS, FaresFile, FaresPlan, Longs
from benchmarks.harness.shapes import Shape
from tests.benchmarks.worlds import World, assigner_of, make_world
from tidemark.semantics.windows.windows import Window

TUMBLING = Shape("tumbling", "1 hour")
SLIDING = Shape("sliding", "6 hours", "2 hours")
SESSION = Shape("session", "5 minutes")
SHAPES = [TUMBLING, SLIDING, SESSION]

PLANS = {
    "tumbling": FaresPlan(rows=8_000, drivers=20, files=8),
    "sliding": FaresPlan(rows=8_000, drivers=20, files=8, late_share=0.0004),
    "session": FaresPlan(rows=8_000, drivers=20, files=8, breaks=0.2),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few drivers and sessions at a time, so that the comparison has more than one block."""
    monkeypatch.setattr(aligned_windows, "_BLOCK_PLACES", 150)
    monkeypatch.setattr(session_windows, "_BLOCK", 100)


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, World]:
    return {shape.kind: make_world(PLANS[shape.kind], shape, tmp_path_factory.mktemp(shape.kind)) for shape in SHAPES}


@pytest.fixture(params=[shape.kind for shape in SHAPES])
def world(request: pytest.FixtureRequest, worlds: dict[str, World], tmp_path: Path) -> World:
    return replace(worlds[request.param], folder=tmp_path / "out")


@pytest.fixture
def sliding(worlds: dict[str, World], tmp_path: Path) -> World:
    return replace(worlds["sliding"], folder=tmp_path / "out")


@pytest.fixture
def session(worlds: dict[str, World], tmp_path: Path) -> World:
    return replace(worlds["session"], folder=tmp_path / "out")


def test_right_results_pass(world: World) -> None:
    verdict = world.truth.judge("some", world.write(world.results))
    assert verdict.late_kept == verdict.late_lost == 0
    assert len(world.results) * 0.75 < verdict.compared < len(world.results)


def test_results_of_an_engine_that_takes_no_late_row_pass(world: World) -> None:
    lost = world.truth.judge("stock", world.write(world.without(*world.late))).late_lost
    windows = 1 if world.shape.kind == "session" else len(assigner_of(world.shape).assign(0))
    assert 0 < lost <= windows * len(world.late)


def test_late_rows_that_are_kept_are_counted(world: World) -> None:
    kept = world.truth.judge("some", world.write(world.without(*world.late), late=world.late))
    assert (kept.late_kept, kept.late_lost) == (len(world.late), 0)


def test_one_late_row_is_kept_or_lost(world: World, tmp_path: Path) -> None:
    row = world.late[0]
    kept = world.truth.judge("some", world.write(world.without(row), late=[row]))
    assert (kept.late_kept, kept.late_lost) == (1, 0)
    world.folder = tmp_path / "stock"
    lost = world.truth.judge("some", world.write(world.without(row)))
    assert lost.late_kept == 0
    assert lost.late_lost == (3 if world.shape.kind == "sliding" else 1)


@pytest.mark.parametrize(
    ("change", "says"),
    [((1, 0.0), "another count"), ((-1, 0.0), "another count"), ((0, 1e-5), "another sum"), ((0, -1e-5), "another sum")],
)
def test_a_wrong_result_fails(world: World, change: tuple[int, float], says: str) -> None:
    key = world.untouched()
    count, total = world.results[key]
    with pytest.raises(DisagreementError, match=says):
        world.truth.judge("some", world.write(world.results | {key: (count + change[0], total + change[1])}))


def test_a_missing_result_fails(world: World) -> None:
    key = world.untouched()
    with pytest.raises(DisagreementError, match="another count"):
        world.truth.judge("some", world.write({other: value for other, value in world.results.items() if other != key}))


def test_no_results_at_all_fail(world: World) -> None:
    with pytest.raises(DisagreementError, match=r"has results of 0 windows|another count"):
        world.truth.judge("some", world.write({}))


def test_a_result_that_is_out_twice_fails(world: World) -> None:
    key = world.untouched()
    folder = world.write(world.results)
    again = replace(world, folder=world.folder.parent / "again").write({key: world.results[key]})
    (again / "results" / "part.parquet").rename(folder / "results" / "again.parquet")
    with pytest.raises(DisagreementError, match="two results"):
        world.truth.judge("some", folder)


def test_a_late_row_that_is_counted_as_well_fails(world: World) -> None:
    with pytest.raises(DisagreementError, match="counts rows twice"):
        world.truth.judge("some", world.write(world.results, late=world.late[:1]))


def test_an_engine_that_keeps_late_rows_may_lose_none(world: World) -> None:
    with pytest.raises(DisagreementError, match="neither counts nor keeps"):
        world.truth.judge("some", world.write(world.without(world.late[0]), late=[]))


def test_a_late_row_that_is_kept_twice_fails(world: World) -> None:
    row = world.late[0]
    with pytest.raises(DisagreementError, match="keeps rows as late that are on time"):
        world.truth.judge("some", world.write(world.without(row), late=[row, row]))


def test_a_row_on_time_may_not_be_called_late(world: World) -> None:
    driver, window = world.untouched()
    row = next(row for row in world.rows if row[0] == driver and window.start <= row[1] < window.end)
    with pytest.raises(DisagreementError, match="keeps rows as late that are on time"):
        world.truth.judge("some", world.write(world.without(row), late=[row]))


def test_a_row_on_time_may_not_be_lost_where_late_rows_fall(world: World) -> None:
    taken = world.without(*world.late)
    key = next(
        (driver, window)
        for driver, window in taken
        if any(driver == other and window.start <= time < window.end for other, time, _ in world.late)
    )
    count, total = taken[key]
    with pytest.raises(DisagreementError, match="loses rows that are on time"):
        world.truth.judge("stock", world.write(taken | {key: (count - 1, total)}))


def test_another_sum_beside_a_late_row_fails(world: World) -> None:
    driver, time, _ = world.late[0]
    key = next(key for key in world.results if key[0] == driver and key[1].start <= time < key[1].end)
    count, total = world.results[key]
    with pytest.raises(DisagreementError, match="another sum with its late rows"):
        world.truth.judge("some", world.write(world.results | {key: (count, total + 0.01)}, late=[]))


def test_a_window_that_is_open_may_not_be_out(world: World) -> None:
    key = (0, assigner_of(world.shape).assign(world.newest)[-1])
    with pytest.raises(DisagreementError, match=r"has results of|sessions that the input does not have"):
        world.truth.judge("some", world.write(world.results | {key: (1, 1.0)}))


@pytest.mark.parametrize("shift", [(1, 1), (0, 1), (-1, 0)])
def test_a_window_with_other_bounds_fails(world: World, shift: tuple[int, int]) -> None:
    driver, window = world.untouched()
    moved = Window(window.start + shift[0], window.end + shift[1])
    results = {key: value for key, value in world.results.items() if key != (driver, window)}
    with pytest.raises(DisagreementError, match=r"windows or drivers that|sessions that"):
        world.truth.judge("some", world.write(results | {(driver, moved): world.results[driver, window]}))


def test_a_driver_that_does_not_exist_fails(world: World) -> None:
    _, window = world.untouched()
    with pytest.raises(DisagreementError, match="the input does not have"):
        world.truth.judge("some", world.write(world.results | {(99, window): (1, 1.0)}))


def test_a_missing_window_of_all_drivers_fails(sliding: World) -> None:
    last = max(window for _, window in sliding.results)
    with pytest.raises(DisagreementError, match="has results of"):
        sliding.truth.judge("some", sliding.write({key: value for key, value in sliding.results.items() if key[1] != last}))


def test_a_result_without_rows_fails(tmp_path: Path) -> None:
    world = make_world(FaresPlan(rows=200, drivers=20, files=2), TUMBLING, tmp_path)
    windows = sorted({window for _, window in world.results})
    empty = next((driver, window) for driver in range(20) for window in windows if (driver, window) not in world.results)
    with pytest.raises(DisagreementError, match="a result of no rows"):
        world.truth.judge("some", world.write(world.results | {empty: (0, 0.0)}))


def test_a_row_that_newer_windows_count_is_lost_to_older_ones_only(sliding: World) -> None:
    """What the contract asks of sliding windows: the row is in no output of late rows, and its closed windows do not have it."""
    row = sliding.late[0]
    windows = assigner_of(sliding.shape).assign(row[1])
    partly = sliding.results | {key: sliding.without(row)[key] for key in sliding.results if key[0] == row[0] and key[1] in windows[:2]}
    verdict = sliding.truth.judge("some", sliding.write(partly, late=[]))
    assert (verdict.late_kept, verdict.late_lost) == (0, 2)


def test_sessions_that_should_be_one_fail(session: World) -> None:
    driver, window = session.untouched()
    times = sorted(time for other, time, _ in session.rows if other == driver and window.start <= time < window.end)
    first, second = times[0], times[1]
    results = {key: value for key, value in session.results.items() if key != (driver, window)}
    count, total = session.results[driver, window]
    halves = {(driver, Window(first, first + 1)): (1, total), (driver, Window(second, window.end)): (count - 1, 0.0)}
    with pytest.raises(DisagreementError, match="two results for what is one session"):
        session.truth.judge("some", session.write(results | halves))


def test_sessions_over_other_rows_fail(session: World) -> None:
    driver, window = session.untouched()
    results = session.results | {(driver, Window(window.start + 5, window.end)): session.results[driver, window]}
    del results[driver, window]
    with pytest.raises(DisagreementError, match="begin or end elsewhere"):
        session.truth.judge("some", session.write(results))


def test_rows_that_are_a_gap_apart_are_in_one_session(tmp_path: Path) -> None:
    """The windows of such rows touch, and touching windows merge."""
    gap = SESSION.size_ms
    world = make_world(Handmade((0, gap, 2 * gap + 1, 9 * gap)), SESSION, tmp_path)
    one, other = (0, Window(FIRST_TIME_MS, FIRST_TIME_MS + 2 * gap)), (0, Window(FIRST_TIME_MS + 2 * gap + 1, FIRST_TIME_MS + 3 * gap + 1))
    assert world.truth.judge("some", world.write({one: (2, 2.0), other: (1, 1.0)})).compared == 2


def test_sessions_that_do_not_touch_are_two(tmp_path: Path) -> None:
    gap = SESSION.size_ms
    world = make_world(Handmade((0, gap + 1, 9 * gap)), SESSION, tmp_path)
    with pytest.raises(DisagreementError, match="sessions that the input does not have"):
        world.truth.judge("some", world.write({(0, Window(FIRST_TIME_MS, FIRST_TIME_MS + 2 * gap + 1)): (2, 2.0)}))


def test_an_input_that_closes_nothing_is_refused(world: World, tmp_path: Path) -> None:
    short = make_world(Handmade((0, 1, 2)), world.shape, tmp_path)
    with pytest.raises(DisagreementError, match="closed no"):
        short.truth.judge("some", short.write({}))


@dataclass(frozen=True)
class Handmade:
    """One driver, and one fare of a dollar at each of some times after the first."""

    times: tuple[int, ...]
    name: str = "handmade"
    drivers: int = 1
    files: int = 1
    seed: int = 1

    @property
    def total_rows(self) -> int:
        return len(self.times)

    def generate(self, file: int, random: np.random.Generator) -> FaresFile:
        assert (file, random.bit_generator is not None) == (0, True)
        count = len(self.times)
        times = FIRST_TIME_MS + np.array(self.times, dtype=np.int64)
        return FaresFile(np.zeros(count, dtype=np.int64), times, np.ones(count), np.zeros(count, dtype=np.bool_))

    def made_late(self, file: int, times_ms: Longs) -> Flags:
        assert file == 0
        return np.zeros(len(times_ms), dtype=np.bool_)
