"""The interval join as an operator kind: its rules in the graph, and its definition as stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, cast

from tidemark.durations import format_duration
from tidemark.graph.expressions.column_origins import ColumnOrigins, merged
from tidemark.graph.expressions.expression_text import describe_expression
from tidemark.graph.model.nodes import Expression
from tidemark.graph.model.schema import Schema
from tidemark.graph.operators.changes import Definition, DefinitionChange, Kept, Names, entries, key_changes, renamed, same_expression
from tidemark.graph.operators.interval_join.checks import check_interval_join
from tidemark.graph.operators.interval_join.node import LATE_OF, IntervalJoinNode
from tidemark.graph.operators.join_keys import decode_join_keys, encode_join_keys, joined_schema, result_columns
from tidemark.graph.operators.keys import typed
from tidemark.graph.operators.kind import OperatorKind, Schemas
from tidemark.graph.operators.state_names import element_column, key_column
from tidemark.semantics.joins.interval import SIDES, How

_FORMAT = 1
_ROWS: Mapping[How, str] = {
    "inner": "A pair of rows",
    "left": "A pair of rows, or a left row without a partner",
    "right": "A pair of rows, or a right row without a partner",
    "full": "A pair of rows, or a row of either side without a partner",
    "semi": "A left row that has a partner",
    "anti": "A left row without a partner",
}


class IntervalJoinKind(OperatorKind[IntervalJoinNode]):
    """``left.join(right, on=..., within=(lower, upper))``."""

    name: ClassVar[str] = "interval_join"
    noun: ClassVar[str] = "interval join"
    nouns: ClassVar[str] = "interval joins"
    state_noun: ClassVar[str] = "the elements of both sides that wait for partners"
    instead_of_changelog: ClassVar[str] = (
        "leave out within=...: a join of changelogs is right at the end of every epoch, whatever their times"
    )

    def validate(self, node: IntervalJoinNode, schemas: Schemas) -> None:
        """Check keys, interval, side outputs, and the names of result columns."""
        check_interval_join(node, schemas)

    def output_schema(self, node: IntervalJoinNode, schemas: Schemas) -> Schema | None:
        """Return the columns of the left side, then those of the right."""
        left, right = schemas
        if left is None or right is None:
            return left if node.one_sided else None
        return joined_schema(result_columns(node.on, left.names, right.names, one_sided=node.one_sided), left, right)

    def side_schema(self, node: IntervalJoinNode, counter: str, schemas: Schemas) -> Schema | None:
        """Return the columns of the side whose late rows they are."""
        del node
        return schemas[SIDES.index(LATE_OF[counter])]

    def side_ports(self, node: IntervalJoinNode, counter: str) -> tuple[str, ...]:
        """Return the side whose late rows they are."""
        del node
        return (LATE_OF[counter],)

    def lineage(self, node: IntervalJoinNode, origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
        """Return those of either side's columns; of a key column that results have once, those of both."""
        left, right = origins
        if node.one_sided:
            return left
        shared = {key.column.lower() for key in node.on if key.column is not None}
        columns = {**right.columns, **left.columns}
        columns |= {name: merged([left.of_names([name]), right.of_names([name])]) for name in shared}
        return ColumnOrigins(columns, merged([left.other, right.other]), merged([left.time, right.time]))

    def side_lineage(self, node: IntervalJoinNode, counter: str, origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
        """Return the origins of the side whose late rows they are."""
        del node
        return origins[SIDES.index(LATE_OF[counter])]

    def describe(self, node: IntervalJoinNode) -> str:
        """Return how, keys, and interval."""
        keys = ", ".join(_shown(describe_expression(key.left), describe_expression(key.right)) for key in node.on)
        return f"{node.how} join on {keys}, right time - left time from {_signed(node.lower_ms)} to {_signed(node.upper_ms)}"

    def describe_rows(self, node: IntervalJoinNode) -> str:
        """Return what pairs are."""
        keys = ", ".join(f"`{key.name}`" for key in node.on)
        interval = f"the right one from {_signed(node.lower_ms)} to {_signed(node.upper_ms)} after the left one"
        return f"{_ROWS[node.how]}: of equal {keys}, {interval}"

    def describe_column(self, node: IntervalJoinNode, name: str) -> str | None:
        """Return what a key column is that both sides have."""
        shared = {key.column.lower() for key in node.on if key.column is not None}
        return "Equal on both sides; of a row without a partner its own." if name.lower() in shared and not node.one_sided else None

    def describe_counter(self, counter: str) -> str:
        """Return what late rows of a side are."""
        return f"Late rows of the {LATE_OF[counter]} stream: nothing that they could meet is in state any more"

    def made_by(self, node: IntervalJoinNode) -> tuple[str, str]:
        """Return the method."""
        return "join", f"joins by {', '.join(key.name for key in node.on)}"

    def counters(self, node: IntervalJoinNode) -> tuple[str, ...]:
        """Return ``late_left`` and ``late_right``."""
        del node
        return tuple(LATE_OF)

    def expressions(self, node: IntervalJoinNode) -> Iterator[tuple[str, Expression | None]]:
        """Yield those of the keys of both sides."""
        for side, expressions in zip(SIDES, ([key.left for key in node.on], [key.right for key in node.on]), strict=True):
            for key, expression in zip(node.on, expressions, strict=True):
                yield f"{side} key {key.name!r}", expression

    def encode(self, node: IntervalJoinNode) -> dict[str, object]:
        """Return keys, interval, and how."""
        return {
            "format": _FORMAT,
            "kind": self.name,
            "keys": encode_join_keys(node.on),
            "lower_ms": node.lower_ms,
            "upper_ms": node.upper_ms,
            "how": node.how,
        }

    def decode(self, definition: Definition, uid: str) -> IntervalJoinNode:
        """Return a node with the same state."""
        lower, upper = (int(cast("int", definition[name])) for name in ("lower_ms", "upper_ms"))
        on = decode_join_keys(entries(definition, "keys"))
        return IntervalJoinNode(uid=uid, on=on, lower_ms=lower, upper_ms=upper, how=cast("How", definition["how"]))

    def changes(self, old: Definition, new: Definition, names: Names, kept: tuple[Kept, Kept] | None) -> tuple[DefinitionChange, ...]:
        """Return differences. Where results have pairs only, before and after, another interval applies from the next epoch on.

        Other joins know from the interval which stored elements had a partner, so that it cannot change under them.
        """
        del kept
        found = key_changes(old, new, names)
        before, after = entries(old, "keys"), entries(new, "keys")
        for name, was in before.items():
            now = after.get(renamed(name, names), {})
            if now and not same_expression(str(was.get("right")), str(now.get("right")), names):
                what = f"the key {name!r} of the right stream was {was.get('right')} and is now {now.get('right')}"
                found.append(DefinitionChange("key", "other", what, name))
        if old["how"] != new["how"]:
            what = f"it was how={old['how']!r} and is now how={new['how']!r}"
            found.append(DefinitionChange("how", "none" if new["how"] == "inner" else "other", what))
        if _interval(old) != _interval(new):
            what = f"the interval was from {_interval(old)} and is now from {_interval(new)}"
            found.append(DefinitionChange("interval", "none" if new["how"] == "inner" else "other", what))
        return tuple(found)

    def keeps(self, node: IntervalJoinNode) -> Kept:
        """Return ``elements``."""
        del node
        return "elements"

    def state_columns(self, node: IntervalJoinNode, schemas: Schemas) -> dict[str, str | None] | None:
        """Return the keys, and the columns of either side's elements."""
        left, right = schemas
        if left is None or right is None:
            return None
        keys = typed([(key.name, key.left) for key in node.on], left)
        rows = [
            (f"{side}.{column.name}", column.type) for side, schema in zip(SIDES, (left, right), strict=True) for column in schema.columns
        ]
        return {**{key_column(column.name): column.type for column in keys}, **{element_column(name): kind for name, kind in rows}}


def _shown(left: str, right: str) -> str:
    return left if left == right else f"{left} = {right}"


def _signed(milliseconds: int) -> str:
    """Return a duration that may be negative in words."""
    return f"{'-' if milliseconds < 0 else ''}{format_duration(abs(milliseconds))}" if milliseconds else "0"


def _interval(definition: Definition) -> str:
    lower, upper = (int(cast("int", definition[name])) for name in ("lower_ms", "upper_ms"))
    return f"{_signed(lower)} to {_signed(upper)}"
