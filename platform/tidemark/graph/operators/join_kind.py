"""What kinds of joins that keep the elements of two streams have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final, TypeVar

from tidemark.errors import DefinitionError
from tidemark.graph.expressions.column_origins import ColumnOrigins, merged
from tidemark.graph.expressions.expression_text import describe_expression
from tidemark.graph.model.nodes import Expression
from tidemark.graph.model.schema import Schema
from tidemark.graph.operators.changes import Definition, DefinitionChange, Kept, Names, entries, key_changes, renamed, same_expression
from tidemark.graph.operators.join_keys import (
    added_names,
    check_join_keys,
    check_names,
    joined_schema,
    left_keys,
    result_columns,
    shared_names,
)
from tidemark.graph.operators.join_node import LATE_OF, ElementJoinNode
from tidemark.graph.operators.keys import typed
from tidemark.graph.operators.kind import OperatorKind, Schemas
from tidemark.graph.operators.state_names import element_column, key_column
from tidemark.semantics.joins.interval import HOWS, SIDES, How

N = TypeVar("N", bound=ElementJoinNode)

ROWS: Final[Mapping[How, str]] = {
    "inner": "A pair of rows",
    "left": "A pair of rows, or a left row without a partner",
    "right": "A pair of rows, or a right row without a partner",
    "full": "A pair of rows, or a row of either side without a partner",
    "semi": "A left row that has a partner",
    "anti": "A left row without a partner",
}
"""What a result row is, by how streams are joined."""


class ElementJoinKind(OperatorKind[N]):
    """A join of the elements of two streams. ``method`` is the one that makes it."""

    method: ClassVar[str]

    def validate(self, node: N, schemas: Schemas) -> None:
        """Check how, keys, side outputs, and the names of result columns."""
        if node.how not in HOWS:
            raise DefinitionError(
                f"{self.method}(how={node.how!r}) is none of {', '.join(HOWS)}",
                fix=f"write how={_nearest(node.how)!r}",
                uid=node.uid,
                place=node.place,
            )
        if node.late_left_to is not None and node.late_left_to == node.late_right_to:
            raise DefinitionError(
                f"{self.method} uses the tag {node.late_left_to.name!r} for the late rows of both streams",
                fix="give each its own tag",
                uid=node.uid,
                place=node.place,
            )
        check_join_keys(node.on, schemas, node, self.method)
        left, right = schemas
        if left is not None and right is not None and not node.one_sided:
            check_names(left.names, added_names(node.on, right.names), node, self.method)

    def output_schema(self, node: N, schemas: Schemas) -> Schema | None:
        """Return the columns of the left side, then those of the right."""
        left, right = schemas
        if left is None or right is None:
            return left if node.one_sided else None
        return joined_schema(result_columns(node.on, left.names, right.names, one_sided=node.one_sided), left, right)

    def side_schema(self, node: N, counter: str, schemas: Schemas) -> Schema | None:
        """Return the columns of the side whose late rows they are."""
        del node
        return schemas[SIDES.index(LATE_OF[counter])]

    def side_ports(self, node: N, counter: str) -> tuple[str, ...]:
        """Return the side whose late rows they are."""
        del node
        return (LATE_OF[counter],)

    def lineage(self, node: N, origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
        """Return those of either side's columns; of a key column that results have once, those of both."""
        left, right = origins
        if node.one_sided:
            return left
        shared = shared_names(node.on)
        columns = {**right.columns, **left.columns}
        columns |= {name: merged([left.of_names([name]), right.of_names([name])]) for name in shared}
        return ColumnOrigins(columns, merged([left.other, right.other]), merged([left.time, right.time]))

    def side_lineage(self, node: N, counter: str, origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
        """Return the origins of the side whose late rows they are."""
        del node
        return origins[SIDES.index(LATE_OF[counter])]

    def describe_column(self, node: N, name: str) -> str | None:
        """Return what a key column is that both sides have."""
        shared = shared_names(node.on)
        return "Equal on both sides; of a row without a partner its own." if name.lower() in shared and not node.one_sided else None

    def made_by(self, node: N) -> tuple[str, str]:
        """Return the method."""
        return self.method, f"joins by {', '.join(key.name for key in node.on)}"

    def counters(self, node: N) -> tuple[str, ...]:
        """Return ``late_left`` and ``late_right``."""
        del node
        return tuple(LATE_OF)

    def late_counters(self, node: N) -> tuple[str, ...]:
        """Return both."""
        return self.counters(node)

    def expressions(self, node: N) -> Iterator[tuple[str, Expression | None]]:
        """Yield those of the keys of both sides."""
        for side, expressions in zip(SIDES, ([key.left for key in node.on], [key.right for key in node.on]), strict=True):
            for key, expression in zip(node.on, expressions, strict=True):
                yield f"{side} key {key.name!r}", expression

    def keeps(self, node: N) -> Kept:
        """Return ``elements``."""
        del node
        return "elements"

    def state_columns(self, node: N, schemas: Schemas) -> dict[str, str | None] | None:
        """Return the keys, and the columns of either side's elements."""
        left, right = schemas
        if left is None or right is None:
            return None
        keys = typed(left_keys(node.on), left)
        rows = [
            (f"{side}.{column.name}", column.type) for side, schema in zip(SIDES, (left, right), strict=True) for column in schema.columns
        ]
        return {**{key_column(column.name): column.type for column in keys}, **{element_column(name): kind for name, kind in rows}}


def join_key_changes(old: Definition, new: Definition, names: Names) -> list[DefinitionChange]:
    """Return how the keys of either side differ."""
    found = key_changes(old, new, names)
    before, after = entries(old, "keys"), entries(new, "keys")
    for name, was in before.items():
        now = after.get(renamed(name, names), {})
        if now and not same_expression(str(was.get("right")), str(now.get("right")), names):
            what = f"the key {name!r} of the right stream was {was.get('right')} and is now {now.get('right')}"
            found.append(DefinitionChange("key", "other", what, name))
    return found


def describe_keys(node: ElementJoinNode) -> str:
    """Return what is equal in pairs."""
    shown = ((describe_expression(key.left), describe_expression(key.right)) for key in node.on)
    return ", ".join(left if left == right else f"{left} = {right}" for left, right in shown)


def _nearest(how: object) -> str:
    plain = str(how).lower().replace("_", "").replace("outer", "")
    return plain if plain in HOWS else "full" if not plain else "inner"
