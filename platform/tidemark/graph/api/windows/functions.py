"""Declares Python functions over whole windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from tidemark.errors import DefinitionError
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.expressions.function_checks import check_takes
from tidemark.graph.expressions.name_checks import check_column_names
from tidemark.graph.model.aggregates import Aggregate
from tidemark.graph.model.call_site import call_site
from tidemark.graph.operators.window.node import WindowFunction

_FIX = "pass a function of the elements and the context: {call}(function, returns='n BIGINT')"


def window_function(function: Callable[..., object], returns: str, *, batches: bool = False) -> WindowFunction:
    """Return a function over a window's elements, for ``process``, or over the result of aggregates, for ``aggregate``.

    Called once per pane, as ``function(elements, context)``; yields any number of result rows as dicts. It must be free of side
    effects: a replayed epoch calls it again.

    Args:
        function: ``elements`` are the window's elements as dicts of the stream's columns, in the order they came in: epoch by epoch,
            in an epoch by event time and source position. Behind ``aggregate`` there is one: a dict of the aggregates by name.
            ``context`` is a ``WindowContext``: ``key`` (dict), ``window`` (``start`` and ``end`` in milliseconds; None for count and
            global windows), ``watermark``, ``processing_time``, ``timing``, ``index``, and two dicts of plain values to keep:
            ``window_state``, which is dropped with the window (sessions have none), and ``key_state``, which stays with the key.
        returns: Spark DDL of the result rows' columns.
        batches: pass the elements as an iterator of ``pyarrow.RecordBatch``, which is far faster.

    Raises:
        DefinitionError: ``returns`` cannot be read, or the function does not take two arguments.

    >>> def spread(elements, context):
    ...     fares = [element["fare"] for element in elements]
    ...     yield {"spread": max(fares) - min(fares)}
    >>> window_function(spread, "spread DOUBLE").returns
    'spread DOUBLE'
    """
    return _declared("window_function", function, returns, batches=batches, place=call_site())


def process_function(function: Callable[..., object] | WindowFunction, returns: str | None, place: str) -> WindowFunction:
    """Return the argument of ``process`` as a window function.

    Raises:
        DefinitionError: ``returns`` is missing or given twice, or see ``window_function``.
    """
    if isinstance(function, WindowFunction):
        if returns is None:
            return function
        raise DefinitionError(
            f"process is given returns={returns!r}, and a window function that has its own, {function.returns!r}",
            fix="leave returns out: .process(tm.window_function(function, returns='...'))",
            place=place,
        )
    if returns is None:
        check_takes(function, "process", count=2, fix=_FIX.format(call=".process"), place=place)
        raise DefinitionError(
            f"process is given the function {getattr(function, '__name__', function)!r} without the columns that it returns",
            fix="name them with their types: .process(function, returns='n BIGINT, top DOUBLE')",
            place=place,
        )
    return _declared("process", function, returns, batches=False, place=place)


def function_on_results(then: object, aggregates: Mapping[str, object], place: str) -> WindowFunction | None:
    """Return the positional argument of ``aggregate``, if it is a window function over the aggregates' results.

    Raises:
        DefinitionError: it is something else, or there are no aggregates.
    """
    if then is None:
        return None
    if isinstance(then, WindowFunction):
        if aggregates and not then.batches:
            return then
        if aggregates:
            wrong = "a window function on batches, but there is one row of results"
            fix = "leave out batches=True: the function gets the aggregates as a dict"
        else:
            wrong = "a window function, and no aggregate whose result it gets"
            fix = "name the aggregates, such as trips=tm.count(), or pass all elements: .process(...)"
    elif isinstance(then, Aggregate):
        wrong, fix = f"the aggregate {then.kind} without a name", f"name the result column: .aggregate(result=tm.{then.kind}(...))"
    elif callable(then):
        wrong = f"the plain function {getattr(then, '__name__', then)!r}"
        fix = "declare what it returns: .aggregate(tm.window_function(function, returns='n BIGINT'), ...)"
    else:
        wrong, fix = repr(then), "name the aggregates, such as .aggregate(trips=tm.count())"
    raise DefinitionError(f"aggregate is given {wrong}", fix=fix, place=place)


def _declared(operator: str, function: object, returns: object, *, batches: bool, place: str) -> WindowFunction:
    call = "tm.window_function" if operator == "window_function" else f".{operator}"
    check_takes(function, operator, count=2, fix=_FIX.format(call=call), place=place)
    what = f"{operator}(returns=...)"
    schema = parse_schema(cast("str", returns), place=place, what=what)
    check_column_names(schema.names, what, place)
    return WindowFunction(function=cast("Callable[..., object]", function), returns=cast("str", returns), batches=batches, place=place)
