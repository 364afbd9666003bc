"""Joins of changelogs: methods of a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar, cast

from tidemark.errors import DefinitionError
from tidemark.graph.checks.changelogs import changelog_keys
from tidemark.graph.checks.schema_inference import schema_of
from tidemark.graph.checks.side_outputs import check_has_rows
from tidemark.graph.expressions.expression_text import shortened
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.nodes import Expression, Node
from tidemark.graph.model.wrong_calls import checked_methods
from tidemark.graph.operators.regular_join.node import How, JoinSide, RegularJoinNode

S = TypeVar("S", bound="ChangelogJoinMethods")

On = str | Sequence[str] | Mapping[str, Expression]


@checked_methods()
@dataclass(frozen=True, eq=False)
class ChangelogJoinMethods:
    """The methods of a stream that join it with another as the tables that both are."""

    node: Node

    def join(self, other: Self, *, on: On, how: How = "inner") -> Self:
        """Join two changelogs without bounds: at each epoch's end the content of the result is the join of both contents.

        The result is a changelog, identified by the keys of both (``semi``, ``anti``: by the left one's). A null that is compared equals
        nothing; ``left``, ``right``, ``full`` and ``anti`` keep its row. State has the rows of both contents.

        Args:
            other: the right stream. Streams that are only added to become changelogs by ``.as_changelog(key=...)`` or ``.latest(by=...)``.
            on: a column of both, several, or expressions over the left stream with those over the right:
                ``{"pickup_zone": "zone_id"}``. Columns of one name that are compared are in the result once.
            how: ``inner``; ``left``, ``right``, ``full``, which keep rows without a partner; ``semi`` and ``anti``, which keep the left
                rows with and without one.

        Raises:
            DefinitionError: a stream is no changelog, or nothing or values of different types are compared.
            ColumnError: a column does not exist, or columns that are not compared have one name.
        """
        return type(self)(regular_join(self.node, other, on, how, call_site()))


def regular_join(left: Node, right: object, on: object, how: str, place: str) -> RegularJoinNode:
    """Return the node of a regular join.

    Args:
        left: the left changelog.
        right: the right stream, as the user gave it.
        on: what is compared, as the user gave it.
        how: the kind of join.
        place: the user's line.

    Raises:
        DefinitionError: or one of its kinds, as ``join`` says.
    """
    other = getattr(right, "node", None)
    if not isinstance(other, Node):
        raise DefinitionError(
            f"join is given {shortened(repr(right))}, not a stream", fix="pass a stream: .join(zones, on=...)", place=place
        )
    pairs = _pairs(on, place)
    sides = (_side(left, "left", [one for one, _ in pairs], place), _side(other, "right", [one for _, one in pairs], place))
    return RegularJoinNode(inputs=(left, other), left=sides[0], right=sides[1], how=cast("How", how), place=place)


def _pairs(on: object, place: str) -> list[tuple[Expression, Expression]]:
    """Return the pairs of compared expressions."""
    if isinstance(on, str):
        return [(on, on)]
    if isinstance(on, Mapping) and on:
        return list(on.items())
    if isinstance(on, Sequence) and on and all(isinstance(each, str) for each in on):
        return [(each, each) for each in on]
    raise DefinitionError(
        f"join(on={on!r}) is neither a column, nor a list of them, nor a mapping",
        fix="write on='ride_id', on=['zone', 'day'] or on={'pickup_zone': 'zone_id'}",
        place=place,
    )


def _side(node: Node, port: str, on: Sequence[Expression], place: str) -> JoinSide:
    check_has_rows(node, place)
    keys, schema = changelog_keys(node), schema_of(node)
    if keys is None:
        raise DefinitionError(
            f"the {port} stream of a join is only added to, and says not which row takes the place of which",
            fix="if no key comes twice, name it: .as_changelog(key=['ride_id']); to keep the newest row of each: .latest(by=['ride_id'])",
            place=place,
        )
    if schema is None:
        raise DefinitionError(
            f"the columns of the {port} stream of a join are known only when it runs",
            fix="name them before the join: .select('ride_id', 'fare')",
            place=place,
        )
    written = {name.lower(): name for name in schema.names}
    return JoinSide(schema.names, tuple(written.get(key.lower(), key) for key in keys), tuple(on))
