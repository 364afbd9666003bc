"""Checks of the best rows of each group against their input."""

from __future__ import annotations

from tidemark.errors import ColumnError, DefinitionError
from tidemark.graph.expressions.expressions import Site
from tidemark.graph.expressions.name_checks import check_column_names
from tidemark.graph.model.schema import Schema
from tidemark.graph.operators.latest.checks import check_key, check_ordered
from tidemark.graph.operators.top_n.node import TopNode
from tidemark.graph.operators.top_n.order import parse_order


def check_top(node: TopNode, given: Schema | None) -> None:
    """Check the number, the group, the order, and how rows are identified.

    Raises:
        DefinitionError: or one of its kinds; it names the user's line.
    """
    if type(node.n) is not int:
        raise DefinitionError(
            f"top_n is given {node.n!r}, not a whole number of rows", fix="write top_n(10, ...)", uid=node.uid, place=node.place
        )
    if node.n < 1:
        raise DefinitionError(f"top_n({node.n!r}) keeps no row", fix="write top_n(10, ...)", uid=node.uid, place=node.place)
    for name in node.by:
        check_key(name, "top_n(by=...)", given, node.place, node.uid)
    for name in node.key:
        check_key(name, "top_n(key=...)", given, node.place, node.uid)
    for part in parse_order(node.order, Site("top_n order", node.place, node.uid)):
        check_ordered(part.expression, "top_n order", given, node.place, node.uid)
    if node.changelog is not None and node.key:
        raise DefinitionError(
            f"top_n(key={list(node.key)!r}) over a changelog, whose key is {', '.join(node.changelog) or 'none: it has one row'}",
            fix="leave key out",
            uid=node.uid,
            place=node.place,
        )
    if node.rank is not None:
        _check_rank(node, node.rank, given)
    elif node.changelog is None and not node.key:
        raise DefinitionError(
            "top_n does not know what identifies a row of its results",
            fix="add the place of a row as a column, rank='rank', or name the columns that identify a row of the stream, key=['bid_id']",
            uid=node.uid,
            place=node.place,
        )


def _check_rank(node: TopNode, rank: str, given: Schema | None) -> None:
    check_column_names([rank], "top_n(rank=...)", node.place, uid=node.uid)
    if given is not None and given.find(rank) is not None:
        raise ColumnError(
            f"top_n(rank={rank!r}) adds a column that the stream has already",
            fix="give it another name: rank='place'",
            uid=node.uid,
            place=node.place,
        )
