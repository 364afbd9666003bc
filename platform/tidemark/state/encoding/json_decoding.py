"""Readers of plain JSON values, one for each type: a type's checks are derived once, and not for each value.

A status of a job has hundreds of values, and sensors read those of a thousand jobs in one tick.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Final, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints, is_typeddict

_SHOWN: Final = 40
_SCALARS: Final = frozenset((str, int, float, bool, type(None)))

Reader = Callable[[Any], Any]
"""Returns the object of a plain value, or raises ``UnreadableError``."""


class UnreadableError(Exception):
    """A value is not of its type; ``where`` are the fields and keys that lead to it, the innermost first."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.where: list[str] = []

    def at(self, place: str) -> UnreadableError:
        """Return the error with one more part of its place."""
        self.where.append(place)
        return self


class _Field(NamedTuple):
    """``plain`` are the types of the values that are taken as they are; ``read`` reads all others."""

    plain: frozenset[type]
    read: Reader


class _Shape(NamedTuple):
    fields: Mapping[str, _Field]
    required: frozenset[str]


@cache
def reader_of(kind: Any) -> Reader:  # noqa: ANN401 - a type hint has no type of its own
    """Return the reader of a type, one of those that ``codec`` lists."""
    if kind is object:
        return _as_it_is
    if is_dataclass(kind) or is_typeddict(kind):
        return _fields_reader(kind)
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _union_reader(get_args(kind))
    if origin is Literal:
        return _literal_reader(get_args(kind))
    if origin is tuple:
        return _tuple_reader(get_args(kind))
    if origin in (Mapping, dict):
        return _mapping_reader(get_args(kind)[1])
    return _scalar_reader(kind)


def _as_it_is(value: object) -> object:
    return value


def _scalar_reader(kind: Any) -> Reader:  # noqa: ANN401
    def read(value: object) -> object:
        # ``type`` and not ``isinstance``: true is no int in JSON.
        if type(value) is kind and kind in _SCALARS:
            return value
        return float(value) if kind is float and type(value) is int else _refuse(value)

    return read


def _literal_reader(choices: tuple[Any, ...]) -> Reader:
    def read(value: object) -> object:
        return value if value in choices else _refuse(value)

    return read


def _union_reader(choices: tuple[Any, ...]) -> Reader:
    *others, last = (reader_of(choice) for choice in choices if choice is not type(None))
    optional = type(None) in choices

    def read(value: object) -> object:
        if value is None and optional:
            return None
        for other in others:
            try:
                return other(value)
            except UnreadableError:
                continue
        return last(value)

    return read


def _tuple_reader(items: tuple[Any, ...]) -> Reader:
    if len(items) == 2 and items[1] is Ellipsis:
        return _list_reader(reader_of(items[0]))
    readers = [reader_of(item) for item in items]

    def read(value: object) -> object:
        if not isinstance(value, list) or len(value) != len(readers):
            return _refuse(value)
        return tuple(one(item) for one, item in zip(readers, value, strict=True))

    return read


def _list_reader(one: Reader) -> Reader:
    def read(value: object) -> object:
        if not isinstance(value, list):
            return _refuse(value)
        found = []
        for item in value:
            try:
                found.append(one(item))
            except UnreadableError as error:
                raise error.at(f"[{len(found)}]") from None
        return tuple(found)

    return read


def _mapping_reader(kind: Any) -> Reader:  # noqa: ANN401
    one = reader_of(kind)

    def read(value: object) -> object:
        if not isinstance(value, dict):
            return _refuse(value)
        found, key = {}, None
        try:
            for key, item in value.items():
                found[key] = one(item)
        except UnreadableError as error:
            raise error.at(f"[{key!r}]") from None
        return found

    return read


def _fields_reader(kind: Any) -> Reader:  # noqa: ANN401
    def read(value: object) -> object:
        if not isinstance(value, dict):
            return _refuse(value)
        shape = _shape(kind)
        if not (shape.required <= value.keys() <= shape.fields.keys()):
            raise UnreadableError(_differences(value, shape))
        given, key = {}, ""
        try:
            for key, item in value.items():
                plain, one = shape.fields[key]
                given[key] = item if type(item) in plain else one(item)
        except UnreadableError as error:
            raise error.at(f".{key}") from None
        return kind(**given)

    return read


@cache
def _shape(kind: Any) -> _Shape:  # noqa: ANN401
    hints = get_type_hints(kind)
    if not is_dataclass(kind):
        return _Shape({name: _field(hint) for name, hint in hints.items()}, kind.__required_keys__)
    known = [item for item in fields(kind) if item.init]
    needed = frozenset(item.name for item in known if item.default is MISSING and item.default_factory is MISSING)
    return _Shape({item.name: _field(hints[item.name]) for item in known}, needed)


def _field(hint: Any) -> _Field:  # noqa: ANN401
    choices = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    # Where a union has more than scalars, its order decides.
    plain = frozenset(choices) if all(choice in _SCALARS for choice in choices) else frozenset()
    return _Field(plain, reader_of(hint))


def _differences(value: Mapping[str, object], shape: _Shape) -> str:
    unknown, missing = value.keys() - shape.fields.keys(), shape.required - value.keys()
    parts = [f"{word} {', '.join(sorted(names))}" for word, names in (("has unknown", unknown), ("lacks", missing)) if names]
    return " and ".join(parts)


def _refuse(value: object) -> Any:  # noqa: ANN401
    shown = repr(value)
    raise UnreadableError(f"is {shown[:_SHOWN]}{'…' if len(shown) > _SHOWN else ''}")
