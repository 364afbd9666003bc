"""Checks of the names of columns and tags."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemark.errors import DefinitionError, InvalidNameError
from tidemark.graph.model.nodes import HIDDEN_PREFIX, OutputTag
from tidemark.names import validate_name


def check_column_names(names: Iterable[object], where: str, place: str, *, uid: str | None = None) -> None:
    """Check the names of columns that an operator makes.

    Raises:
        InvalidNameError: a name is empty, reserved for the engine, or given twice (ignoring case).
    """
    seen: dict[str, str] = {}
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise InvalidNameError(f"{where} has the column name {name!r}", fix="give the column a name", uid=uid, place=place)
        if name.lower().startswith(HIDDEN_PREFIX):
            raise InvalidNameError(
                f"{where} has column {name!r}, but names that begin with {HIDDEN_PREFIX!r} are the engine's own",
                fix="give the column another name",
                uid=uid,
                place=place,
            )
        if name.lower() in seen:
            raise InvalidNameError(
                f"{where} has columns {seen[name.lower()]!r} and {name!r}, which are one name to Spark",
                fix="give each column another name",
                uid=uid,
                place=place,
            )
        seen[name.lower()] = name


def check_tag(tag: object, argument: str, place: str) -> OutputTag:
    """Return a side output's tag if it is one.

    Raises:
        DefinitionError: not a tag.
        InvalidNameError: its name is not allowed.
    """
    if not isinstance(tag, OutputTag):
        raise DefinitionError(
            f"{argument} is {tag!r}, not an output tag",
            fix=f"write tm.OutputTag({tag!r})" if isinstance(tag, str) else "write tm.OutputTag('name')",
            place=place,
        )
    validate_name("output tag", tag.name, place=place)
    return tag


def column_names(given: object, where: str, place: str) -> tuple[str, ...]:
    """Return names of columns, given as a list or as one text.

    Raises:
        DefinitionError: neither, or a name twice.
    """
    names = (given,) if isinstance(given, str) else given
    if not isinstance(names, Sequence) or not names or not all(isinstance(name, str) and name.strip() for name in names):
        raise DefinitionError(f"{where} is given {given!r}, not a list of columns", fix="write ['zone', 'day']", place=place)
    if len({name.lower() for name in names}) < len(names):
        raise DefinitionError(f"{where} names a column twice: {', '.join(names)}", fix="name each once", place=place)
    return tuple(names)
