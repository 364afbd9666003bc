"""Python's operators on streams and aggregates: what to write instead of ``stream + stream``, ``len(stream)`` and ``if stream``.

A stream has no rows yet, so it cannot be counted, indexed or compared. Python's own TypeError names neither the user's line nor
a fix, and ``if stream`` would be true whatever the stream holds.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from typing import Final, Literal, NoReturn, TypeVar

from tidemark.errors import DefinitionError
from tidemark.graph.model.call_site import call_site

T = TypeVar("T")

_READ: Final = "rows are read from the job's outputs"
_COUNT: Final = f"count rows in windows: .window_all(tm.tumbling('1 hour')).aggregate(n=tm.count()).uid('hourly-count'); {_READ}"
_SQL: Final = f"name columns in SQL: .select('zone', cents='fare * 100'), .filter('fare > 0'); {_READ}"
_UNION: Final = "write .union(other) for the rows of both"
_ON_RESULTS: Final = (
    "calculate with the results, which are columns: "
    ".aggregate(total=tm.sum('fare'), n=tm.count()).uid('hourly').with_columns(mean='total / n')"
)
_PROTOCOLS: Final[Mapping[str, tuple[str, str]]] = {
    "__len__": ("has no length", _COUNT),
    "__bool__": ("is neither true nor false", f"write 'stream is None' where that is meant; {_COUNT}"),
    "__iter__": ("has no rows to go through", f"write .map(function, returns='...') for what is done with each row; {_READ}"),
    "__contains__": ("has no rows to look in", f"write .filter('fare = 42'); {_READ}"),
}
"""Python's protocols of collections: why a stream does not have them, and what to write."""

_WITH_ANOTHER: Final[Mapping[str, str]] = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "matmul": "@",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "and": "&",
    "or": "|",
    "xor": "^",
    "lshift": "<<",
    "rshift": ">>",
}
_OTHERS: Final[Mapping[str, str]] = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "neg": "-", "pos": "+", "invert": "~", "abs": "abs"}


def without_rows(kind: Literal["stream", "keyed stream", "windowed stream"]) -> Callable[[type[T]], type[T]]:
    """Return a class decorator: Python's protocols of collections and numbers raise a DefinitionError that says what to write.

    Type checkers do not see it, and still find such uses themselves.
    """
    subject = f"a {kind} is no DataFrame, and"

    def item(_: object, key: object) -> NoReturn:
        raise DefinitionError(f"{subject} has no [{reprlib.repr(key)}]", fix=_SQL, place=call_site())

    def decorate(owner: type[T]) -> type[T]:
        members = {"__getitem__": item, **{name: _refusing(f"{subject} {what}", fix) for name, (what, fix) in _PROTOCOLS.items()}}
        for name, member in members.items():
            setattr(owner, name, member)
        return _without_operators(owner, subject, lambda sign: _UNION if sign in {"+", "|"} else _SQL)

    return decorate


def without_arithmetic(owner: type[T]) -> type[T]:
    """Decorate the class of aggregates: arithmetic and comparisons raise a DefinitionError that says what to write."""
    return _without_operators(owner, "an aggregate is no column, and", lambda _: _ON_RESULTS)


def _without_operators(owner: type[T], subject: str, fix: Callable[[str], str]) -> type[T]:
    for name, sign in {**_WITH_ANOTHER, **_OTHERS}.items():
        refusing = _refusing(f"{subject} takes no {sign!r}", fix(sign))
        setattr(owner, f"__{name}__", refusing)
        if name in _WITH_ANOTHER:
            setattr(owner, f"__r{name}__", refusing)
    return owner


def _refusing(message: str, fix: str) -> Callable[..., NoReturn]:
    def refuse(*_: object) -> NoReturn:
        raise DefinitionError(message, fix=fix, place=call_site())

    return refuse
