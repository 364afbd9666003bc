"""Custom aggregates: from SQL expressions, or from Python functions."""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tidemark.errors import DefinitionError
from tidemark.graph.aggregates.aggregate_arguments import in_template, sql_argument
from tidemark.graph.model.aggregates import Aggregate, Partial, PythonFunction
from tidemark.graph.model.call_site import call_site

State = TypeVar("State")
_declared = itertools.count(1)


def sql_aggregate(partials: Mapping[str, tuple[str, str]], result: str) -> Aggregate:
    """Declare an aggregate by SQL.

    Args:
        partials: by name, the aggregate expression that makes a partial from elements, and the one that merges partials. Merging must
            not depend on order or grouping, and gives the type that creating gave. In ``create``, ``{order}`` is a struct that orders
            elements by (event time, source position); in ``merge``, ``{name}`` is a partial's column. Braces of SQL are doubled.
        result: scalar expression over ``{name}``; its type is the result's.

    Raises:
        DefinitionError: no partial, a name that is no identifier, an unknown placeholder.

    >>> sql_aggregate({"weight": ("sum(w)", "sum({weight})"), "total": ("sum(w * x)", "sum({total})")}, "{total} / {weight}").kind
    'sql_aggregate'
    """
    if not partials:
        raise DefinitionError(
            "sql_aggregate: no partials are given", fix="pass partials={'total': ('sum(x)', 'sum({total})')}", place=call_site()
        )
    names = frozenset(partials)
    for name, (create, merge) in partials.items():
        if not name.isidentifier() or name == "order":
            raise DefinitionError(
                f"sql_aggregate: a partial may not be named {name!r}",
                fix="use letters, digits and underscores, and not 'order'",
                place=call_site(),
            )
        _check_placeholders(f"create of {name!r}", create, frozenset({"order"}))
        _check_placeholders(f"merge of {name!r}", merge, names)
    _check_placeholders("result", result, names)
    made = tuple(Partial(name, create.strip(), merge.strip()) for name, (create, merge) in partials.items())
    return Aggregate("sql_aggregate", (), made, result.strip())


def _check_placeholders(what: str, template: str, allowed: frozenset[str]) -> None:
    text = sql_argument("sql_aggregate", template)
    listed = ", ".join(f"{{{name}}}" for name in sorted(allowed))
    try:
        found = {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}
    except ValueError as error:
        raise DefinitionError(
            f"sql_aggregate: the braces in {what}, {text!r}, do not match ({error})",
            fix=f"write {listed}, and braces of SQL itself twice",
            place=call_site(),
        ) from error
    unknown = sorted(found - allowed)
    if unknown:
        raise DefinitionError(
            f"sql_aggregate: {{{unknown[0]}}} in {what}, {text!r}, stands for nothing",
            fix=f"write {listed}, and braces of SQL itself twice",
            place=call_site(),
        )


def python_aggregate(
    create: Callable[[], State],
    add: Callable[..., State],
    merge: Callable[[State, State], State],
    result: Callable[[State], object],
    *,
    arguments: Sequence[str],
    state: str,
    returns: str,
) -> Aggregate:
    """Declare an aggregate by Python functions. They must be free of side effects; values are plain Python, structs are dicts.

    Args:
        create: returns an empty state; called per key, window and epoch.
        add: ``add(state, *values)`` returns the state with an element added; called in order of (event time, source position) within
            an epoch. Nulls come as None.
        merge: ``merge(state, state)`` returns both as one; called with the state of the earlier first element first. Must not depend
            on how elements were grouped.
        result: turns a state into the result.
        arguments: SQL expressions over the columns, the ``values`` of add; at least one.
        state: type of the state, such as ``"BIGINT"`` or ``"n BIGINT, total DOUBLE"`` (a dict with these keys). It is
            stored between epochs.
        returns: type of the result.

    All elements of a key, window and epoch are passed at once: for computations that SQL cannot express, many times slower than SQL.

    Raises:
        DefinitionError: no arguments, an empty type, something that cannot be called.
    """
    for name, function in (("create", create), ("add", add), ("merge", merge), ("result", result)):
        if not callable(function):
            raise DefinitionError(
                f"python_aggregate: {name}={function!r} cannot be called", fix=f"pass a function as {name}", place=call_site()
            )
    for name, text in (("state", state), ("returns", returns)):
        if not text.strip():
            raise DefinitionError(
                f"python_aggregate: {name}={text!r} is not a type", fix=f"pass an SQL type, such as {name}='BIGINT'", place=call_site()
            )
    if isinstance(arguments, str) or not arguments:
        raise DefinitionError(
            f"python_aggregate: arguments={arguments!r} is not a list of SQL expressions",
            fix="pass a list, such as arguments=['fare']",
            place=call_site(),
        )
    values = tuple(sql_argument("python_aggregate", each) for each in arguments)
    # Unique in this process; names do not enter what is recorded of an aggregate.
    prefix = f"tm_python_aggregate_{next(_declared)}"
    functions = (
        PythonFunction(f"{prefix}_fold", FoldElements(create, add), state),
        PythonFunction(f"{prefix}_merge", MergeStates(merge), state),
        PythonFunction(f"{prefix}_result", StateResult(result), returns),
    )
    row = f"named_struct('order', {{order}}, 'values', struct({', '.join(map(in_template, values))}))"
    partials = (
        Partial("since", "min({order})", "min({since})"),
        Partial(
            "state",
            f"{prefix}_fold(collect_list({row}))",
            f"{prefix}_merge(collect_list(named_struct('order', {{since}}, 'state', {{state}})))",
        ),
    )
    return Aggregate("python_aggregate", values, partials, f"{prefix}_result({{state}})", functions)


@dataclass(frozen=True)
class FoldElements:
    """Makes a state from the elements of one key, window and epoch: called with rows of ``order`` and ``values``."""

    create: Callable[[], object]
    add: Callable[..., object]

    def __call__(self, rows: Sequence[Mapping[str, object]]) -> object:
        """Return the state."""
        state = self.create()
        for row in sorted(rows, key=_order):
            values = row["values"]
            state = self.add(state, *map(plain, values.values() if isinstance(values, dict) else values))  # type: ignore[call-overload]
        return state


@dataclass(frozen=True)
class MergeStates:
    """Merges states of one key and window: called with rows of ``order``, that of the first element, and ``state``."""

    merge: Callable[..., object]

    def __call__(self, rows: Sequence[Mapping[str, object]]) -> object:
        """Return the merged state."""
        states = [plain(row["state"]) for row in sorted(rows, key=_order)]
        merged = states[0]
        for state in states[1:]:
            merged = self.merge(merged, state)
        return merged


@dataclass(frozen=True)
class StateResult:
    """Turns a state into the result."""

    result: Callable[..., object]

    def __call__(self, state: object) -> object:
        """Return the result."""
        return self.result(plain(state))


def plain(value: object) -> object:
    """Return a value as plain Python: Spark's rows become dicts, at any depth."""
    as_dict = getattr(value, "asDict", None)
    if as_dict is not None:
        value = as_dict()
    if isinstance(value, dict):
        return {plain(key) if isinstance(key, tuple) else key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def _order(row: Mapping[str, object]) -> tuple[object, ...]:
    return _comparable(row["order"])


def _comparable(value: object) -> tuple[object, ...]:
    """Return a value that compares as Spark's structs do: field by field, null first."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple):
        return (True, *(_comparable(item) for item in value))
    return (value is not None, 0 if value is None else value)
