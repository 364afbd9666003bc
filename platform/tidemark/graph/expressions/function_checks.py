"""Whether a Python function can be called the way an operator will call it."""

from __future__ import annotations

import inspect

from tidemark.errors import DefinitionError

_COUNTS = {1: "one argument", 2: "two arguments"}


def shown_function(value: object) -> str:
    """Return a function, or what was given in its place, as errors show it: without an address in memory.

    >>> shown_function(len), shown_function(7), shown_function(object())
    ('builtins.len', '7', 'an object of object')
    """
    name = getattr(value, "__qualname__", None)
    if name is not None:
        return f"{getattr(value, '__module__', '')}.{name}".lstrip(".")
    text = repr(value)
    return f"an object of {type(value).__name__}" if " at 0x" in text else text


def check_takes(function: object, operator: str, *, count: int, fix: str, place: str, uid: str | None = None) -> None:
    """Check that a value is a function of a number of arguments; a callable without a signature passes.

    Args:
        function: the user's value.
        operator: the operator that will call it, for the error: ``"map"``.
        count: number of arguments it is called with, 1 or 2.
        fix: the fix, for the error.
        place: file and line of the definition.
        uid: the operator's, if it has one.

    Raises:
        DefinitionError: it is none.
    """
    if not callable(function):
        raise DefinitionError(f"{operator} is given {shown_function(function)}, not a function", fix=fix, uid=uid, place=place)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*[None] * count)
    except TypeError as error:
        name = getattr(function, "__name__", function)
        raise DefinitionError(f"{operator} calls {name!r} with {_COUNTS[count]}: {error}", fix=fix, uid=uid, place=place) from error
