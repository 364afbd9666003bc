"""Joins of changelogs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tidemark.errors import DefinitionError
from tidemark.graph.api.states import require_ttl
from tidemark.graph.checks.changelogs import changelog_keys
from tidemark.graph.checks.schema_inference import schema_of
from tidemark.graph.checks.side_outputs import check_has_rows
from tidemark.graph.model.nodes import Expression, Node
from tidemark.graph.operators.join_keys import join_keys
from tidemark.graph.operators.regular_join.node import How, JoinSide, RegularJoinNode
from tidemark.semantics.keyed_process.declarations import StateTtl

Lifetimes = StateTtl | tuple[StateTtl | None, StateTtl | None]
"""The lifetime of the rows of both inputs, or those of the left and of the right."""


def regular_join(left: Node, right: Node, on: object, *, how: str, ttl: object, place: str) -> RegularJoinNode:
    """Return the node of a regular join.

    Args:
        left: the left changelog.
        right: the right one.
        on: what is compared, as the user gave it.
        how: the kind of join.
        ttl: how long rows are kept, as the user gave it.
        place: the user's line.

    Raises:
        DefinitionError: or one of its kinds, as ``join`` says.
    """
    keys = join_keys(on, "join(on=...)", place)
    lives = _lifetimes(ttl, place)
    sides = (
        _side(left, "left", [key.left for key in keys], lives[0], place),
        _side(right, "right", [key.right for key in keys], lives[1], place),
    )
    return RegularJoinNode(inputs=(left, right), left=sides[0], right=sides[1], how=cast("How", how), place=place)


def _lifetimes(ttl: object, place: str) -> tuple[StateTtl | None, StateTtl | None]:
    if not isinstance(ttl, tuple | list):
        lives = require_ttl(ttl, "join", place)
        return lives, lives
    if len(ttl) != len(RegularJoinNode.PORTS):
        raise DefinitionError(
            f"join(ttl={ttl!r}) has not one lifetime for each of the two streams",
            fix="write ttl=(tm.state_ttl('7 days'), None): the left one's rows live for 7 days, the right one's for ever",
            place=place,
        )
    return require_ttl(ttl[0], "join", place), require_ttl(ttl[1], "join", place)


def _side(node: Node, port: str, on: Sequence[Expression], ttl: StateTtl | None, place: str) -> JoinSide:
    check_has_rows(node, place)
    keys, schema = changelog_keys(node), schema_of(node)
    if keys is None:
        example = schema.names[0] if schema is not None and schema.names else "ride_id"
        raise DefinitionError(
            f"the {port} stream of a join is only added to, and says not which row takes the place of which",
            fix="for pairs that are near in time, write within=('-10 minutes', '1 hour'); else, if no key comes twice, name it: "
            f".as_changelog(key=[{example!r}]); to keep the newest row of each: .latest(by=[{example!r}])",
            place=place,
        )
    if schema is None:
        raise DefinitionError(
            f"the columns of the {port} stream of a join are known only when it runs",
            fix="name them before the join: .select('ride_id', 'fare')",
            place=place,
        )
    written = {name.lower(): name for name in schema.names}
    return JoinSide(schema.names, tuple(written.get(key.lower(), key) for key in keys), tuple(on), ttl)
