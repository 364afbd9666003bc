"""Windows in the conformance suite: one case for each way in which they are run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import tidemark as tm
from tests.conformance.cases import Case

Tags = Mapping[str, tm.OutputTag]


def tumbling(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return windows that fire again for late elements."""
    windows = stream.key_by("k").window(tm.tumbling("10 seconds")).allowed_lateness("8 seconds").late_to(tags["late"])
    return windows.aggregate(n=tm.count(), most=tm.max("v"))


def sliding(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return windows made of slices."""
    return stream.key_by("k").window(tm.sliding("15 seconds", "5 seconds")).late_to(tags["late"]).aggregate(total=tm.sum("v"))


def local_days(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return days of a zone, of which one ends 10 seconds after the first element."""
    days = tm.tumbling("1 day", offset="13410 seconds", zone="Asia/Kolkata")
    windows = stream.key_by("k").window(days).allowed_lateness("4 seconds").late_to(tags["late"])
    return windows.aggregate(n=tm.count(), most=tm.max("v"))


def sessions(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return sessions."""
    windows = stream.key_by("k").window(tm.session("700 milliseconds")).allowed_lateness("4 seconds").late_to(tags["late"])
    return windows.aggregate(n=tm.count())


def counted(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return groups by number."""
    del tags
    return stream.key_by("k").window(tm.count_window(7)).aggregate(n=tm.count(), most=tm.max("v"))


def early(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return windows whose trigger has a rule."""
    windows = stream.key_by("k").window(tm.tumbling("10 seconds")).trigger(tm.event_time_trigger(early=tm.count_trigger(5)))
    return windows.late_to(tags["late"]).aggregate(n=tm.count())


def processed(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return windows that keep their elements for a function."""
    windows = stream.key_by("k").window(tm.tumbling("10 seconds")).late_to(tags["late"])
    return windows.process(spread, returns="least BIGINT, seen BIGINT")


def spread(elements: Iterable[Mapping[str, int]], context: tm.WindowContext) -> Iterable[dict[str, int]]:
    """Yield the least value, and how many elements of the key there were so far."""
    values = [element["v"] for element in elements]
    seen = context.key_state["seen"] = int(str(context.key_state.get("seen", 0))) + len(values)
    yield {"least": min(values), "seen": seen}


CASES = [
    Case("tumbling", tumbling, ("late",)),
    Case("sliding", sliding, ("late",)),
    Case("local-days", local_days, ("late",), only_long=True),
    Case("sessions", sessions, ("late",)),
    Case("counted", counted),
    Case("early", early, ("late",), in_order=False),
    Case("processed", processed, ("late",)),
]
