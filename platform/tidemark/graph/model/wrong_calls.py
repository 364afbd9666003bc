"""Checks calls of public functions: the error says what is wrong with the arguments, and how the call is written.

Python's own TypeError names neither the user's line nor a fix. Wrapped functions keep their signature for editors and type checkers.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter
from types import FunctionType
from typing import Final, ParamSpec, TypeVar

from tidemark.errors import DefinitionError
from tidemark.graph.model.call_site import call_site

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_SCHEMA = "'zone INT, pickup_at TIMESTAMP'"
_EXAMPLES: Final[Mapping[str, str]] = {
    "add": "add",
    "as_": "'item'",
    "at": "1_000",
    "assigner": "tm.tumbling('1 hour')",
    "bound": "'5 minutes'",
    "by": "'fare'",
    "condition": "'fare > 0'",
    "expression": "'fare'",
    "format": "'json'",
    "lateness": "'10 minutes'",
    "name": "'fares'",
    "outputs": "{'fares': tm.delta(stream, 'warehouse/fares')}",
    "p": "0.95",
    "path": "'warehouse/fares'",
    "returns": "'zone INT, fare DOUBLE'",
    "rows_per_second": "10",
    "schema": _SCHEMA,
    "size": "'1 hour'",
    "slide": "'10 minutes'",
    "spec": f"tm.files('landing', format='json', schema={_SCHEMA})",
    "tag": "tm.OutputTag('late')",
    "timestamp": "'pickup_at'",
    "uid": "'hourly'",
    "within": "'1 hour'",
    "watermarks": "tm.bounded_out_of_orderness('5 minutes', timestamp='pickup_at')",
}
"""Example values by parameter name; other parameters are shown by their name."""

_NOT_HERE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("partition_by", "partitionby", "partitions_by"), "tables are not partitioned: leave it out"),
    **dict.fromkeys(("checkpoint", "checkpoint_location", "checkpointlocation"), "a job's place is store="),
    **dict.fromkeys(("master", "conf"), "build a session with it: spark=SparkSession.builder.master('local[2]').getOrCreate()"),
    **dict.fromkeys(("watermark", "with_watermark"), "write watermarks="),
}
"""What to write instead of other libraries' keywords."""


_OF_METHODS: Final[Mapping[tuple[str, str], str]] = {
    ("Stream.process", "state"): "state is kept by key: key the stream, .key_by('zone').process(..., state=...)",
}
"""What to write instead of a keyword that another step's method of the same name has."""

_MEANINGS: Final[Mapping[tuple[str, str], str]] = {
    ("OperatorHarness.process", "at"): "the event time of the element: milliseconds since 1970 UTC, or a datetime with a time zone; "
    "it is not taken from the row, since the harness evaluates no SQL",
}
"""What an argument is, by method and name, where the name alone does not say what to give."""


def checked_call(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that raises a DefinitionError if it is called with wrong arguments.

    Raises:
        DefinitionError: by the function returned; names the line and how the call is written.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            # An error of the call itself comes from here, before a line of the function has run.
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            refused = _refused(function, args, kwargs)
            if refused is None:
                raise
        raise refused

    return call


def checked_methods(*special: str) -> Callable[[type[T]], type[T]]:
    """Return a decorator of classes: calls of their public methods, and of special ones, are checked as ``checked_call`` does."""

    def decorate(kind: type[T]) -> type[T]:
        for name, member in list(vars(kind).items()):
            if isinstance(member, FunctionType) and (not name.startswith("_") or name in special):
                setattr(kind, name, checked_call(member))
        return kind

    return decorate


def _refused(function: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]) -> DefinitionError | None:
    """Return the error of a call, None if it matches the signature."""
    parameters = inspect.signature(function).parameters
    ours = list(parameters.values())
    if ours and ours[0].name == "self":
        ours, args = ours[1:], args[1:]
    wrong = [*_surplus(ours, args), *_unknown(ours, kwargs), *_missing(function.__qualname__, ours, len(args), kwargs)]
    if not wrong:
        return None
    called = _name(function)
    unknown = [name for name in kwargs if name not in parameters]
    meant = [_OF_METHODS.get((function.__qualname__, name)) or _NOT_HERE.get(name.lower()) for name in unknown]
    instead = "".join(f"{each}; " for each in meant if each)
    return DefinitionError(f"{called}(...) {' and '.join(wrong)}", fix=f"{instead}write {_written(called, ours)}", place=call_site())


def _surplus(ours: list[Parameter], args: tuple[object, ...]) -> list[str]:
    if any(each.kind is Parameter.VAR_POSITIONAL for each in ours):
        return []
    taken = [each.name for each in ours if each.kind in {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}]
    if len(args) <= len(taken):
        return []
    named = f"takes {len(taken)} ({', '.join(taken)})" if taken else "takes none: each needs its name"
    return [f"is given {len(args)} argument{'s' if len(args) > 1 else ''} without a name, and {named}"]


def _unknown(ours: list[Parameter], kwargs: Mapping[str, object]) -> list[str]:
    if any(each.kind is Parameter.VAR_KEYWORD for each in ours):
        return []
    known = [each.name for each in ours if each.kind is not Parameter.VAR_POSITIONAL]
    found = []
    for name in kwargs:
        if name not in known:
            near = difflib.get_close_matches(name.lower(), known, n=1)
            found.append(f"has no argument {name!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
    return found


def _missing(method: str, ours: list[Parameter], positional: int, kwargs: Mapping[str, object]) -> list[str]:
    by_place = [each for each in ours if each.kind in {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}]
    given = {each.name for each in by_place[:positional]} | set(kwargs)
    names = [each.name for each in ours if _is_required(each) and each.name not in given]
    plain = [name for name in names if (method, name) not in _MEANINGS]
    explained = [f"{name}=, {_MEANINGS[method, name]}" for name in names if name not in plain]
    return [f"lacks {' and '.join([*([', '.join(plain)] if plain else []), *explained])}"] if names else []


def _is_required(parameter: Parameter) -> bool:
    return parameter.default is Parameter.empty and parameter.kind not in {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}


def _name(function: Callable[..., object]) -> str:
    owner, _, name = function.__qualname__.rpartition(".")
    if not owner:
        return f"tm.{name}"
    return f"tm.{owner}" if name == "__init__" else f".{name}"


def _written(called: str, ours: list[Parameter]) -> str:
    """Return how a call is written: required arguments with examples, and the names of optional ones."""
    needed = [_example(each) for each in ours if _is_required(each)]
    needed += ["'column', ..." for each in ours if each.kind is Parameter.VAR_POSITIONAL and not needed]
    needed += ["name=..." for each in ours if each.kind is Parameter.VAR_KEYWORD]
    more = [f"{each.name}=" for each in ours if each.default is not Parameter.empty]
    return f"{called}({', '.join(needed)})" + (f"; besides there are {', '.join(more)}" if more else "")


def _example(parameter: Parameter) -> str:
    value = _EXAMPLES.get(parameter.name, parameter.name)
    return f"{parameter.name}={value}" if parameter.kind is Parameter.KEYWORD_ONLY else value
