"""How a job looks from outside: its health, its lag, its load."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from tests.control.test_plan import (
    ATTEMPT,
    BEAT,
    DRAINING,
    DRIVER,
    ELSEWHERE,
    FAILED,
    FIRST,
    GONE,
    HERE,
    NEW,
    NOW,
    RUNNING,
    STARTING,
    UNLAUNCHED,
    WELL,
    control,
    ended,
    says,
    wants,
)
from tidemark.cli.show.view_text import row_of, view_text
from tidemark.cli.top.job_page import job_page
from tidemark.control.client.waiting import reached
from tidemark.control.model.records import Suspicion
from tidemark.control.model.view import Health
from tidemark.control.observed.observe import Observation
from tidemark.control.view.view_builder import view_of
from tidemark.state.log.progress import EpochProgress, FilterProgress, OperatorProgress, OutputProgress, SourceProgress, SplitProgress
from tidemark.state.log.totals import add_epoch, empty_totals
from tidemark.state.status.driver_load import Backlog, Load

HOUR = 3_600_000
BY_HAND = replace(WELL, generation=None, control=None, attempt=None, attempt_spec=None, claim=None, handle=None, process=None)
EPOCH = EpochProgress(
    "fares",
    "a1",
    6,
    processing_time=NOW - 3_000,
    duration_ms=2_500,
    rows_in=100,
    rows_out=40,
    sources={
        "trips": SourceProgress(
            100,
            97,
            3,
            NOW - 63_000,
            60_000,
            "p0",
            {"p0": SplitProgress(90, NOW - 63_000, NOW, idle=False), "p1": SplitProgress(0, None, None, idle=True)},
        ),
        "zones": SourceProgress(0, 0, 0, None, None, None),
    },
    filters={"paid": FilterProgress(97, 90, 7)},
    operators={"hourly": OperatorProgress(90, 81, 9, NOW - 63_000, 2, 1, 500, 4_096, 3)},
    outputs={"tips": OutputProgress(40, 1, 2_048, "delta")},
)
LOAD = Load(10_000, 20, 200_000, 0.25, 2_500, 50_000, 4_000, 90_000, 0.5, {"trips": Backlog(files=7), "bikes": Backlog(files=1, rows=10)})
BUSY = replace(WELL, driver=replace(DRIVER, last=EPOCH, totals=add_epoch(empty_totals(), EPOCH), load=LOAD))


@pytest.mark.parametrize(
    ("seen", "health"),
    [
        (WELL, "ok"),
        (ELSEWHERE, "ok"),
        (replace(NEW, generation=replace(FIRST, at=NOW - 5_000)), "starting"),
        (NEW, "unwatched"),
        (wants(NEW, wanted="suspended"), "stopped"),
        (STARTING, "starting"),
        (replace(STARTING, attempt=replace(ATTEMPT, at=NOW - 400_000)), "unwatched"),
        (replace(WELL, heartbeat=replace(BEAT, at=NOW - 31_000)), "silent"),
        (control(WELL, suspicion=Suspicion(NOW, 1, "no heartbeat")), "hung"),
        (GONE, "silent"),
        (replace(GONE, heartbeat=replace(BEAT, at=NOW - 61_000)), "unwatched"),
        (control(GONE, lifecycle="failing", next_start_at=NOW + 1), "failing"),
        (control(GONE, lifecycle="failing", next_start_at=NOW - 60_000), "unwatched"),
        (control(GONE, lifecycle="failed"), "failed"),
        (control(GONE, lifecycle="finished"), "stopped"),
        (control(wants(GONE, wanted="suspended"), lifecycle="suspended"), "stopped"),
        (control(GONE, lifecycle="suspended"), "unwatched"),
        (control(wants(WELL, wanted="suspended"), **DRAINING), "ok"),
        (BY_HAND, "ok"),
        (replace(BY_HAND, heartbeat_process_gone=True), "silent"),
        (replace(BY_HAND, heartbeat=replace(BEAT, at=NOW - 31_000), driver=replace(DRIVER, heartbeat_at=NOW - 31_000)), "silent"),
        (says(BY_HAND, "stopped"), "stopped"),
        (says(BY_HAND, "failed", **FAILED), "failed"),
        (Observation("fares"), "stopped"),
    ],
)
def test_health(seen: Observation, health: Health) -> None:
    assert view_of(seen, NOW).health == health


PASSES = {"error": "[TM200] the broker does not answer", "error_code": "TM200", "error_transient": True}
RUN_DRIVER = replace(DRIVER, load=LOAD)


@pytest.mark.parametrize(
    ("seen", "now", "shown", "does", "code"),
    [
        # No reconciler has seen the end: what they wrote last says that it runs.
        (GONE, NOW, ("dead", "silent"), "no supervisor has acted on it yet: `tidemark supervise`", "TM503"),
        (
            GONE,
            NOW + HOUR,
            ("dead", "unwatched"),
            "no supervisor is running: `tidemark supervise` restarts it, or `tidemark start fares`",
            "TM503",
        ),
        (says(GONE, "failed", **FAILED), NOW, ("failed", "failed"), "correct what the error names, then `tidemark start fares`", "TM200"),
        (says(GONE, "failed", **PASSES), NOW + HOUR, ("dead", "unwatched"), "no supervisor is running", "TM200"),
        (replace(GONE, exit_code=64), NOW, ("failed", "failed"), "`tidemark start fares`", "TM503"),
        (replace(ELSEWHERE, heartbeat=replace(BEAT, at=NOW - 61_000)), NOW, ("dead", "unwatched"), "no supervisor is running", "TM503"),
        (replace(ELSEWHERE, heartbeat=replace(BEAT, at=NOW - 40_000)), NOW, ("running", "silent"), "", None),
        (replace(UNLAUNCHED, attempt=replace(ATTEMPT, at=NOW - 61_000)), NOW, ("dead", "unwatched"), "no supervisor is running", "TM601"),
        (replace(UNLAUNCHED, attempt=replace(ATTEMPT, at=NOW - 5_000)), NOW, ("starting", "starting"), "", None),
        (control(wants(GONE, version="2"), **DRAINING), NOW + HOUR, ("dead", "unwatched"), "no supervisor is running", None),
        # It ended as requested, and the next one is about to start.
        (control(wants(GONE, version="2"), **DRAINING), NOW, ("starting", "starting"), "", None),
        (control(wants(GONE, version="2"), **DRAINING), NOW + 57_999, ("starting", "starting"), "", None),
        (control(wants(GONE, version="2"), **DRAINING), NOW + 58_000, ("dead", "unwatched"), "no supervisor is running", None),
        (control(wants(GONE, wanted="suspended"), **DRAINING), NOW, ("stopped", "stopped"), "", None),
        (replace(says(GONE, "finished"), driver=replace(DRIVER, state="finished", last=ended())), NOW, ("finished", "stopped"), "", None),
        # What reconcilers wrote stands where it is all there is to see.
        (WELL, NOW, ("running", "ok"), "", None),
        (control(GONE, lifecycle="failing", next_start_at=NOW + 1), NOW, ("failing", "failing"), "", None),
        (control(GONE, lifecycle="failing", next_start_at=NOW - 60_000), NOW, ("failing", "unwatched"), "no supervisor is running", None),
        (control(GONE, lifecycle="failed"), NOW, ("failed", "failed"), "`tidemark start fares`", None),
        (control(wants(GONE, wanted="suspended"), lifecycle="suspended"), NOW, ("stopped", "stopped"), "", None),
        (NEW, NOW, ("created", "unwatched"), "no supervisor is running", None),
        # Jobs that were never submitted.
        (BY_HAND, NOW, ("running", "ok"), "", None),
        (replace(BY_HAND, heartbeat_process_gone=True), NOW, ("dead", "silent"), "run it again with the same command", None),
        (says(BY_HAND, "stopped"), NOW, ("stopped", "stopped"), "", None),
    ],
)
def test_the_state_is_what_can_be_seen_now(seen: Observation, now: int, shown: tuple[str, str], does: str, code: str | None) -> None:
    """By its words for people: in the table, on the page of one job, and in JSON they are the same."""
    view = view_of(seen, now)
    assert row_of(view)[1:3] == shown
    assert (view.state, view.health) == shown
    assert view_text(view).startswith(f"fares: {shown[0]}{f', {shown[1]}' if len(set(shown)) > 1 else ''}")
    assert does in view.advice
    assert bool(does) == bool(view.advice)
    assert (view.error.code if view.error is not None else None) == code
    if view.advice:
        assert f"  to do: {view.advice}" in view_text(view)
    if view.error is not None:
        assert view_text(view).count(view.error.message) == 1


def test_the_commands_of_an_advice_name_the_store_where_they_need_it() -> None:
    advice = view_of(GONE, NOW + HOUR, store="s3://box/my jobs").advice
    assert "`tidemark supervise --store 's3://box/my jobs'` restarts it" in advice
    assert "`tidemark start fares --store 's3://box/my jobs'`" in advice


@pytest.mark.parametrize(
    ("seen", "there"),
    [
        (WELL, False),
        (replace(WELL, driver=RUN_DRIVER), True),
        (replace(WELL, heartbeat=replace(BEAT, looked_at=NOW - 3_000)), True),
        (replace(WELL, heartbeat=replace(BEAT, looked_at=NOW - 3_000, busy_since=NOW - 3_000)), False),
        (replace(WELL, heartbeat=replace(BEAT, looked_at=NOW - 3_000, released=True)), False),
        # What an earlier attempt did says nothing of this one.
        (replace(WELL, attempt=replace(ATTEMPT, number=2), control=replace(RUNNING, attempt=2), driver=RUN_DRIVER), False),
    ],
)
def test_a_job_has_started_when_it_has_published_or_found_no_input(seen: Observation, *, there: bool) -> None:
    """A heartbeat is not enough: the first one comes before the first look at the input and before the first expression is run."""
    assert reached(seen, "running", 1)
    assert reached(seen, "working", 1) is there


def test_one_that_was_just_asked_for_is_starting_and_nothing_else() -> None:
    """The list shows where a job is beside its health: suspended and starting at once would be two things."""
    resting = control(GONE, lifecycle="suspended", reason="stop (bob)", since=NOW - 900_000)
    asked = wants(resting, wanted="running")
    assert asked.generation is not None
    asked = replace(asked, generation=replace(asked.generation, at=NOW - 5_000, by="ada", why="resume"))
    view = view_of(asked, NOW)
    assert (view.lifecycle, view.health, view.since, view.reason) == ("starting", "starting", NOW - 5_000, "resume (ada)")
    assert view.driver_lifecycle == "suspended"
    assert row_of(view)[1:3] == ("starting", "starting")
    forgotten = view_of(asked, NOW + 60_000)
    assert (forgotten.lifecycle, forgotten.health, forgotten.reason) == ("suspended", "unwatched", "stop (bob)")
    stopped = view_of(wants(resting, wanted="suspended"), NOW)
    assert (stopped.lifecycle, stopped.health) == ("suspended", "stopped")


def test_a_job_that_was_never_submitted_is_as_its_driver_says() -> None:
    lifecycles = [view_of(says(BY_HAND, state), NOW).lifecycle for state in ("running", "stopped", "finished")]
    assert lifecycles == ["running", "suspended", "finished"]
    view = view_of(says(BY_HAND, "failed", **FAILED), NOW)
    assert view.error is not None
    assert (view.lifecycle, view.error.code, view.generation, view.spec) == ("failed", "TM200", 0, None)


def test_rows_state_and_load() -> None:
    view = view_of(BUSY, NOW)
    assert (view.rows.read, view.rows.out, view.rows.late, view.rows.malformed, view.rows.rejected) == (100, 40, 9, 3, 7)
    assert (view.state_rows, view.state_bytes, view.state_files, view.late_share) == (500, 4_096, 3, 0.1)
    assert (view.rows_per_second, view.rows_out_per_second) == (250, 20)
    pressure = view.pressure
    assert (pressure.busy_share, pressure.waiting_files, pressure.waiting_rows, pressure.waiting_bytes) == (0.25, 8, 10, None)
    assert (pressure.catch_up_ms, pressure.intake) == (90_000, 0.5)
    assert (view.process, view.attempt, view.heartbeat_age_ms, view.epoch, view.epoch_ms) == (HERE, 1, 2_000, 6, 2_500)


@pytest.mark.parametrize(
    ("waiting", "shown"),
    [
        (Backlog(files=7, bytes=4_096), "7 files"),
        (Backlog(rows=1_234), "1,234 rows"),
        (Backlog(rows=0), "0 rows"),
        (Backlog(bytes=4_096), "4,096 bytes"),
    ],
)
def test_the_page_of_a_job_shows_what_waits_of_a_source(waiting: Backlog, shown: str) -> None:
    busy = replace(
        BUSY, driver=replace(DRIVER, last=EPOCH, totals=add_epoch(empty_totals(), EPOCH), load=replace(LOAD, waiting={"trips": waiting}))
    )
    console = Console(width=200, file=StringIO(), record=True)
    console.print(job_page(view_of(busy, NOW), [EPOCH], title="top"))
    row = next(line for line in console.export_text().splitlines() if line.strip().startswith("trips"))
    assert row.rstrip().endswith(shown)


@pytest.mark.parametrize(
    ("trips", "bikes", "expected"),
    [
        (Backlog(files=0, bytes=0), Backlog(rows=0), None),
        (Backlog(files=0, bytes=0), Backlog(rows=1), 90_000),
        # It does not tell.
        (Backlog(files=0), Backlog(), 90_000),
        (Backlog(files=0), None, 90_000),
    ],
)
def test_old_input_that_is_all_read_is_no_backlog(trips: Backlog, bikes: Backlog | None, expected: int | None) -> None:
    waiting = {"trips": trips} if bikes is None else {"trips": trips, "bikes": bikes}
    last = replace(EPOCH, sources={"trips": EPOCH.sources["trips"], "bikes": EPOCH.sources["trips"]})
    driver = replace(DRIVER, last=last, load=replace(LOAD, waiting=waiting))
    assert view_of(replace(BUSY, driver=driver), NOW).pressure.catch_up_ms == expected


@pytest.mark.parametrize(("pause", "rate", "busy"), [(20, 250, 0.25), (100, 125, 0.125), (200, 0, 0), (86_400, 0, 0)])
def test_the_figures_of_a_job_that_rests_fall_to_nothing(pause: int, rate: float, busy: float) -> None:
    view = view_of(replace(BUSY, driver=replace(BUSY.driver, heartbeat_at=NOW - pause * 1000)), NOW)  # type: ignore[type-var]
    assert (view.rows_per_second, view.pressure.busy_share) == (rate, busy)
    row = row_of(view)
    assert f"{busy:.0%}" in row
    assert f"busy {busy:.0%}" in view_text(view)


def test_the_page_of_a_job_says_what_was_restarted_how_often() -> None:
    assert "; restarts after failures: 4\n" in view_text(replace(view_of(BUSY, NOW), restarts_done=4))
    assert "restarts after failures" not in view_text(view_of(BUSY, NOW))


def test_a_long_epoch_is_busy() -> None:
    at_work = replace(BUSY, heartbeat=replace(BEAT, busy_since=NOW - 150_000), driver=replace(BUSY.driver, heartbeat_at=NOW - 150_000))  # type: ignore[type-var]
    assert view_of(at_work, NOW).pressure.busy_share == pytest.approx(0.25 / 4 + 0.75)


def test_what_a_driver_said_that_is_silent_is_not_known_any_more() -> None:
    view = view_of(BUSY, BEAT.at + 30_000)
    pressure = view.pressure
    assert view.health == "silent"
    assert (view.rows_per_second, pressure.busy_share, pressure.catch_up_ms, pressure.waiting) == (None, None, None, {})
    assert "load" not in view_text(view)


def test_the_lag_grows_when_an_epoch_is_at_hand_or_nobody_works_and_else_is_the_last_epoch_s() -> None:
    assert view_of(BUSY, NOW + 20_000).lag_ms == 60_000
    at_work = replace(BUSY, heartbeat=replace(BEAT, at=NOW + 20_000, busy_since=NOW))
    assert view_of(at_work, NOW + 20_000).lag_ms == 83_000
    silent = view_of(BUSY, NOW + HOUR)
    assert (silent.health, silent.lag_ms) == ("silent", 63_000 + HOUR)
    assert silent.sources["trips"].splits["p0"].lag_ms == 63_000 + HOUR
    assert silent.sources["trips"].splits["p1"].lag_ms is None
    assert silent.sources["zones"].lag_ms is None


def test_input_that_has_ended_does_not_lag() -> None:
    last = replace(EPOCH, sources={"trips": replace(EPOCH.sources["trips"], lag_ms=None)}, end_of_input=True)
    view = view_of(replace(BUSY, driver=replace(DRIVER, last=last)), NOW + HOUR)
    assert (view.lag_ms, view.end_of_input) == (None, True)


def test_failures_are_counted_from_an_instant_on() -> None:
    view = view_of(control(WELL, failures=()), NOW)
    assert view.failures_since(0) == 0
