"""Declares process functions of streams, with and without keys, and asynchronous functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tidemark.errors import DefinitionError
from tidemark.graph.expressions.annotations import KNOWN, field_types
from tidemark.graph.expressions.name_checks import check_tag
from tidemark.graph.model.nodes import Expression, Node, OutputTag
from tidemark.graph.operators.element_process.node import ElementProcessNode
from tidemark.graph.operators.keyed_process.descriptors import declared_states, states_of_class
from tidemark.graph.operators.keyed_process.node import KeyedProcessNode

N = TypeVar("N", bound=KeyedProcessNode)
U = TypeVar("U", bound=ElementProcessNode)


def process_node(
    make: Callable[..., N],
    inputs: tuple[Node, ...],
    keys: tuple[tuple[str, Expression], ...],
    function: object,
    *,
    returns: object,
    state: object,
    side_outputs: object,
    on_error: OutputTag | None,
    place: str,
    **more: object,
) -> N:
    """Return the node of a process function, made with ``more``; the other arguments are those of ``KeyedStream.process``.

    Raises:
        DefinitionError: or one of its kinds.
    """
    made = _instance(function, "process", place)
    return make(
        inputs=inputs,
        keys=keys,
        function=made,
        returns=_ddl(returns, "process(returns=...)", place),
        states=tuple(declared_states(made, state, place).items()),
        fields=isinstance(state, type),
        side_outputs=_side_outputs(side_outputs, place),
        on_error=None if on_error is None else check_tag(on_error, "on_error", place),
        place=place,
        **more,
    )


def element_node(
    make: Callable[..., U],
    inputs: tuple[Node, ...],
    function: object,
    *,
    called: str,
    returns: object,
    side_outputs: object = None,
    on_error: OutputTag | None = None,
    place: str,
    **more: object,
) -> U:
    """Return the node of a function over elements without keys, made with ``more``; ``called`` is the method that it is passed to.

    Raises:
        DefinitionError: or one of its kinds.
    """
    made = _instance(function, called, place)
    states = list(states_of_class(made))
    if states:
        raise DefinitionError(
            f"{called} is given {type(made).__name__}, which has the state {states[0]!r}, and a stream without keys keeps none",
            fix=f"key the stream: .key_by('id').process({type(made).__name__}, ...)",
            place=place,
        )
    return make(
        inputs=inputs,
        function=made,
        returns="" if called == "filter" else _ddl(returns, f"{called}(returns=...)", place),
        side_outputs=_side_outputs(side_outputs, place),
        on_error=None if on_error is None else check_tag(on_error, "on_error", place),
        place=place,
        **more,
    )


def _instance(function: object, called: str, place: str) -> object:
    """Return a function, or an object of a class."""
    if not isinstance(function, type):
        return function
    try:
        return function()
    except Exception as error:
        raise DefinitionError(
            f"{called} is given the class {function.__name__}, and an object of it cannot be made: {type(error).__name__}: {error}",
            fix=f"pass an object: .{called}({function.__name__}(...), ...)",
            place=place,
        ) from error


def _ddl(rows: object, what: str, place: str) -> str:
    """Return the DDL of rows, which may be given as a dataclass."""
    if isinstance(rows, str):
        return rows
    if not isinstance(rows, type) or not dataclasses.is_dataclass(rows):
        raise DefinitionError(
            f"{what} is {rows!r}, neither Spark DDL nor a dataclass", fix="write such as returns='driver BIGINT, tips DOUBLE'", place=place
        )
    types = field_types(rows)
    unknown = next((name for name, kind in types.items() if kind is None), None)
    if unknown is not None:
        raise DefinitionError(
            f"{what} is {rows.__name__}, whose field {unknown!r} is of a type for which no column is known",
            fix=f"use {KNOWN}; or write Spark DDL",
            place=place,
        )
    return ", ".join(f"`{name}` {kind}" for name, kind in types.items())


def _side_outputs(given: object, place: str) -> tuple[tuple[OutputTag, str], ...]:
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise DefinitionError(
            f"process(side_outputs={given!r}) does not say which columns a tag has",
            fix="give {tm.OutputTag('alerts'): 'driver BIGINT, hours DOUBLE'}",
            place=place,
        )
    pairs: list[tuple[Any, Any]] = list(given.items())
    found = [
        (check_tag(tag, "side_outputs", place), _ddl(rows, f"the side output {getattr(tag, 'name', tag)!r}", place)) for tag, rows in pairs
    ]
    names = [tag.name for tag, _ in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DefinitionError(f"process has the side output {twice!r} twice", fix="give each its own tag", place=place)
    return tuple(found)
