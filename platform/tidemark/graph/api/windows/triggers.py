"""Declares triggers: when a window fires."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from tidemark.durations import Duration, to_ms
from tidemark.errors import DefinitionError
from tidemark.graph.aggregates.aggregate_arguments import whole_number
from tidemark.graph.api.windows.thresholds import finite
from tidemark.graph.expressions.function_checks import check_takes
from tidemark.graph.model.call_site import call_site, with_call_site
from tidemark.semantics.triggers.builtin_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EachEpochTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from tidemark.semantics.triggers.triggers import Trigger

MAX_ELEMENTS = 2**53
"""The greatest number of elements that a trigger or an evictor counts to."""

_PROTOCOL = ("can_merge", "on_element", "on_event_time", "on_processing_time", "on_epoch_end", "on_merge", "describe")


def event_time_trigger(*, early: Trigger | None = None, late: Trigger | None = None) -> EventTimeTrigger:
    """Fire when the watermark reaches the window's end, and then for late elements; the default of windows of event time.

    Args:
        early: decides on panes before that, such as ``count_trigger(100)`` or ``continuous_processing_time_trigger("1 minute")``.
        late: decides on panes after that, while lateness is allowed; without it every epoch with late elements fires once.

    Raises:
        DefinitionError: ``early`` or ``late`` is not a trigger.

    >>> event_time_trigger(early=count_trigger(100)).early.count
    100
    """
    place = call_site()
    given = {name: value if value is None else require_trigger(value, name, place) for name, value in (("early", early), ("late", late))}
    return EventTimeTrigger(**given)


def processing_time_trigger() -> ProcessingTimeTrigger:
    """Fire when processing time reaches the window's end; the default of windows of processing time."""
    return ProcessingTimeTrigger()


def continuous_event_time_trigger(interval: Duration) -> ContinuousEventTimeTrigger:
    """Fire each time the watermark passes a multiple of the interval, and at the window's end.

    Args:
        interval: of event time, more than 0; its multiples are counted from 1970-01-01 UTC.

    Raises:
        DurationError: the interval cannot be read or is not positive.

    >>> continuous_event_time_trigger("10 minutes").interval_ms
    600000
    """
    return ContinuousEventTimeTrigger(to_ms(interval, what="interval", minimum=1, place=call_site()))


def continuous_processing_time_trigger(interval: Duration) -> ContinuousProcessingTimeTrigger:
    """Fire each time processing time passes a multiple of the interval while the window has elements; epochs are run for it.

    Alone it ignores the watermark: windows of event time fire at their end, too, when it is the ``early`` of an
    ``event_time_trigger``.

    Args:
        interval: of processing time, more than 0; its multiples are counted from 1970-01-01 UTC.

    Raises:
        DurationError: the interval cannot be read or is not positive.

    >>> continuous_processing_time_trigger("1 minute").interval_ms
    60000
    """
    return ContinuousProcessingTimeTrigger(to_ms(interval, what="interval", minimum=1, place=call_site()))


def count_trigger(n: int) -> CountTrigger:
    """Fire when ``n`` more elements have come to the window, at the end of the epoch that brought the last of them.

    An epoch that brings several times ``n`` fires once; where groups must have exactly ``n`` elements, use ``count_window(n)``.

    Raises:
        DefinitionError: ``n`` is not a whole number of 1 or more.

    >>> count_trigger(100).count
    100
    """
    with with_call_site(call_site()):
        return CountTrigger(whole_number("count_trigger", "n", n, minimum=1, maximum=MAX_ELEMENTS))


def delta_trigger(threshold: float, delta: Callable[..., float]) -> DeltaTrigger:
    """Fire when an element is further than the threshold from the one at which the window fired last (at first, from the first).

    Not for sessions. The engine keeps the windows' elements, and calls the function for each.

    Args:
        threshold: a number; fires where the delta is greater.
        delta: ``delta(last, element)`` of two dicts of the stream's columns; returns a number.

    Raises:
        DefinitionError: the threshold is not a number, or the function does not take two arguments.

    >>> delta_trigger(10, lambda last, element: element["speed"] - last["speed"]).threshold
    10
    """
    place = call_site()
    with with_call_site(place):
        fix = "pass a function of two elements: tm.delta_trigger(10, lambda last, element: element['speed'] - last['speed'])"
        check_takes(delta, "delta_trigger", count=2, fix=fix, place=place)
        return DeltaTrigger(finite("delta_trigger", threshold), delta)


def each_epoch_trigger() -> EachEpochTrigger:
    """Fire at the end of every epoch that brought the window elements."""
    return EachEpochTrigger()


def never_trigger() -> NeverTrigger:
    """Never fire, not even at the end of input."""
    return NeverTrigger()


def purging_trigger(trigger: Trigger) -> PurgingTrigger:
    """Drop a window's elements after each pane, so that every pane holds only elements that came since the one before.

    ``.discarding()`` on the windowed stream does the same to the trigger in effect.

    Raises:
        DefinitionError: not a trigger, or one that purges already.

    >>> purging_trigger(count_trigger(10)).inner.count
    10
    """
    place = call_site()
    inner = require_trigger(trigger, "purging_trigger", place)
    if isinstance(inner, PurgingTrigger):
        raise DefinitionError(f"purging_trigger({inner.describe()}) purges twice", fix="wrap the trigger once", place=place)
    return PurgingTrigger(inner)


def require_trigger(trigger: object, what: str, place: str) -> Trigger:
    """Return a trigger if it is one.

    Args:
        trigger: the user's value.
        what: the name of the argument, for the error.
        place: file and line of the definition.

    Raises:
        DefinitionError: it is none; names what it lacks.
    """
    lacking = [name for name in _PROTOCOL if not hasattr(trigger, name)]
    if not lacking and not isinstance(trigger, type):
        return cast("Trigger", trigger)
    name = getattr(trigger, "__name__", "")
    if isinstance(trigger, type):
        wrong, fix = f"the class {name}", f"pass an object: {name}(...)"
    elif callable(trigger):
        wrong, fix = f"the function {name or repr(trigger)}", f"call the function: tm.{name or 'count_trigger'}(...)"
    else:
        wrong = repr(trigger)
        fix = "pass one, such as tm.count_trigger(100)"
        if 0 < len(lacking) < len(_PROTOCOL):
            wrong, fix = f"{wrong}, which lacks {', '.join(lacking)}", "give it all members of tm.Trigger"
    raise DefinitionError(f"{what} is given {wrong}, not a trigger", fix=fix, place=place)
