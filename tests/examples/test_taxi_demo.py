"""The demo spares what it did not make, and says so when the books do not balance."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from examples.taxi import demo, report
from tidemark.errors import SetupError
from tidemark.state.log.totals import Totals
from tidemark.state.status.status import JobStatus


def status(*, late: int) -> JobStatus:
    totals = Totals(
        sources={"trips": {"read": 12, "passed": 10, "malformed": 2}},
        filters={"paid-trips": {"in": 10, "passed": 9, "rejected": 1}},
        operators={"hourly-tips": {"in": 9, "accepted": 6, "late": late}},
        outputs={},
    )
    return JobStatus(job="taxi", lineage="a", state="finished", heartbeat_at=0, started_at=0, totals=totals)


@pytest.mark.parametrize(("late", "holds"), [(3, True), (2, False)])
def test_books_that_do_not_balance_are_seen(late: int, *, holds: bool) -> None:
    screen = io.StringIO()
    assert report.print_books(Console(file=screen, width=120), status(late=late)) is holds
    assert f"in 9 = accepted 6 + late {late}" in screen.getvalue()
    assert ("DOES NOT HOLD" in screen.getvalue()) is not holds


def test_a_second_demo_begins_anew(tmp_path: Path) -> None:
    home = demo.prepare_home(tmp_path / "taxi")
    (home / "landing" / "trips.json").touch()
    (home / "warehouse").mkdir()
    demo.prepare_home(home)
    assert sorted(path.name for path in home.rglob("*")) == ["landing", "made-by-demo"]


def test_data_of_others_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    (tmp_path / "warehouse" / "mine").touch()
    with pytest.raises(SetupError, match="Fix: set TIDEMARK_EXAMPLE_HOME"):
        demo.prepare_home(tmp_path)
    assert (tmp_path / "warehouse" / "mine").exists()
