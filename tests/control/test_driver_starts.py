"""How far a driver's start is shows while it starts, and what its stages took afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.control.worlds import World
from tidemark.cli.show.view_text import view_text
from tidemark.control.desired.attempts import read_attempt
from tidemark.control.metrics.metric_catalog import JOB_METRICS
from tidemark.control.model.driver_starts import StartReport, read_start, sorted_stages, write_start
from tidemark.control.model.records import DriverStart
from tidemark.control.view.view_builder import view_of
from tidemark.errors import StoreError
from tidemark.state.store.store import JobStore

GOLDEN = Path(__file__).parent / "golden" / "driver-start-1.json"
START = DriverStart(1, 1_700_000_000_000, "first epoch", 1_700_000_009_000, {"python": 900, "jvm": 2_500, "recovery": 40})


@pytest.fixture
def world() -> World:
    found = World()
    found.submit()
    found.run(found.reconciler(), 10)
    return found


def report_of(world: World) -> StartReport:
    attempt = read_attempt(world.store, "fares", 1)
    assert attempt is not None
    return StartReport(world.store, "fares", attempt, clock=world.clock)


def lines(world: World) -> list[str]:
    return [line for line in view_text(view_of(world.observe(), world.clock.now_ms())).splitlines() if "starting:" in line]


def test_the_stages_are_timed_one_after_the_other_and_what_runs_beside_them(world: World) -> None:
    attempt = read_attempt(world.store, "fares", 1)
    assert attempt is not None
    world.clock.set(attempt.at + 1_200)
    report = report_of(world)
    with report.in_parallel("jvm"):
        world.clock.advance(2_000)
        report.enter("spark")
        world.clock.advance(500)
    for stage in ("recovery", "checkpoint", "first epoch"):
        report.enter(stage)
        world.clock.advance(100)
    report.close()
    report.enter("recovery")
    report.close()
    report.wait()
    start = read_start(world.store, "fares", 1)
    assert start is not None
    assert start.stage == ""
    assert sorted_stages(start.took) == (
        ("python", 1_200),
        ("code", 2_000),
        ("jvm", 2_500),
        ("spark", 500),
        ("recovery", 100),
        ("checkpoint", 100),
        ("first epoch", 100),
    )


def test_status_and_metrics_show_the_start(world: World) -> None:
    write_start(world.store, "fares", START)
    world.clock.set(START.since + 3_400)
    assert lines(world) == ["  starting: first epoch for 3s 400ms (python 0.9s, jvm 2.5s, recovery 0.0s)"]
    metric = next(metric for metric in JOB_METRICS if metric.info.name == "tidemark_driver_start_stage_seconds")
    view = view_of(world.observe(), world.clock.now_ms())
    assert list(metric.read(view)) == [(("python",), 0.9), (("jvm",), 2.5), (("recovery",), 0.04)]
    write_start(world.store, "fares", DriverStart(1, START.at, "", START.since, START.took))
    assert lines(world) == []


def test_a_start_belongs_to_its_attempt(world: World) -> None:
    write_start(world.store, "fares", START)
    world.driver().end(-9)
    assert lines(world) == [], "what is dead starts nothing"
    world.run(world.reconciler(), 20)
    assert world.driver().attempt == 2
    assert lines(world) == []
    assert view_of(world.observe(), world.clock.now_ms()).start is None


def test_the_first_failure_is_not_waited_for(world: World) -> None:
    """What ran well starts again in the pass that sees its end; what fails again waits."""
    world.submit()
    reconciler = world.reconciler()
    world.run(reconciler, 20)
    world.driver().end(-9)
    reconciler.reconcile_all()
    assert world.status().lifecycle == "starting"
    assert world.launched == [("fares", 1), ("fares", 2)]
    assert (world.status().restarts_done, len(world.status().failures)) == (1, 1)
    world.driver().end(-9)
    reconciler.reconcile_all()
    assert world.status().lifecycle == "failing"
    assert world.launched == [("fares", 1), ("fares", 2)]


def test_a_store_that_does_not_answer_does_not_hold_the_start_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def put(_store: JobStore, _path: str, _data: bytes) -> None:
        raise StoreError("no route to host", fix="wait")

    monkeypatch.setattr(JobStore, "put", put)
    report = report_of(world)
    report.enter("spark")
    report.close()
    report.wait()
    assert read_start(world.store, "fares", 1) is None


def test_golden_starts_are_written_and_read_as_ever(world: World) -> None:
    write_start(world.store, "fares", START)
    path = "fares/control/starts/00000001.json"
    assert world.store.get(path) == GOLDEN.read_bytes()
    assert read_start(world.store, "fares", 1) == START
    world.store.put(path, b"{")
    assert read_start(world.store, "fares", 1) is None
