"""Frozen dataclasses to plain JSON values and back, strictly, by their type hints.

A field made by ``later`` is left out where it has its default, so that what was written before there was such a field is written
as ever; an older release refuses what has it.

Known types: int, str, bool, float, ``object`` (plain JSON as it is), Literal, optional, ``tuple[X, ...]``, ``tuple[X, Y]``,
``Mapping[str, X]``, TypedDict, and dataclasses of these. A field that is missing takes its default; a field that is not known
is refused, since it was written by something newer.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, field, fields, is_dataclass
from functools import cache
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from tidemark.errors import TidemarkError
from tidemark.state.envelope import damaged

T = TypeVar("T")

_LATER: Final = "tidemark.later"
_SCALARS = frozenset((str, int, float, bool, type(None)))


def later(default: T) -> T:
    """Return a dataclass field that came to its class after the first release of the class's form."""
    made: T = field(default=default, metadata={_LATER: True})
    return made


def to_plain(value: object) -> Any:  # noqa: ANN401 - JSON has no narrower type that callers could use
    """Return a value as plain JSON: dicts, lists, text, numbers, booleans, None."""
    kind: Any = type(value)
    if kind in _SCALARS:
        return value
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    names = _field_names(kind)
    if names is None:
        return value
    given = {name: getattr(value, name) for name in names[0]}
    return {name: to_plain(item) for name, item in given.items() if name not in names[1] or item != names[1][name]}


def from_plain(kind: type[T], value: object, *, path: str) -> T:
    """Return the object of a class from its plain JSON.

    Args:
        kind: the dataclass.
        value: what ``to_plain`` gave, through JSON.
        path: where it was stored, for the error.

    Raises:
        CorruptStoreError: a field is missing, unknown or of another type; the message says which.
    """
    result: T = _read(kind, value, kind.__name__, path)
    return result


def _read(kind: Any, value: object, name: str, path: str) -> Any:  # noqa: ANN401
    # ``type`` and not ``isinstance``: true is no int in JSON.
    if kind is object or (type(value) is kind and kind in _SCALARS):
        return value
    if is_dataclass(kind) or is_typeddict(kind):
        return _read_fields(kind, value, name, path)
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _read_union(kind, value, name, path)
    if origin is Literal:
        return value if value in get_args(kind) else _refuse(name, value, path)
    if origin is tuple:
        return _read_tuple(get_args(kind), value, name, path)
    if origin in (Mapping, dict):
        if not isinstance(value, dict):
            return _refuse(name, value, path)
        return {key: _read(get_args(kind)[1], item, f"{name}[{key!r}]", path) for key, item in value.items()}
    return float(value) if kind is float and type(value) is int else _refuse(name, value, path)


def _read_union(kind: Any, value: object, name: str, path: str) -> Any:  # noqa: ANN401
    choices = get_args(kind)
    if value is None and type(None) in choices:
        return None
    rest = [choice for choice in choices if choice is not type(None)]
    for choice in rest[:-1]:
        try:
            return _read(choice, value, name, path)
        except TidemarkError:
            continue
    return _read(rest[-1], value, name, path)


def _read_tuple(items: tuple[Any, ...], value: object, name: str, path: str) -> Any:  # noqa: ANN401
    if not isinstance(value, list):
        return _refuse(name, value, path)
    if len(items) == 2 and items[1] is Ellipsis:
        return tuple(_read(items[0], item, f"{name}[{index}]", path) for index, item in enumerate(value))
    if len(items) != len(value):
        return _refuse(name, value, path)
    return tuple(_read(kind, item, name, path) for kind, item in zip(items, value, strict=True))


def _read_fields(kind: Any, value: object, name: str, path: str) -> object:  # noqa: ANN401
    if not isinstance(value, dict):
        return _refuse(name, value, path)
    hints, required = _shape(kind)
    unknown, missing = set(value) - set(hints), required - set(value)
    if unknown or missing:
        parts = [f"{word} {', '.join(sorted(names))}" for word, names in (("has unknown", unknown), ("lacks", missing)) if names]
        raise damaged(f"is not readable: {name} {' and '.join(parts)}", path)
    return kind(**{key: _read(hints[key], item, f"{name}.{key}", path) for key, item in value.items()})


@cache
def _field_names(kind: Any) -> tuple[tuple[str, ...], Mapping[str, object]] | None:  # noqa: ANN401
    """Return the names of a dataclass's fields, and the defaults of those that are left out where they have them."""
    if not is_dataclass(kind):
        return None
    return tuple(item.name for item in fields(kind)), {item.name: item.default for item in fields(kind) if _LATER in item.metadata}


@cache
def _shape(kind: Any) -> tuple[Mapping[str, Any], frozenset[str]]:  # noqa: ANN401
    hints = get_type_hints(kind)
    if not is_dataclass(kind):
        return hints, frozenset(hints)
    known = [item for item in fields(kind) if item.init]
    needed = frozenset(item.name for item in known if item.default is MISSING and item.default_factory is MISSING)
    return {item.name: hints[item.name] for item in known}, needed


def _refuse(name: str, value: object, path: str) -> Any:  # noqa: ANN401
    shown = repr(value)
    raise damaged(f"is not readable: {name} is {shown[:40]}{'…' if len(shown) > 40 else ''}", path)
