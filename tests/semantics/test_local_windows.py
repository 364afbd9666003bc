"""Windows of local days, against Python's own dates."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.errors import DefinitionError, DurationError
from tidemark.semantics.reference.reference import Epoch, ReferenceJob, run_reference
from tidemark.semantics.reference.reference_results import Element, Fold
from tidemark.semantics.watermarks.watermark_generators import Ascending
from tidemark.semantics.watermarks.watermarks import WatermarkStrategy
from tidemark.semantics.windows.assigners import Cumulative, Sliding, Tumbling
from tidemark.semantics.windows.local_time import local_clock
from tidemark.semantics.windows.local_windows import DAY_MS, LocalWindows
from tidemark.semantics.windows.windows import Window

HOUR = 3_600_000
ZONES = [
    "Africa/Cairo",
    "America/Havana",
    "America/New_York",
    "America/Santiago",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Kolkata",
    "Asia/Tokyo",
    "Atlantic/Azores",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Pacific/Kwajalein",
]
YEARS = range(1985, 2031)
DAYS = Tumbling(DAY_MS)
HOURS = Cumulative(DAY_MS, HOUR)


def ms(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def utc(*parts: int) -> int:
    return ms(datetime(*parts, tzinfo=UTC))  # type: ignore[arg-type, misc]


def shown(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None)


def first_at(local: datetime, zone: ZoneInfo) -> int:
    """Return the first instant at which clocks show a time or a later one, minute by minute where there is none that shows it."""
    instant = local.replace(tzinfo=zone).astimezone(UTC)
    while shown(instant, zone) > local and shown(instant - timedelta(minutes=1), zone) >= local:
        instant -= timedelta(minutes=1)
    return ms(instant)


@cache
def changes(name: str) -> tuple[datetime, ...]:
    """Return the hours in which a zone's clocks change."""
    zone, found = ZoneInfo(name), []
    at, end = datetime(YEARS[0], 1, 1, tzinfo=UTC), datetime(YEARS[-1], 12, 31, tzinfo=UTC)
    while at < end:
        after = at + timedelta(days=2)
        if at.astimezone(zone).utcoffset() != after.astimezone(zone).utcoffset():
            found.append(at)
        at = after
    return tuple(found)


@pytest.mark.parametrize("name", ZONES)
def test_days_at_every_change_are_those_of_pythons_dates(name: str) -> None:
    zone, windows = ZoneInfo(name), LocalWindows(DAYS, name)
    for change in changes(name)[::7]:
        for hours in range(-30, 80, 11):
            moment = change + timedelta(hours=hours)
            day = datetime.combine(shown(moment, zone).date(), datetime.min.time())
            bounds = [first_at(day + timedelta(days=number), zone) for number in range(3)]
            # A moment after its day's end is one that is repeated, from before a midnight that has been.
            start, end = bounds[:2] if ms(moment) < bounds[1] else bounds[1:]
            assert windows.assign(ms(moment)) == (Window(start, end),), moment


moments = st.integers(utc(1985, 1, 1), utc(2030, 1, 1))


@given(st.sampled_from(ZONES), moments, st.integers(-30 * HOUR, 30 * HOUR))
def test_readings_and_first_instants_fit_together(name: str, moment: int, ahead: int) -> None:
    clock = local_clock(name)
    local = moment + ahead
    assert (clock.first_instant(local) <= moment) == (local <= clock.reading(moment))


@given(st.sampled_from([name for name in ZONES if changes(name)]), st.data())
def test_readings_and_first_instants_fit_together_where_clocks_change(name: str, data: st.DataObject) -> None:
    clock = local_clock(name)
    moment = ms(data.draw(st.sampled_from(changes(name)))) + data.draw(st.integers(-3 * DAY_MS, 3 * DAY_MS))
    local = clock.reading(moment) + data.draw(st.one_of(st.integers(-2, 2), st.integers(-2 * HOUR, 2 * HOUR)))
    assert (clock.first_instant(local) <= moment) == (local <= clock.reading(moment))
    assert clock.reading(moment - 1) <= clock.reading(moment)


@given(
    st.sampled_from(ZONES),
    st.sampled_from(
        [DAYS, Tumbling(7 * DAY_MS, 4 * DAY_MS), Tumbling(DAY_MS, 5 * HOUR), Sliding(3 * DAY_MS, DAY_MS), Cumulative(DAY_MS, HOUR)]
    ),
    moments,
)
def test_windows_have_their_element_and_differ(name: str, windows: Tumbling | Sliding | Cumulative, moment: int) -> None:
    found = LocalWindows(windows, name).assign(moment)
    assert found
    assert all(window.start <= moment < window.end for window in found)
    assert list(found) == sorted(set(found))


def test_an_hour_that_is_repeated_is_in_one_step_and_one_that_is_skipped_has_none() -> None:
    hours = LocalWindows(HOURS, "Europe/Berlin")
    long_day = hours.assign(utc(2025, 10, 25, 22))
    assert [(window.end - window.start) // HOUR for window in long_day] == [1, 2, *range(4, 26)]
    short_day = hours.assign(utc(2025, 3, 29, 23))
    assert [(window.end - window.start) // HOUR for window in short_day] == list(range(1, 24))
    half_hours = LocalWindows(HOURS, "Australia/Lord_Howe")
    ends = [window.end - window.start for window in half_hours.assign(utc(2025, 4, 5, 13))]
    assert [(end - before) / HOUR for before, end in zip([0, *ends], ends, strict=False)] == [1, 1.5, *[1] * 22]


def test_a_day_that_a_zone_skipped_has_no_window() -> None:
    days = LocalWindows(DAYS, "Pacific/Apia")
    (before,), (after,) = days.assign(utc(2011, 12, 30, 9, 59)), days.assign(utc(2011, 12, 30, 10))
    assert (before.end, before.end - before.start, after.end - after.start) == (after.start, DAY_MS, DAY_MS)
    assert [window.end - window.start for window in LocalWindows(Sliding(2 * DAY_MS, DAY_MS), "Pacific/Apia").assign(before.start)] == [
        2 * DAY_MS,
        DAY_MS,
    ]


def test_a_midnight_that_comes_twice_counts_the_first_time() -> None:
    # Clocks were set back at 00:01.
    (day,) = LocalWindows(DAYS, "America/St_Johns").assign(utc(2010, 11, 7, 2, 31))
    assert day == Window(utc(2010, 11, 7, 2, 30), utc(2010, 11, 8, 3, 30))
    assert LocalWindows(DAYS, "America/St_Johns").assign(utc(2010, 11, 7, 3, 29)) == (day,)


def test_a_day_without_a_midnight_begins_at_its_first_instant() -> None:
    (day,) = LocalWindows(DAYS, "America/Sao_Paulo").assign(utc(2018, 11, 4, 12))
    assert day == Window(utc(2018, 11, 4, 3), utc(2018, 11, 5, 2))


def test_each_row_may_have_its_own_zone() -> None:
    count = Fold(create=lambda: 0, add=lambda n, _value, _time, _position: n + 1, result=lambda n: n)
    job = ReferenceJob({"source": WatermarkStrategy("t", Ascending(), max_future_skew_ms=None)}, LocalWindows(DAYS, zone_by="zone"), count)
    noon = utc(2025, 1, 6, 12)
    zones = ["Asia/Tokyo", "Europe/Berlin", "Europe/Paris", "Asia/Tokyo"]
    elements = tuple(Element(("a",), noon, position=(number,), zone=zone) for number, zone in enumerate(zones))
    late = Element(("a",), utc(2025, 1, 6, 14, 59), zone="Asia/Tokyo")
    first, second = run_reference(job, [Epoch((*elements, Element(("b",), utc(2025, 1, 6, 16), zone="UTC"))), Epoch((late,))])
    # Berlin and Paris have the same days, and Berlin's has not ended.
    assert [(pane.window, pane.result) for pane in first.panes] == [(Window(utc(2025, 1, 5, 15), utc(2025, 1, 6, 15)), 2)]
    assert second.late == (late,)
    assert {(each.window.start, each.elements) for each in second.open_windows if each.key == ("a",)} == {(utc(2025, 1, 5, 23), 2)}


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(DurationError, match="not a whole number of days"):
        LocalWindows(Sliding(DAY_MS, HOUR), "Asia/Tokyo")
    with pytest.raises(DefinitionError, match="no zone"):
        LocalWindows(DAYS)
    with pytest.raises(DefinitionError, match="both zone and zone_by"):
        LocalWindows(DAYS, "Asia/Tokyo", "zone")
    with pytest.raises(DefinitionError, match="processing time"):
        LocalWindows(Tumbling(DAY_MS, domain="processing"), "Asia/Tokyo")
    with pytest.raises(DefinitionError, match="'Mars/Olympus' is no time zone"):
        LocalWindows(DAYS, zone_by="zone").assign_in("Mars/Olympus", 0)
    with pytest.raises(DefinitionError, match="has no zone: zone is null"):
        LocalWindows(DAYS, zone_by="zone").assign(0)


def test_bounds_of_open_windows() -> None:
    now = utc(2025, 3, 30, 12)
    assert LocalWindows(DAYS, "Europe/Berlin").open_from(now) == utc(2025, 3, 29, 23)
    assert LocalWindows(Sliding(DAY_MS, 3 * DAY_MS), "Europe/Berlin").open_from(utc(1970, 1, 2, 12)) == utc(1970, 1, 2, 12)
    assert LocalWindows(DAYS, zone_by="zone").open_from(now) <= now - 25 * HOUR


def test_far_times_have_windows() -> None:
    for moment in (-(10**16), 10**16):
        (window,) = LocalWindows(DAYS, "Europe/Berlin").assign(moment)
        assert window.start <= moment < window.end
    assert date.min.year == 1


@given(
    st.sampled_from(ZONES),
    st.sampled_from([DAYS, Tumbling(7 * DAY_MS, 4 * DAY_MS), Sliding(3 * DAY_MS, 2 * DAY_MS), HOURS]),
    st.sampled_from(YEARS),
    st.integers(0, 365 * 24),
    st.integers(1, 20 * 24),
)
def test_starts_between_two_are_those_of_windows(
    zone: str, windows: Tumbling | Sliding | Cumulative, year: int, hour: int, hours: int
) -> None:
    assigner, first = LocalWindows(windows, zone), utc(year, 1, 1) + hour * HOUR
    last = first + hours * HOUR
    found = {window.start for at in (*range(first, last, HOUR), last - 1) for window in assigner.assign(at)}
    assert assigner.starts_between(first, last) == len([start for start in found if first < start < last])


def test_a_day_that_was_skipped_is_not_missing() -> None:
    apia = LocalWindows(DAYS, "Pacific/Apia")
    (before,), (after,) = apia.assign(utc(2011, 12, 30, 9)), apia.assign(utc(2011, 12, 30, 10))
    assert before.end == after.start == utc(2011, 12, 30, 10)
    assert apia.starts_between(before.start, after.start) == 0
    assert apia.starts_between(before.start, after.end) == 1
