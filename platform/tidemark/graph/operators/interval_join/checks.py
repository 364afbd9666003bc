"""Checks of interval joins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.errors import DefinitionError
from tidemark.graph.operators.interval_join.node import IntervalJoinNode
from tidemark.graph.operators.join_keys import check_join_keys, clashing_names, name_clash, result_columns
from tidemark.semantics.joins.interval import HOWS

if TYPE_CHECKING:
    from tidemark.graph.operators.kind import Schemas


def check_interval_join(node: IntervalJoinNode, schemas: Schemas) -> None:
    """Check a node.

    Raises:
        DefinitionError: or one of its kinds.
    """
    if node.how not in HOWS:
        raise DefinitionError(
            f"join(how={node.how!r}) is none of {', '.join(HOWS)}", fix=f"write how={_nearest(node.how)!r}", uid=node.uid, place=node.place
        )
    if node.lower_ms > node.upper_ms:
        raise DefinitionError(
            "join(within=(lower, upper)) has a lower bound that is greater than the upper one",
            fix="give the least and the greatest time by which a right element may be after its left partner, such as "
            "within=('-10 minutes', '1 hour')",
            uid=node.uid,
            place=node.place,
        )
    if node.late_left_to is not None and node.late_left_to == node.late_right_to:
        raise DefinitionError(
            f"join uses the tag {node.late_left_to.name!r} for the late rows of both streams",
            fix="give each its own tag",
            uid=node.uid,
            place=node.place,
        )
    check_join_keys(node.on, schemas, node)
    left, right = schemas
    if left is not None and right is not None:
        clashing = clashing_names(result_columns(node.on, left.names, right.names, one_sided=node.one_sided))
        if clashing:
            raise name_clash(clashing, node)


def _nearest(how: object) -> str:
    plain = str(how).lower().replace("_", "").replace("outer", "")
    return plain if plain in HOWS else "full" if not plain else "inner"
