"""Checks of asynchronous enrichment where it is declared."""

from __future__ import annotations

import inspect

from tidemark.errors import DefinitionError
from tidemark.graph.expressions.function_checks import check_takes, shown_function
from tidemark.graph.operators.async_map.function import call_of
from tidemark.graph.operators.async_map.node import AsyncMapNode

MAX_CAPACITY = 10_000
MAX_RETRIES = 100

_FIX = "write async def function(row), or a class with async def invoke(self, row)"


def check_async_function(node: AsyncMapNode) -> None:
    """Check that a function is asynchronous and takes one row, and what opens and closes it takes nothing.

    Raises:
        DefinitionError: it is not, or does not.
    """
    function, call = node.function, call_of(node.function)
    if not callable(call):
        raise _wrong(node, f"async_map is given {shown_function(function)}, not a function", _FIX)
    if inspect.isasyncgenfunction(call):
        raise _wrong(
            node,
            f"async_map is given {node.function_name}, which yields rows, and each element becomes one row",
            "return one row as a dict; for several, return them in an array, and .explode it after",
        )
    if not inspect.iscoroutinefunction(call):
        raise _wrong(
            node,
            f"async_map is given {node.function_name}, which is no async function: it would block all other calls of its task",
            f"{_FIX}; a function that is not asynchronous goes to .map(function, returns=...)",
        )
    check_takes(call, "async_map", count=1, fix=_FIX, place=node.place, uid=node.uid)
    for name in ("open", "close"):
        method = getattr(function, name, None)
        if callable(method):
            _check_takes_none(node, method, name)


def check_settings(node: AsyncMapNode) -> None:
    """Check the numbers of calls.

    Raises:
        DefinitionError: one is out of range.
    """
    settings = node.settings
    for name, value, least, most in (("capacity", settings.capacity, 1, MAX_CAPACITY), ("retries", settings.retries, 0, MAX_RETRIES)):
        if type(value) is not int or not least <= value <= most:
            raise _wrong(
                node, f"async_map({name}={value!r}) is no whole number from {least} to {most:,}", f"give such as {name}={_LIKE[name]}"
            )
    if type(settings.ordered) is not bool:
        raise _wrong(node, f"async_map(ordered={settings.ordered!r}) is neither True nor False", "give one of them")


_LIKE = {"capacity": 100, "retries": 3}


def _check_takes_none(node: AsyncMapNode, method: object, name: str) -> None:
    try:
        inspect.signature(method).bind()  # type: ignore[arg-type]
    except TypeError as error:
        raise _wrong(
            node, f"async_map calls {name} of {node.function_name} without arguments: {error}", f"write def {name}(self)"
        ) from error
    except ValueError:
        return


def _wrong(node: AsyncMapNode, what: str, fix: str) -> DefinitionError:
    return DefinitionError(what, fix=fix, uid=node.uid, place=node.place)
