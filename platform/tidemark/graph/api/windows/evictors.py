"""Declares evictors: which elements of a window a process function sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from tidemark.durations import Duration, to_ms
from tidemark.errors import DefinitionError
from tidemark.graph.aggregates.aggregate_arguments import whole_number
from tidemark.graph.api.windows.thresholds import finite
from tidemark.graph.api.windows.triggers import MAX_ELEMENTS
from tidemark.graph.expressions.function_checks import check_takes
from tidemark.graph.model.call_site import call_site, with_call_site
from tidemark.semantics.process.evictors import CountEvictor, DeltaEvictor, Evictor, TimeEvictor

_CALLS = {
    "count_evictor": "tm.count_evictor(100)",
    "time_evictor": "tm.time_evictor('5 minutes')",
    "delta_evictor": "tm.delta_evictor(10, lambda element, last: last['speed'] - element['speed'])",
}


def count_evictor(n: int, *, after: bool = False) -> CountEvictor:
    """Keep the last ``n`` elements of a window, in the order they came in; the others are removed permanently.

    Args:
        n: how many stay, 1 or more.
        after: evict after the function was called rather than before.

    Raises:
        DefinitionError: ``n`` is not a whole number of 1 or more.

    >>> count_evictor(10).count
    10
    """
    with with_call_site(call_site()):
        return CountEvictor(whole_number("count_evictor", "n", n, minimum=1, maximum=MAX_ELEMENTS), after)


def time_evictor(size: Duration, *, after: bool = False) -> TimeEvictor:
    """Keep the elements whose time is less than ``size`` before that of the latest; the others are removed permanently.

    Args:
        size: more than 0.
        after: evict after the function was called rather than before.

    Raises:
        DurationError: the size cannot be read or is not positive.

    >>> time_evictor("5 minutes").size_ms
    300000
    """
    return TimeEvictor(to_ms(size, what="size", minimum=1, place=call_site()), after)


def delta_evictor(threshold: float, delta: Callable[..., float], *, after: bool = False) -> DeltaEvictor:
    """Keep the elements whose delta to the last one is less than the threshold; the others are removed permanently.

    Args:
        threshold: a number; elements with ``delta >= threshold`` are removed.
        delta: ``delta(element, last)`` of two dicts of the stream's columns; returns a number.
        after: evict after the function was called rather than before.

    Raises:
        DefinitionError: the threshold is not a number, or the function does not take two arguments.

    >>> delta_evictor(10, lambda element, last: last["speed"] - element["speed"]).threshold
    10
    """
    place = call_site()
    with with_call_site(place):
        fix = f"pass a function of two elements: {_CALLS['delta_evictor']}"
        check_takes(delta, "delta_evictor", count=2, fix=fix, place=place)
        return DeltaEvictor(finite("delta_evictor", threshold), delta, after)


def require_evictor(evictor: object, place: str) -> Evictor:
    """Return an evictor if it is one.

    Raises:
        DefinitionError: it is none.
    """
    if all(hasattr(evictor, member) for member in ("after", "evicted", "describe")) and not isinstance(evictor, type):
        return cast("Evictor", evictor)
    name = str(getattr(evictor, "__name__", ""))
    wrong = f"the function {name}" if callable(evictor) and name else repr(evictor)
    raise DefinitionError(
        f"evictor is given {wrong}, not an evictor",
        fix=f"pass one, such as {_CALLS.get(name, _CALLS['count_evictor'])}",
        place=place,
    )
