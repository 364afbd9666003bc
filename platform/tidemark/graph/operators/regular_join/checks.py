"""Checks of a regular join against its inputs."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.errors import ColumnError, DefinitionError, ExpressionError
from tidemark.graph.expressions.expression_text import describe_expression
from tidemark.graph.expressions.expression_types import type_of
from tidemark.graph.expressions.expressions import Site, check_columns, parse_row_expression
from tidemark.graph.model.nodes import Expression
from tidemark.graph.model.schema import Schema
from tidemark.graph.operators.regular_join.node import HOWS, RegularJoinNode, plain_name


def check_regular_join(node: RegularJoinNode, schemas: Sequence[Schema | None]) -> None:
    """Check how it joins, the compared expressions of both inputs, and the names of result columns.

    Raises:
        DefinitionError: or one of its kinds; it names the user's line.
    """
    if node.how not in HOWS:
        raise DefinitionError(
            f"join(how={node.how!r}) is no kind of join",
            fix=f"write one of {', '.join(map(repr, HOWS))}",
            uid=node.uid,
            place=node.place,
        )
    if not node.left.on:
        raise DefinitionError(
            "join(on=...) compares nothing", fix="name a column that both have: on='ride_id'", uid=node.uid, place=node.place
        )
    pairs = zip(node.left.on, node.right.on, strict=True)
    for number, (left, right) in enumerate(pairs):
        kinds = [_checked(each, port, node, given) for each, port, given in zip((left, right), node.PORTS, schemas, strict=True)]
        if None not in kinds and kinds[0] != kinds[1]:
            raise types_differ(node, number, kinds)
    _check_names(node)
    _check_key(node)


def _checked(expression: Expression, port: str, node: RegularJoinNode, given: Schema | None) -> str | None:
    site = Site(f"join of the {port} stream on", node.place, node.uid)
    parsed = parse_row_expression(expression, site)
    check_columns(parsed, expression, given, site)
    kind = type_of(parsed, given)
    if kind is not None and ("MAP<" in kind or "VARIANT" in kind):
        raise ExpressionError(
            f"{site.of(expression)} is of type {kind}, and such values cannot be compared",
            fix="compare a part of it, or its text: on={\"to_json(tags)\": 'tags'}",
            uid=node.uid,
            place=node.place,
        )
    return kind


def types_differ(node: RegularJoinNode, number: int, kinds: Sequence[str | None]) -> DefinitionError:
    """Return the error for a pair of compared expressions of different types, so that equal values have no equal hash."""
    left, right = (describe_expression(side.on[number]) for side in (node.left, node.right))
    return DefinitionError(
        f"join compares {left!r} of the left stream, of type {kinds[0]}, with {right!r} of the right one, of type {kinds[1]}",
        fix=f'cast one: on={{"{left}": "CAST({right} AS {kinds[0]})"}}',
        uid=node.uid,
        place=node.place,
    )


def _check_names(node: RegularJoinNode) -> None:
    taken = {name.lower() for name in node.left.columns}
    clashes = [name for name in node.added if name.lower() in taken]
    if not clashes:
        return
    in_key = [name for name in clashes if name in node.right.keys]
    what = f", and {', '.join(in_key)} is in the key of the right one" if in_key else ""
    renamed = ", ".join(f"{name}_2={name!r}" for name in clashes)
    raise ColumnError(
        f"both streams of a join have columns {', '.join(map(repr, clashes))}, which are not compared with each other{what}",
        fix=f"give one another name before the join: .select(..., {renamed})",
        uid=node.uid,
        place=node.place,
    )


def _check_key(node: RegularJoinNode) -> None:
    """Check that the key of the result says of a row without a partner which input it is of."""
    if node.how != "full" or any(map(node.own_keys, node.PORTS)) or node.compares_key:
        return
    key = ", ".join(node.result_keys) or "no column"
    more = ", ".join(describe_expression(left) for left, _ in node.pairs if plain_name(left, node.left.columns) not in node.result_keys)
    raise DefinitionError(
        f"a full join compares {more} beside the key of the result ({key}): a left row and a right row with one key that are no partners "
        "would both be the row of the result with this key",
        fix=_other_names(node),
        uid=node.uid,
        place=node.place,
    )


def _other_names(node: RegularJoinNode) -> str:
    """Return how the key of the right input is named differently, so that results have both keys."""
    if not node.right.keys:
        return "give one input a key that the result has"
    named = ", ".join(f"{name}_2={name!r}" for name in node.right.keys)
    compared = ", ".join(
        f"{describe_expression(left)!r}: {f'{name}_2' if (name := plain_name(right, node.right.columns)) in node.right.keys else right!r}"
        for left, right in node.pairs
    )
    return f"give the key of the right one other names, so that results have both: .select(..., {named}), and on={{{compared}}}"
