"""The columns of a join: what its sides are compared by, and what a result row has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidemark.errors import ColumnError, DefinitionError
from tidemark.graph.expressions.column_origins import ColumnOrigins, merged
from tidemark.graph.model.nodes import Expression
from tidemark.graph.model.schema import Schema
from tidemark.graph.operators.keys import check_keys, typed

Keys = tuple[tuple[str, Expression], ...]


@dataclass(frozen=True)
class JoinSides:
    """What the sides of a join are compared by: expressions of each side, by a name that the pair has in state."""

    left: Keys
    right: Keys

    @property
    def shared(self) -> frozenset[str]:
        """The columns, in small letters, that both sides have as a key under one name: results have them once."""
        pairs = zip(self.left, self.right, strict=True)
        named = ((_name(one), _name(other)) for (_, one), (_, other) in pairs)
        return frozenset(one.lower() for one, other in named if one is not None and other is not None and one.lower() == other.lower())

    def kept(self, names: Sequence[str]) -> list[str]:
        """Return the columns of the right side that results have, of all of them."""
        return [name for name in names if name.lower() not in self.shared]

    def result(self, left: Schema | None, right: Schema | None) -> Schema | None:
        """Return the columns of results, None where those of a side are not known."""
        if left is None or right is None:
            return None
        return Schema((*left.columns, *(column for column in right.columns if column.name.lower() not in self.shared)))

    def lineage(self, left: ColumnOrigins, right: ColumnOrigins) -> ColumnOrigins:
        """Return the origins of result columns: of the left side where it has the column, else of the right."""
        own = {name: origins for name, origins in right.columns.items() if name.lower() not in self.shared}
        return ColumnOrigins({**own, **left.columns}, merged([left.other, right.other]), left.time)


def join_sides(on: object, called: str, place: str) -> JoinSides:
    """Return what the sides of a join are compared by.

    Args:
        on: a column name, a list of names, or a mapping of left expressions to right ones.
        called: the method, for errors.
        place: the user's file and line.

    Raises:
        DefinitionError: none of these, or empty.
    """
    fix = "write on='id', on=['id', 'day'], or on={'left_id': 'right_id'}"
    pairs: list[tuple[Expression, Expression]]
    if isinstance(on, str):
        pairs = [(on, on)]
    elif isinstance(on, Mapping):
        pairs = list(on.items())
    elif isinstance(on, Sequence):
        pairs = [(each, each) for each in on]
    else:
        raise DefinitionError(f"{called}(on={on!r}) is given neither columns nor a mapping", fix=fix, place=place)
    if not pairs:
        raise DefinitionError(f"{called}(on={on!r}) names nothing to compare the sides by", fix=fix, place=place)
    names = list(_names(pairs))
    return JoinSides(
        tuple((name, one) for name, (one, _) in zip(names, pairs, strict=True)),
        tuple((name, other) for name, (_, other) in zip(names, pairs, strict=True)),
    )


def check_sides(
    sides: JoinSides, schemas: Sequence[Schema | None], called: str, *, uid: str | None, place: str, added: Schema | None = None
) -> None:
    """Check the expressions of both sides, their types, and the names of result columns.

    Args:
        sides: of the join.
        schemas: the columns of the left and of the right side, None where they are not known.
        called: the method, for errors.
        uid: of the operator.
        place: the user's file and line.
        added: the right columns that results have before keys of one name are left out; all by default.

    Raises:
        ColumnError: an unknown column, or one name for columns of both sides.
        ExpressionError: an expression cannot be read, or maps are compared.
        DefinitionError: the sides are compared by values of different types.
    """
    left, right = schemas
    check_keys(sides.left, left, place, uid=uid)
    check_keys(sides.right, right, place, uid=uid)
    for (_, one), (_, other), was, now in zip(sides.left, sides.right, typed(sides.left, left), typed(sides.right, right), strict=True):
        if was.type is not None and now.type is not None and was.type != now.type:
            raise DefinitionError(
                f"{called} compares {one!r} of type {was.type} with {other!r} of type {now.type}",
                fix=f"cast one of them: on={{{one!r}: 'CAST({other} AS {was.type})'}}",
                uid=uid,
                place=place,
            )
    if left is not None and right is not None:
        check_clashes(left.names, sides.kept((added or right).names), called, uid=uid, place=place)


def check_clashes(left: Sequence[str], right: Sequence[str], called: str, *, uid: str | None, place: str) -> None:
    """Check that no column of the right side has the name of one of the left.

    Raises:
        ColumnError: one has.
    """
    taken = {name.lower() for name in left}
    clashing = [name for name in right if name.lower() in taken]
    if clashing:
        first = clashing[0]
        raise ColumnError(
            f"{called}: both sides have {'columns' if len(clashing) > 1 else 'a column'} {', '.join(map(repr, clashing))}, "
            "and a result row has a name once",
            fix=f"rename or leave out one of them before: .select(..., right_{first}='{first}')",
            uid=uid,
            place=place,
        )


def _names(pairs: Sequence[tuple[Expression, Expression]]) -> Iterator[str]:
    taken: set[str] = set()
    for number, (one, _) in enumerate(pairs, 1):
        name = _name(one)
        if name is None or name.lower() in taken:
            name = f"on_{number}"
        taken.add(name.lower())
        yield name


def _name(expression: Expression) -> str | None:
    """Return the name of the column that an expression is, None for any other expression."""
    if not isinstance(expression, str):
        return None
    text = expression.strip()
    bare = text[1:-1] if text[:1] == "`" == text[-1:] and len(text) > 2 else text
    return bare if bare and "`" not in bare and (bare is not text or (text.isidentifier())) else None
