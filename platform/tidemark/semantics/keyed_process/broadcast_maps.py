"""The maps of broadcast streams as functions see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn

from tidemark.errors import UserCodeError


def _refuse(*_: object, **__: object) -> NoReturn:
    raise UserCodeError("a function changes a broadcast map, which it can only read", fix="send a row through the broadcast stream")


class _ReadOnly(dict[Any, Any]):
    """Entries that cannot be changed."""

    __slots__ = ()

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type[dict[Any, Any]], tuple[dict[Any, Any]]]:
        """Return how a copy is made, which can be changed."""
        return dict, (dict(self),)


class _ByName(_ReadOnly):
    """The maps by the names of their streams."""

    __slots__ = ()

    def __missing__(self, name: object) -> NoReturn:
        known = ", ".join(map(repr, self)) or "none: the function is connected to no broadcast stream"
        raise UserCodeError(f"there is no broadcast map {name!r}", fix=f"read one of those there are: {known}")


NO_MAPS: Final[Mapping[str, Mapping[Any, Any]]] = _ByName()
"""Of a function without a broadcast stream."""


def read_only(maps: Mapping[str, Mapping[Any, Any] | Iterable[tuple[Any, Any]]]) -> Mapping[str, Mapping[Any, Any]]:
    """Return maps by name that cannot be changed, nor can their values; a name that is not there is told.

    >>> read_only({"rates": {"eur": {"rate": 1.1}}})["rates"]["eur"]["rate"]
    1.1
    >>> read_only({"rates": {}})["rules"]
    Traceback (most recent call last):
    tidemark.errors.UserCodeError: [TM501] there is no broadcast map 'rules'. Fix: read one of those there are: 'rates'
    """
    return _ByName({name: _ReadOnly((key, _frozen(value)) for key, value in dict(entries).items()) for name, entries in maps.items()})


def _frozen(value: object) -> object:
    return _ReadOnly(value) if isinstance(value, dict) else value
