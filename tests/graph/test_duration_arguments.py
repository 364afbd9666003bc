"""Every argument that is a duration: a bare number has no unit and is refused, a timedelta is as good as text."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import tidemark as tm
from tidemark.durations import to_ms
from tidemark.errors import DurationError

rows = tm.source("rows", tm.from_elements([(1,)], schema="t BIGINT"), watermarks=tm.ingestion_time())
windows = rows.window_all(tm.tumbling("1 hour"))

ARGUMENTS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "tumbling": ("size", tm.tumbling),
    "tumbling offset": ("offset", lambda d: tm.tumbling("1 day", offset=d)),
    "sliding": ("size", lambda d: tm.sliding(d, "1 second")),
    "slide": ("slide", lambda d: tm.sliding("1 hour", d)),
    "sliding offset": ("offset", lambda d: tm.sliding("1 day", "1 day", offset=d)),
    "cumulative": ("max_size", lambda d: tm.cumulative(d, "1 second")),
    "step": ("step", lambda d: tm.cumulative("1 hour", d)),
    "cumulative offset": ("offset", lambda d: tm.cumulative("1 day", "1 day", offset=d)),
    "session": ("gap", tm.session),
    "lateness": ("allowed_lateness", windows.allowed_lateness),
    "bound": ("bound", lambda d: tm.bounded_out_of_orderness(d, timestamp="t")),
    "idle_after": ("idle_after", lambda d: tm.bounded_out_of_orderness("1 s", timestamp="t", idle_after=d)),
    "idle_after of ascending": ("idle_after", lambda d: tm.ascending(timestamp="t", idle_after=d)),
    "idle_after of punctuated": ("idle_after", lambda d: tm.punctuated("t", timestamp="t", idle_after=d)),
    "skew": ("max_future_skew", lambda d: tm.ascending(timestamp="t", max_future_skew=d)),
    "event time": ("interval", tm.continuous_event_time_trigger),
    "processing time": ("interval", tm.continuous_processing_time_trigger),
    "evictor": ("size", tm.time_evictor),
}


@pytest.mark.parametrize(("name", "give"), ARGUMENTS.values(), ids=ARGUMENTS)
@pytest.mark.parametrize("number", [3600, 0, -5, 1.5])
def test_a_bare_number_is_refused_with_the_argument_and_the_line(name: str, give: Callable[[Any], object], number: float) -> None:
    with pytest.raises(DurationError, match=re.escape(f"[TM103] {name}={number!r} has no unit")) as caught:
        give(number)
    assert re.search(r"'1 hour'", caught.value.fix), caught.value.fix
    assert (caught.value.place or "").startswith(__file__)


@pytest.mark.parametrize(("name", "give"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_a_timedelta_is_taken_as_text_is(name: str, give: Callable[[Any], object]) -> None:
    del name
    given, said = (getattr(made, "allowed_lateness_ms", made) for made in (give(timedelta(minutes=1)), give("1 minute")))
    assert given == said


def test_a_number_names_both_units_it_may_have_meant() -> None:
    with pytest.raises(DurationError) as caught:
        tm.tumbling(3600)  # type: ignore[call-overload]
    assert "size='3600 seconds' or '3600 ms'" in caught.value.fix
    assert "timedelta(hours=1)" in caught.value.fix


@pytest.mark.parametrize("value", [True, None, "", "3600", "1 hr", "1 month", b"1 hour", timedelta(microseconds=1)])
def test_what_else_is_no_duration(value: Any) -> None:
    with pytest.raises(DurationError, match="size="):
        to_ms(value, what="size")
