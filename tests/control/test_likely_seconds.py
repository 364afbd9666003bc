"""A column of seconds that is read as milliseconds."""

from __future__ import annotations

import pytest

from tests.control.alert_cases import HOUR, T0
from tests.control.worlds import World
from tidemark.control.observed.observe import observe
from tidemark.control.view.view_builder import view_of
from tidemark.semantics.watermarks.likely_seconds import seconds_warning
from tidemark.state.log.progress import EpochProgress, SourceProgress
from tidemark.state.status.status import JobStatus, write_status


def test_seconds_are_found_and_the_fix_is_named() -> None:
    text = seconds_warning("trips", T0 // 1000, T0)
    assert "event times of source 'trips' are about 1970-01-20T16:13:20.000Z" in text
    assert "would be 2023-11-14T22:13:20.000Z" in text
    assert 'timestamp="t * 1000"' in text


@pytest.mark.parametrize(
    "watermark",
    [None, 0, -1, 60_000, T0, T0 - 1_000 * 24 * HOUR, 157_766_400_000, -(2**63)],
    ids=["none", "zero", "before 1970", "small numbers of a test", "now", "old data", "1975", "no row yet"],
)
def test_what_may_be_milliseconds_is_no_warning(watermark: int | None) -> None:
    assert seconds_warning("trips", watermark, T0) == ""


def test_the_view_of_a_job_has_the_warning() -> None:
    world = World()
    now = world.clock.now_ms()
    source = SourceProgress(10, 10, 0, now // 1000, now - now // 1000, None)
    last = EpochProgress("fares", "a1", 0, now, 5, rows_in=10, rows_out=0, sources={"trips": source})
    write_status(world.store, JobStatus("fares", "a1", "running", now, now, last=last))
    assert "a BIGINT is read as milliseconds" in view_of(observe(world.store, "fares", {}), now).warning
