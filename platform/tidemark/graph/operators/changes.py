"""Differences between two definitions of an operator, and their effect on its stored state: the part that all kinds share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, cast

from tidemark.errors import ExpressionError
from tidemark.graph.expressions.expressions import Site, parse_sql

if TYPE_CHECKING:
    from sqlglot import exp

Names = Mapping[str, str | None]
"""New names by old ones, of keys, aggregates and columns of the stream; None for an aggregate that is dropped."""

Definition = Mapping[str, object]
"""An operator's definition, as its kind encodes it."""

Kept = Literal["elements", "partials", "nothing"]
"""The kind of an operator's state: elements as they came, partial results, or none."""

Effect = Literal["none", "renamed", "added", "left", "gone", "other"]
"""``none``: stored state fits as it is. ``renamed``, ``added``, ``left``: it fits once it is rewritten. ``gone``: it would lose an
aggregate that the user did not drop. ``other``: it means something else."""

SAME: Names = MappingProxyType({})


@dataclass(frozen=True)
class DefinitionChange:
    """One difference, in words.

    ``about`` is the part that differs: ``kind``, ``key``, ``kept``, ``aggregate``, or another part of its kind. ``name`` is that of
    a key or aggregate: the new one, or the old one if it was removed or dropped; ``before`` is the old name of a renamed one.
    ``restarted`` are columns, by their stored names, whose values mean nothing any more: they begin again, without any.
    """

    about: str
    effect: Effect
    what: str
    name: str = ""
    before: str = ""
    restarted: tuple[str, ...] = ()


def other_kind(old: Definition, new: Definition) -> DefinitionChange | None:
    """Return the change of an operator's kind, None if it is the same."""
    if old.get("kind") == new.get("kind"):
        return None
    return DefinitionChange("kind", "other", f"it was a {old.get('kind')} operator and is now a {new.get('kind')} operator")


def renamed(name: str, names: Names) -> str:
    """Return the new name of a key, aggregate or column, its old one if it was not renamed."""
    return names.get(name) or name


def same_expression(old: str, new: str, names: Names = SAME) -> bool:
    """Return whether two SQL texts are equal, up to blanks, letter case, quotes of names, and renamed columns.

    >>> same_expression("zone+1", "`Area` + 1", {"zone": "area"}), same_expression("to_char(fare, '99')", "to_char(fare, '999')")
    (True, False)
    """
    if old == new:
        return True
    try:
        now, before = _canonical(new, SAME), (_canonical(old, SAME), _canonical(old, names))
    except ExpressionError:
        return False
    return now in before or _written(now) in {*map(_written, before)} - {None}


def _canonical(text: str, names: Names) -> exp.Expr:
    from sqlglot import exp

    parsed = parse_sql(text, Site("expression", "")).copy()
    for column in parsed.find_all(exp.Column):
        first = column.parts[0]
        if names.get(first.name):
            first.set("this", names[first.name])
    for name in parsed.find_all(exp.Identifier):
        name.set("this", name.name.lower())
        name.set("quoted", True)
    return parsed


def _written(parsed: exp.Expr) -> str | None:
    """Return SQL that is the same for several ways to write an expression, None where sqlglot would leave a part out.

    Definitions of older builds have an expression of a query as sqlglot writes it.
    """
    from sqlglot import ErrorLevel, UnsupportedError, exp

    # Of these it writes the argument alone, and another type.
    if parsed.find(exp.ParseJSON) or any(kind.is_type(exp.DataType.Type.TIME) for kind in parsed.find_all(exp.DataType)):
        return None
    try:
        return parsed.sql(dialect="spark", unsupported_level=ErrorLevel.RAISE)
    except UnsupportedError:
        return None


def entries(definition: Definition, kind: str) -> dict[str, Mapping[str, object]]:
    """Return the ``keys`` or ``aggregates`` of a definition by name, in their order."""
    found = cast("list[Mapping[str, object]]", definition.get(kind, []))
    return {str(entry["name"]): entry for entry in found}


def part_changes(
    about: str,
    old: Mapping[str, Mapping[str, object]],
    new: Mapping[str, Mapping[str, object]],
    names: Names,
    one: Callable[[str, Mapping[str, object], str, Mapping[str, object]], Iterable[DefinitionChange]],
    *,
    added: str = "",
) -> Iterator[DefinitionChange]:
    """Yield how the named parts of two definitions differ, such as aggregates or states.

    Args:
        about: what a part is called.
        old: the parts by name.
        new: the parts by name.
        names: new names by old ones; None for a part that is dropped.
        one: returns how a part differs, from its old name and entry, and the new ones.
        added: follows the words about a part that is new.
    """
    claimed = set()
    for name, before in old.items():
        now = renamed(name, names)
        if name in names and names[name] is None:
            yield DefinitionChange(about, "left", f"the {about} {name!r} is dropped", name)
        elif now not in new:
            yield DefinitionChange(about, "gone", f"the {about} {name!r} was removed", name)
        else:
            claimed.add(now)
            yield from one(name, before, now, new[now])
    for name in new:
        if name not in claimed:
            yield DefinitionChange(about, "added", f"the {about} {name!r} is new{added}", name)


def key_changes(old: Definition, new: Definition, names: Names) -> list[DefinitionChange]:
    """Return how the keys differ; their order does not matter."""
    before, after = entries(old, "keys"), entries(new, "keys")
    found, claimed = [], set()
    for name, was in before.items():
        now = renamed(name, names)
        if now not in after:
            found.append(DefinitionChange("key", "other", f"the key {name!r} was removed", name))
            continue
        claimed.add(now)
        text, text_now = str(was.get("expression")), str(after[now].get("expression"))
        if not same_expression(text, text_now, names):
            found.append(DefinitionChange("key", "other", f"the key {now!r} was {text} and is now {text_now}", now))
        elif now != name:
            found.append(DefinitionChange("key", "renamed", f"the key {name!r} is now called {now!r}", now, name))
    return found + [DefinitionChange("key", "other", f"the key {name!r} is new", name) for name in after if name not in claimed]
