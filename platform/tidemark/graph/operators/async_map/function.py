"""The user's asynchronous function: a function, or an object that is opened and closed."""

from __future__ import annotations

from types import FunctionType
from typing import Any


def call_of(function: object) -> Any:  # noqa: ANN401  # as the user wrote it
    """Return what is called with a row: ``invoke`` of an object that has it, else the function, or ``__call__`` of the object."""
    invoke = getattr(function, "invoke", None)
    if invoke is not None:
        return invoke
    if isinstance(function, FunctionType) or not callable(function):
        return function
    # Of an object only the method says that it is asynchronous.
    called = getattr(function, "__call__", None)  # noqa: B004  # it is asked for by name, to be inspected
    return called if hasattr(called, "__func__") and not hasattr(function, "__func__") else function


def lifecycle(function: object, name: str) -> Any:  # noqa: ANN401  # as the user wrote it
    """Return the method ``open`` or ``close``, None where there is none."""
    method = getattr(function, name, None)
    return method if callable(method) else None
