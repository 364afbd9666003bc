"""The pages of ``tidemark top`` without a terminal: figures over time, columns that fit, the selected row, keys."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, ConsoleRenderable

from tidemark.cli.top.frame import full_screen
from tidemark.cli.top.job_page import job_page
from tidemark.cli.top.jobs_page import jobs_page, visible_rows
from tidemark.cli.top.selection import Selection
from tidemark.cli.top.sparkline import sparkline
from tidemark.control.model.view import JobView, RowCounts
from tidemark.control.view.epoch_series import JobHistory, series_of
from tidemark.state.log.progress import EpochProgress, OperatorProgress, SourceProgress

NAMES = ("bikes", "fares", "rides")


def epoch(number: int, *, at: int, rows: int = 10, late: int = 0, lag: int | None = 500) -> EpochProgress:
    source = SourceProgress(rows, rows, 0, None if lag is None else at - lag, lag, None)
    return EpochProgress(
        "fares",
        "a1",
        number,
        at,
        100,
        rows_in=rows,
        rows_out=0,
        sources={"fares": source},
        operators={"hourly": OperatorProgress(rows, rows - late, late, None, 0, 0, 0, 0, 0)},
    )


EPOCHS = (epoch(0, at=0, lag=None), epoch(1, at=1_000, rows=20, late=2), epoch(2, at=3_000, rows=20, lag=2_000))
VIEWS = [JobView(name, 0, "running", "ok", epoch=7, lag_ms=2_000, rows_per_second=120.0, rows=RowCounts(late=42)) for name in NAMES]


def drawn(page: ConsoleRenderable, *, width: int = 160, height: int = 25) -> list[str]:
    screen = StringIO()
    Console(width=width, height=height, file=screen).print(page)
    return screen.getvalue().splitlines()


def test_the_figures_of_epochs() -> None:
    series = series_of(EPOCHS)
    assert series.lag_ms == (None, 500, 2_000)
    assert series.rows_per_second == (None, 20.0, 10.0)
    assert series.late == (0, 2, 0)
    assert series_of(()) == series_of([])


def test_a_clock_that_was_set_back_is_no_time() -> None:
    assert series_of([epoch(0, at=5_000), epoch(1, at=1_000)]).rows_per_second == (None, 100.0)


@given(st.lists(st.none() | st.floats(0, 1e12), max_size=60), st.integers(0, 50))
def test_a_line_of_bars_has_its_width_and_its_order(values: list[float | None], width: int) -> None:
    line = sparkline(values, width=width)
    assert len(line) == width
    shown = [value for value in (values[-width:] if width else []) if value is not None]
    heights = ["▁▂▃▄▅▆▇█".index(bar) for bar in line.strip() if bar != " "]
    assert len(heights) == len(shown)
    for value, height in zip(shown, heights, strict=True):
        assert (height == 0) == (value == 0)
        assert value != max(shown) or value == 0 or height == 7
    assert sparkline(values, width=width, ascii_only=True).isascii()


def test_all_jobs_have_their_figures_over_time() -> None:
    lines = drawn(jobs_page(VIEWS, {"fares": JobHistory(EPOCHS)}, title="store", width=160, selected="fares"))
    head, *rows = lines[1:]
    for column in ("rows over time", "lag over time", "late over time", "busy"):
        assert column in head
    assert [row.split()[0] for row in rows] == list(NAMES)
    assert "▁█▁" in rows[1], "late rows"
    assert "42" in rows[1]
    assert "█" not in rows[0] + rows[2], "nothing is known of them yet"


@pytest.mark.parametrize(
    ("width", "there", "missing"), [(200, "attempt", ""), (60, "lag", "attempt"), (24, "state", "rows/s"), (6, "job", "state")]
)
def test_a_narrow_terminal_has_the_columns_that_fit(width: int, there: str, missing: str) -> None:
    lines = drawn(jobs_page(VIEWS, {}, title="a store with a long address", width=width), width=width)
    assert all(len(line) <= width for line in lines)
    assert there in lines[1]
    assert not missing or missing not in lines[1]
    assert [line.split()[0] for line in lines[2:5]] == list(NAMES), "names are not cut"


def test_without_a_job_there_is_a_page() -> None:
    assert "job" in drawn(jobs_page([], {}, title="store"))[1]


@pytest.mark.parametrize("selected", range(30))
def test_the_selected_job_is_among_those_that_have_room(selected: int) -> None:
    names = [f"job{number:02}" for number in range(30)]
    views = [replace(VIEWS[0], job=name) for name in names]
    page = jobs_page(views, {}, title="store", selected=names[selected], height=14)
    lines = drawn(full_screen(page, Selection().keys), height=14)
    assert len(lines) == 14
    assert any(line.startswith(names[selected]) for line in lines)
    assert any("20 more jobs" in line for line in lines)
    assert "quit" in lines[-1]
    assert visible_rows(names, names[selected], 10).stop - visible_rows(names, names[selected], 10).start == 10


@pytest.mark.parametrize("width", [30, 80])
def test_an_error_of_the_store_is_whole_and_leaves_room_for_the_selected_job(width: int) -> None:
    problem = "[TM401] the store s3://a-bucket/with-a-long-name/jobs cannot be reached: the connection was refused. Fix: check the network"
    views = [replace(VIEWS[0], job=f"job{number:02}") for number in range(30)]
    page = jobs_page(views, {}, title="store", problem=problem, selected="job20", width=width, height=16)
    lines = drawn(full_screen(page, Selection().keys), width=width, height=16)
    assert len(lines) == 16
    assert problem.replace(" ", "") in "".join(lines).replace(" ", "")
    assert any(line.startswith("job20") for line in lines)
    assert any("more jobs" in line for line in lines)
    assert "select" in lines[-1]
    opened = drawn(job_page(VIEWS[1], EPOCHS, title="store", problem=problem, width=width), width=width)
    assert problem.replace(" ", "") in "".join(opened).replace(" ", "")


def test_the_page_of_a_job_shows_its_figures_over_time() -> None:
    lines = drawn(job_page(VIEWS[1], EPOCHS, title="store", width=80), width=80)
    by_name = {line.split()[0]: line for line in lines if line.startswith(("lag ", "rows/s ", "late "))}
    assert by_name["lag"].endswith("▃█ 2s, at most 2s")
    assert by_name["rows/s"].endswith("█▅ 10, at most 20") or by_name["rows/s"].endswith("█▄ 10, at most 20")
    assert by_name["late"].endswith("▁█▁ 0 rows, at most 2")


@pytest.mark.parametrize("width", [20, 40, 80])
def test_the_page_of_a_job_fits(width: int) -> None:
    assert all(len(line) <= width for line in drawn(job_page(VIEWS[1], EPOCHS * 20, title="store", width=width), width=width))


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ((), Selection("bikes")),
        (("down",), Selection("fares")),
        (("down", "down", "down"), Selection("rides")),
        (("up",), Selection("bikes")),
        (("j", "k"), Selection("bikes")),
        (("end",), Selection("rides")),
        (("end", "home"), Selection("bikes")),
        (("down", "enter"), Selection("fares", is_open=True)),
        (("down", "enter", "right"), Selection("rides", is_open=True)),
        (("down", "enter", "left"), Selection("bikes", is_open=True)),
        (("enter", "escape"), Selection("bikes")),
        (("x", "unknown"), Selection("bikes")),
        (("q",), None),
        (("enter", "q"), None),
    ],
)
def test_keys(keys: tuple[str, ...], expected: Selection | None) -> None:
    found: Selection | None = Selection().among(NAMES)
    for key in keys:
        assert found is not None
        found = found.press(key, NAMES)
    assert found == expected


def test_a_job_that_is_gone_is_no_longer_selected() -> None:
    assert Selection("fares", is_open=True).among(["rides"]) == Selection("rides")
    assert Selection("fares").among([]) == Selection()
    for key in ("up", "down", "enter", "home", "end"):
        assert Selection().press(key, []) == Selection()


def test_the_footer_names_the_keys_of_the_page() -> None:
    assert {what for _, what in Selection().keys} == {"select", "open", "quit"}
    assert {what for _, what in Selection("a", is_open=True).keys} == {"other job", "all jobs", "quit"}
