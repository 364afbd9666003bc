"""Which running jobs lag: those behind by a limit of their own, and those that do not catch up; never for the age of their data."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.control.test_plan import NOW
from tidemark.control.model.spec import AlertThresholds, JobSpec
from tidemark.control.model.view import Backpressure, JobView, SourceView
from tidemark.control.view.lagging import lagging_sources

HOUR = 3_600_000
SLOW = Backpressure(busy_share=1.0, waiting_files=40)
TRIPS = SourceView(rows_read=100, rows_malformed=0, watermark=NOW - 2 * HOUR, lag_ms=2 * HOUR, bound_ms=60_000, held_by="p0")
VIEW = JobView("fares", NOW, "running", "ok", sources={"trips": TRIPS}, pressure=SLOW, started_at=NOW - HOUR)
"""Two hours behind, with the default limit of 15 minutes, and busy for an hour without reading all."""


def test_a_job_that_falls_behind_lags_and_says_what_holds_it_back() -> None:
    (text,) = lagging_sources(VIEW)
    assert text.startswith("source 'trips' lags: its watermark is 20")
    assert "held back by split 'p0'" in text
    assert "caught up in 30m" in lagging_sources(replace(VIEW, pressure=replace(SLOW, catch_up_ms=1_800_000)))[0]


@pytest.mark.parametrize(
    "view",
    [
        replace(VIEW, pressure=replace(SLOW, waiting_files=0)),
        replace(VIEW, pressure=Backpressure(busy_share=1.0)),
        replace(VIEW, pressure=replace(SLOW, busy_share=0.5)),
        replace(VIEW, pressure=replace(SLOW, catch_up_ms=60_000)),
        replace(VIEW, started_at=NOW - 60_000),
        replace(VIEW, sources={"trips": replace(TRIPS, lag_ms=60_000)}),
        replace(VIEW, sources={"trips": replace(TRIPS, lag_ms=None)}),
        replace(VIEW, health="silent"),
        replace(VIEW, lifecycle="draining"),
        replace(VIEW, spec=JobSpec("fares", "fares:job", alerts=AlertThresholds(lag_error_ms=3 * HOUR))),
    ],
    ids=["all read", "backlog unknown", "pauses", "catches up", "just started", "in time", "no watermark", "dead", "ends", "own limit"],
)
def test_what_is_no_lag(view: JobView) -> None:
    assert lagging_sources(view) == ()


@pytest.mark.parametrize(
    "view",
    [
        replace(VIEW, started_at=NOW - 60_000),
        replace(VIEW, pressure=replace(SLOW, busy_share=0.73)),
        replace(VIEW, pressure=replace(SLOW, catch_up_ms=13 * 60_000)),
        replace(VIEW, sources={"trips": replace(TRIPS, lag_ms=13 * 60_000)}),
    ],
    ids=["restarted", "a short pause", "nearly catches up", "nearly in time"],
)
def test_what_does_not_end_a_lag(view: JobView) -> None:
    assert lagging_sources(view) == ()
    assert lagging_sources(view, ratio=0.8) != ()


@pytest.mark.parametrize(
    "view",
    [
        replace(VIEW, pressure=replace(SLOW, waiting_files=0)),
        replace(VIEW, pressure=replace(SLOW, busy_share=0.5)),
        replace(VIEW, pressure=replace(SLOW, catch_up_ms=11 * 60_000)),
        replace(VIEW, health="starting"),
    ],
    ids=["all read", "pauses", "catches up", "starts"],
)
def test_what_is_not_near_a_lag_either(view: JobView) -> None:
    assert lagging_sources(view, ratio=0.8) == ()


def test_with_limits_of_its_own_the_watermark_alone_counts() -> None:
    idle = replace(VIEW, pressure=Backpressure(), spec=JobSpec("fares", "fares:job", alerts=AlertThresholds(lag_error_ms=2 * HOUR)))
    assert lagging_sources(idle) != ()
    assert lagging_sources(replace(idle, started_at=NOW)) != (), "however short it has run"
    sooner = replace(idle, sources={"trips": replace(TRIPS, lag_ms=2 * HOUR - 1)})
    assert lagging_sources(sooner) == ()
    assert lagging_sources(sooner, ratio=0.8) != ()
