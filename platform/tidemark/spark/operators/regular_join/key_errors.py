"""The errors of rows whose keys do not identify them."""

from __future__ import annotations

from tidemark.errors import UserCodeError
from tidemark.graph.operators.regular_join.node import RegularJoinNode


def key_came_twice(node: RegularJoinNode, port: str, key: str, *, job: str, uid: str) -> UserCodeError:
    """Return the error of an input that brings a key again, without the row before; ``key`` is one of them, as JSON."""
    return UserCodeError(
        f"the {port} input of the join brings the key {key} again, without the row that it takes the place of",
        fix=f"keep the newest row of each key: .latest(by={list(node.sides[port].keys)!r}) instead of .as_changelog(key=...)",
        job=job,
        uid=uid,
        place=node.place,
    )


def null_keys_on_both_sides(node: RegularJoinNode, *, job: str, uid: str) -> UserCodeError:
    """Return the error of a full join whose inputs both have rows with null keys."""
    key = ", ".join(node.result_keys)
    some = next(iter((*node.right.keys, *node.left.keys)))
    return UserCodeError(
        f"both inputs of a full join have a row whose key is null, or null in part, and both could be one row of the result ({key})",
        fix="to keep both, add a column that is never null to one input and to its key: .with_columns(of_left='true')"
        f".as_changelog(key={[*node.left.keys, 'of_left']!r}); to leave one out: .filter('{some} IS NOT NULL')",
        job=job,
        uid=uid,
        place=node.place,
    )
