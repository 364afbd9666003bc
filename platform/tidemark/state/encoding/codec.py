"""Frozen dataclasses to plain JSON values and back, strictly, by their type hints.

A field made by ``added_field`` is omitted if it has its default, so that objects without it have the same JSON as in earlier
releases; an older release refuses an object that has it.

Known types: int, str, bool, float, ``object`` (plain JSON as it is), Literal, optional, ``tuple[X, ...]``, ``tuple[X, Y]``,
``Mapping[str, X]``, TypedDict, and dataclasses of these. A field that is missing takes its default; a field that is not known
is refused, since a newer release wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from functools import cache
from typing import Any, Final, TypeVar

from tidemark.state.encoding.envelope import damaged
from tidemark.state.encoding.json_decoding import UnreadableError, reader_of

T = TypeVar("T")

_ADDED: Final = "tidemark.later"
_SCALARS = frozenset((str, int, float, bool, type(None)))


def added_field(default: T) -> T:
    """Return a dataclass field that was added to its class after the first release of the class's form."""
    made: T = field(default=default, metadata={_ADDED: True})
    return made


def added_mapping_field() -> Any:  # noqa: ANN401 - a mapping of whatever the field says
    """Return such a field whose default is an empty mapping."""
    return field(default_factory=dict, metadata={_ADDED: True})


def is_added(item: Field[Any]) -> bool:
    """Return whether a dataclass's field is one of these, which is omitted if it has its default."""
    return _ADDED in item.metadata


def to_jsonable(value: object) -> Any:  # noqa: ANN401 - JSON has no narrower type that callers could use
    """Return a value as plain JSON: dicts, lists, text, numbers, booleans, None."""
    kind: Any = type(value)
    if kind in _SCALARS:
        return value
    if isinstance(value, Mapping):
        return {str(key): to_jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_jsonable(item) for item in value]
    names = _field_names(kind)
    if names is None:
        return value
    given = {name: getattr(value, name) for name in names[0]}
    return {name: to_jsonable(item) for name, item in given.items() if name not in names[1] or item != names[1][name]}


def from_jsonable(kind: type[T], value: object, *, path: str) -> T:
    """Return the object of a class from its plain JSON.

    Args:
        kind: the dataclass.
        value: the result of ``to_jsonable``, through JSON.
        path: where it was stored, for the error.

    Raises:
        CorruptStoreError: a field is missing, unknown or of another type; the message says which.
    """
    hint: Any = kind
    try:
        result: T = reader_of(hint)(value)
    except UnreadableError as error:
        raise damaged(f"is not readable: {kind.__name__}{''.join(reversed(error.where))} {error.what}", path) from None
    return result


@cache
def _field_names(kind: Any) -> tuple[tuple[str, ...], Mapping[str, object]] | None:  # noqa: ANN401
    """Return the names of a dataclass's fields, and the defaults of those that are omitted if they have them."""
    if not is_dataclass(kind):
        return None
    return tuple(item.name for item in fields(kind)), {
        item.name: {} if item.default is MISSING else item.default for item in fields(kind) if is_added(item)
    }
