"""Python's operators on streams, jobs and aggregates: what to write instead of ``stream + stream``, ``len(stream)`` and ``job["fares"]``.

A stream has no rows yet and a job is not its outputs, so neither can be counted, indexed or compared. Python's own TypeError names
neither the user's line nor a fix, and ``if stream`` would be true whatever the stream holds.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn, TypeVar

from tidemark.errors import DefinitionError
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.unknown_members import Kind

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

_PROTOCOLS_OF_JOBS: Final[Mapping[str, tuple[str, str]]] = {
    "__len__": ("has no length", "count its outputs: len(job.outputs)"),
    "__iter__": ("has no items to go through", "go through its outputs: job.outputs.items(); or through its operators: job.nodes"),
    "__contains__": ("has no items to look in", "look in its outputs: 'fares' in job.outputs"),
}
_JOINED: Final = "write one job with the outputs of both: tm.Job('taxi', outputs={**one.outputs, **other.outputs})"
_BY_NAME: Final = "sort and compare jobs by name: sorted(jobs, key=lambda job: job.name)"
_A_PART: Final = "use its outputs or its name: job.outputs, job.name"

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


@dataclass(frozen=True)
class _Subject:
    """What is used wrongly: the begin of its errors, and the job that they name."""

    text: str
    job_of: Callable[[object], str | None] = lambda _: None

    def refusing(self, what: str, fix: str) -> Callable[..., NoReturn]:
        """Return a method that raises the error."""

        def refuse(owner: object, *_: object) -> NoReturn:
            raise self.error(owner, what, fix)

        return refuse

    def error(self, owner: object, what: str, fix: str) -> DefinitionError:
        """Return the error for a use of an object."""
        return DefinitionError(f"{self.text}, and {what}", fix=fix, job=self.job_of(owner), place=call_site())


def without_rows(
    kind: Kind,
) -> Callable[[type[T]], type[T]]:
    """Return a class decorator: Python's protocols of collections and numbers raise a DefinitionError that says what to write.

    Type checkers do not see it, and still find such uses themselves.
    """
    subject = _Subject(f"a {kind} is no DataFrame")

    def decorate(owner: type[T]) -> type[T]:
        _without_items(owner, subject, _PROTOCOLS, lambda _: _SQL)
        return _without_operators(owner, subject, lambda sign: _UNION if sign in {"+", "|"} else _SQL)

    return decorate


def without_items(owner: type[T]) -> type[T]:
    """Decorate the class of jobs as ``without_rows`` does those of streams; the errors name the job.

    A job is true, as Python's objects are: ``job or default`` is a common way to write that it may be None.
    """
    subject = _Subject("a job is no collection", lambda job: str(vars(job)["name"]))
    _without_items(owner, subject, _PROTOCOLS_OF_JOBS, lambda key: f"write job.outputs[{key}]")
    # Else Python asks for the length.
    setattr(owner, "__bool__", lambda _: True)  # noqa: B010 - type checkers know the attribute of a class only
    fixes = {"+": _JOINED, "|": _JOINED, **dict.fromkeys(("<", "<=", ">", ">="), _BY_NAME)}
    return _without_operators(owner, subject, lambda sign: fixes.get(sign, _A_PART))


def without_arithmetic(owner: type[T]) -> type[T]:
    """Decorate the class of aggregates: arithmetic and comparisons raise a DefinitionError that says what to write."""
    return _without_operators(owner, _Subject("an aggregate is no column"), lambda _: _ON_RESULTS)


def _without_items(owner: type, subject: _Subject, protocols: Mapping[str, tuple[str, str]], fix_of_key: Callable[[str], str]) -> None:
    def item(owner: object, key: object) -> NoReturn:
        shown = reprlib.repr(key)
        raise subject.error(owner, f"has no [{shown}]", fix_of_key(shown))

    members = {"__getitem__": item, **{name: subject.refusing(what, fix) for name, (what, fix) in protocols.items()}}
    for name, member in members.items():
        setattr(owner, name, member)


def _without_operators(owner: type[T], subject: _Subject, fix: Callable[[str], str]) -> type[T]:
    for name, sign in {**_WITH_ANOTHER, **_OTHERS}.items():
        refusing = subject.refusing(f"takes no {sign!r}", fix(sign))
        setattr(owner, f"__{name}__", refusing)
        if name in _WITH_ANOTHER:
            setattr(owner, f"__r{name}__", refusing)
    return owner
