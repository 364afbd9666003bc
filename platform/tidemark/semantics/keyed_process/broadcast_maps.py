"""The maps of broadcast streams as functions see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final, NoReturn

from tidemark.errors import UserCodeError

_NESTED: Final = frozenset({dict, list, tuple})


def _refuse(*_: object, **__: object) -> NoReturn:
    raise UserCodeError(
        "a function changes a broadcast map, which it can only read",
        fix="send a row through the broadcast stream; or change a copy of the value, which copy.deepcopy makes",
    )


class _ReadOnly(dict[Any, Any]):
    """Entries that cannot be changed."""

    __slots__ = ()

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type[dict[Any, Any]], tuple[dict[Any, Any]]]:
        """Return how a copy is made, which can be changed."""
        return dict, (dict(self),)


class _ReadOnlyList(list[Any]):
    """Values that cannot be changed."""

    __slots__ = ()

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __reduce__(self) -> tuple[type[list[Any]], tuple[list[Any]]]:
        """Return how a copy is made, which can be changed."""
        return list, (list(self),)


class _ByName(_ReadOnly):
    """The maps by the names of their streams."""

    __slots__ = ()

    def __missing__(self, name: object) -> NoReturn:
        known = ", ".join(map(repr, self)) or "none: the function is connected to no broadcast stream"
        raise UserCodeError(f"there is no broadcast map {name!r}", fix=f"read one of those there are: {known}")


NO_MAPS: Final[Mapping[str, Mapping[Any, Any]]] = _ByName()
"""Of a function without a broadcast stream."""


def read_only(maps: Mapping[str, Mapping[Any, Any] | Iterable[tuple[Any, Any]]]) -> Mapping[str, Mapping[Any, Any]]:
    """Return maps by name that cannot be changed, nor can anything in their values; a name that is not there raises an error.

    >>> read_only({"rates": {"eur": {"rate": 1.1}}})["rates"]["eur"]["rate"]
    1.1
    >>> read_only({"rates": {}})["rules"]
    Traceback (most recent call last):
    tidemark.errors.UserCodeError: [TM501] there is no broadcast map 'rules'. Fix: read one of those there are: 'rates'
    """
    return _ByName({name: _frozen_map(dict(entries)) for name, entries in maps.items()})


def _frozen_map(entries: dict[Any, Any]) -> Mapping[Any, Any]:
    values = entries.values()
    if {dict}.issuperset(map(type, values)) and _NESTED.isdisjoint(map(type, chain.from_iterable(map(dict.values, values)))):
        # In most maps nothing is nested, and an epoch may have a million of entries in each task.
        return _ReadOnly(zip(entries, map(_ReadOnly, values), strict=True))
    return _ReadOnly({key: _frozen(value) for key, value in entries.items()})


def _frozen(value: object) -> object:
    """Return a value with all lists and dicts in it read-only, which are lists and dicts still."""
    if isinstance(value, dict):
        return _ReadOnly({name: _frozen(item) for name, item in value.items()})
    if isinstance(value, list):
        return _ReadOnlyList(map(_frozen, value))
    # An entry of a map, which is a list of keys and values.
    return tuple(map(_frozen, value)) if type(value) is tuple else value
