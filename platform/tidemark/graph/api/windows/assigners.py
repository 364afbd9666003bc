"""Declares window assigners."""

from __future__ import annotations

from difflib import get_close_matches
from typing import get_args, overload

from tidemark.durations import Duration, to_ms
from tidemark.errors import DefinitionError, DurationError
from tidemark.graph.model.call_site import call_site, with_call_site
from tidemark.names import is_blank
from tidemark.semantics.windows.assigners import CountWindows, Cumulative, DynamicSession, GlobalWindows, Session, Sliding, Tumbling
from tidemark.semantics.windows.local_time import is_zone, no_database, zone_names
from tidemark.semantics.windows.local_windows import LocalWindows
from tidemark.semantics.windows.windows import TimeDomain

_OFFSETS_FROM = -(2**53)


@overload
def tumbling(size: Duration, *, offset: Duration = ..., time: TimeDomain = ..., zone: None = ..., zone_by: None = ...) -> Tumbling: ...
@overload
def tumbling(size: Duration, *, offset: Duration = ..., time: TimeDomain = ..., zone: str, zone_by: None = ...) -> LocalWindows: ...
@overload
def tumbling(size: Duration, *, offset: Duration = ..., time: TimeDomain = ..., zone: None = ..., zone_by: str) -> LocalWindows: ...
def tumbling(
    size: Duration, *, offset: Duration = "0 seconds", time: TimeDomain = "event", zone: str | None = None, zone_by: str | None = None
) -> Tumbling | LocalWindows:
    """Return windows of one size, side by side, aligned to 1970-01-01 UTC plus the offset.

    With a zone, which takes sizes of whole days, they are days of that zone: from local midnight plus the offset to the next, which is
    23 to 25 hours later where clocks change. A day without a midnight begins at its first instant.

    Args:
        size: length of a window, more than 0.
        offset: shifts all windows; less than ``size`` either way. ``tumbling("1 day", offset="-8 hours")`` are days in UTC+8.
        time: ``"event"``, or ``"processing"`` for windows of the time at which an epoch runs; in these nothing is ever late.
        zone: the name of a time zone, such as ``"Asia/Tokyo"``, for windows of its local days; of event time only.
        zone_by: SQL expression over the stream's columns that gives each element the name of its zone, instead of ``zone``. Null, or
            a name that Spark does not know, ends the job with an error.

    Raises:
        DurationError: a duration cannot be read or is out of range.
        DefinitionError: another time, or a zone that does not exist.

    >>> tumbling("1 hour").size_ms
    3600000
    >>> tumbling("1 day", zone="Asia/Tokyo").describe()
    "tumbling('1d', zone='Asia/Tokyo')"
    """
    place = call_site()
    with with_call_site(place):
        windows = Tumbling(
            to_ms(size, what="size", minimum=1, place=place),
            to_ms(offset, what="offset", minimum=_OFFSETS_FROM, place=place),
            _domain("tumbling", time),
        )
        return windows if zone is None and zone_by is None else _local(windows, zone, zone_by)


@overload
def sliding(
    size: Duration, slide: Duration, *, offset: Duration = ..., time: TimeDomain = ..., zone: None = ..., zone_by: None = ...
) -> Sliding: ...
@overload
def sliding(
    size: Duration, slide: Duration, *, offset: Duration = ..., time: TimeDomain = ..., zone: str, zone_by: None = ...
) -> LocalWindows: ...
@overload
def sliding(
    size: Duration, slide: Duration, *, offset: Duration = ..., time: TimeDomain = ..., zone: None = ..., zone_by: str
) -> LocalWindows: ...
def sliding(
    size: Duration,
    slide: Duration,
    *,
    offset: Duration = "0 seconds",
    time: TimeDomain = "event",
    zone: str | None = None,
    zone_by: str | None = None,
) -> Sliding | LocalWindows:
    """Return windows of one size, a new one every slide, aligned to 1970-01-01 UTC plus the offset.

    An element is in each window that covers it. With a slide greater than the size there are gaps, whose elements belong to no window:
    they count as late.

    Args:
        size: length of a window, more than 0.
        slide: from the start of a window to that of the next, more than 0.
        offset: shifts all windows; less than ``slide`` either way.
        time: ``"event"`` or ``"processing"``, as in ``tumbling``.
        zone: for windows of local days, as in ``tumbling``; size and slide are whole days.
        zone_by: the same with a zone of each element.

    Raises:
        DurationError: a duration cannot be read or is out of range.
        DefinitionError: another time, or a zone that does not exist.

    >>> sliding("24 hours", "15 minutes").slide_ms
    900000
    """
    place = call_site()
    with with_call_site(place):
        windows = Sliding(
            to_ms(size, what="size", minimum=1, place=place),
            to_ms(slide, what="slide", minimum=1, place=place),
            to_ms(offset, what="offset", minimum=_OFFSETS_FROM, place=place),
            _domain("sliding", time),
        )
        return windows if zone is None and zone_by is None else _local(windows, zone, zone_by)


@overload
def cumulative(
    max_size: Duration, step: Duration, *, offset: Duration = ..., time: TimeDomain = ..., zone: None = ..., zone_by: None = ...
) -> Cumulative: ...
@overload
def cumulative(
    max_size: Duration, step: Duration, *, offset: Duration = ..., time: TimeDomain = ..., zone: str, zone_by: None = ...
) -> LocalWindows: ...
@overload
def cumulative(
    max_size: Duration, step: Duration, *, offset: Duration = ..., time: TimeDomain = ..., zone: None = ..., zone_by: str
) -> LocalWindows: ...
def cumulative(
    max_size: Duration,
    step: Duration,
    *,
    offset: Duration = "0 seconds",
    time: TimeDomain = "event",
    zone: str | None = None,
    zone_by: str | None = None,
) -> Cumulative | LocalWindows:
    """Return windows that begin together and end step by step, until the greatest size is reached and the next ones begin.

    ``cumulative("1 day", "1 hour")`` gives for each day the windows from midnight to 1:00, to 2:00, … to midnight.

    Args:
        max_size: length of the longest window, a multiple of ``step``.
        step: length of the shortest window, more than 0.
        offset: shifts all windows; less than ``max_size`` either way.
        time: ``"event"`` or ``"processing"``, as in ``tumbling``.
        zone: for windows of local days, as in ``tumbling``; the greatest size is whole days. A step is one of the zone's clocks: where an
            hour is repeated, the step that has it is longer, and a step that is skipped has no window.
        zone_by: the same with a zone of each element.

    Raises:
        DurationError: a duration cannot be read or is out of range, or the step does not divide the greatest size.
        DefinitionError: another time, or a zone that does not exist.

    >>> cumulative("1 day", "1 hour").step_ms
    3600000
    """
    place = call_site()
    with with_call_site(place):
        windows = Cumulative(
            to_ms(max_size, what="max_size", minimum=1, place=place),
            to_ms(step, what="step", minimum=1, place=place),
            to_ms(offset, what="offset", minimum=_OFFSETS_FROM, place=place),
            _domain("cumulative", time),
        )
        return windows if zone is None and zone_by is None else _local(windows, zone, zone_by)


def session(gap: Duration | None = None, *, gap_by: str | None = None, time: TimeDomain = "event") -> Session | DynamicSession:
    """Return windows that last while a key's elements are not further apart than the gap.

    An element at ``t`` alone has the window ``[t, t + gap)``; windows that overlap or touch are merged. Results have one column more,
    ``replaces ARRAY<STRUCT<window_start: TIMESTAMP, window_end: TIMESTAMP>>``: the bounds of each session whose emitted result this one
    replaces, its own earlier bounds included.

    Args:
        gap: one gap for all elements, more than 0.
        gap_by: SQL expression over the stream's columns that gives each element its own: a whole number of milliseconds or an
            INTERVAL, more than 0. An element without one ends the job with an error.
        time: ``"event"`` or ``"processing"``, as in ``tumbling``.

    Raises:
        DefinitionError: not exactly one of ``gap`` and ``gap_by``, or another time.
        DurationError: the gap cannot be read or is not positive.

    >>> session("30 minutes").gap_ms
    1800000
    """
    place = call_site()
    if (gap is None) == (gap_by is None):
        raise DefinitionError(
            f"session is given {'no gap' if gap is None else 'both gap and gap_by'}",
            fix="give one of them: session('30 minutes'), or session(gap_by='if(vip, 3600000, 1800000)')",
            place=place,
        )
    with with_call_site(place):
        domain = _domain("session", time)
        if gap is not None:
            return Session(_gap_ms(gap, place), domain)
        if gap_by is None or is_blank(gap_by):
            raise DefinitionError(
                f"session(gap_by={gap_by!r}) is not an SQL expression",
                fix="give one over the stream's columns, such as gap_by='timeout_ms' or gap_by='INTERVAL 5 MINUTES'",
            )
        return DynamicSession(gap_by.strip(), domain)


def _gap_ms(gap: Duration, place: str) -> int:
    try:
        return to_ms(gap, what="gap", minimum=1, place=place)
    except DurationError as error:
        if isinstance(gap, str) and gap.strip() and not gap.strip()[0].isdigit() and not gap.strip().startswith("-"):
            fix = f"write a duration, such as session('30 minutes'); a gap that each row has is an SQL expression: session(gap_by={gap!r})"
            raise DurationError(error.what, fix=fix, place=place) from None
        raise


def count_window(size: int, slide: int | None = None) -> CountWindows:
    """Return groups by number, per key, in the order of elements: exact, however the input is cut into epochs.

    Each ``size`` elements are a group; with ``slide``, after each ``slide`` elements the last ``size`` or fewer are. ``window_start``
    and ``window_end`` are null, ``pane_index`` numbers the groups of a key, and nothing is ever late.

    Args:
        size: elements in a group, 1 or more.
        slide: elements between two groups, 1 or more.

    Raises:
        DurationError: size or slide is not a positive whole number.

    >>> count_window(100, 10).slide
    10
    """
    with with_call_site(call_site()):
        return CountWindows(size, slide)


def global_window() -> GlobalWindows:
    """Return one window per key for all of time. It needs a trigger, such as ``count_trigger(100)``, and its state never expires.

    ``event_time_trigger()`` fires it at the end of input only. ``window_start`` and ``window_end`` are null, and nothing is ever late.

    >>> global_window().describe()
    'global_window()'
    """
    return GlobalWindows()


def _local(windows: Tumbling | Sliding | Cumulative, zone: object, zone_by: object) -> LocalWindows:
    if zone is not None and not (isinstance(zone, str) and is_zone(zone)):
        raise _unknown_zone(zone)
    if zone_by is not None and (not isinstance(zone_by, str) or is_blank(zone_by)):
        raise DefinitionError(
            f"zone_by={zone_by!r} is not an SQL expression", fix="give one over the stream's columns, such as zone_by='city_zone'"
        )
    return LocalWindows(windows, zone, zone_by.strip() if zone_by is not None else None)


def _unknown_zone(zone: object) -> DefinitionError:
    if not zone_names():
        return no_database()
    names = {name.lower(): name for name in sorted(zone_names())}
    near = get_close_matches(str(zone).strip().replace(" ", "_").lower(), names, n=1)
    advice = f"did you mean zone={names[near[0]]!r}?" if near else "give a name of the IANA database, such as zone='Europe/Berlin'."
    return DefinitionError(f"zone={zone!r} is no time zone", fix=f"{advice} A column with the zone of each row is zone_by='city_zone'")


def _domain(function: str, time: TimeDomain) -> TimeDomain:
    if time not in get_args(TimeDomain):
        raise DefinitionError(f"{function}(time={time!r}) is not a time", fix="use time='event' or time='processing'")
    return time
