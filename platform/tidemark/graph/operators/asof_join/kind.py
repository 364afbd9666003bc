"""The temporal (as-of) join as an operator kind: its rules in the graph, and its definition as stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal, cast

from tidemark.durations import format_duration
from tidemark.errors import DefinitionError
from tidemark.graph.expressions.column_origins import ColumnOrigins, merged
from tidemark.graph.expressions.expression_text import describe_expression
from tidemark.graph.model.nodes import Expression
from tidemark.graph.model.schema import Schema
from tidemark.graph.operators.asof_join.node import LATE_LEFT, LATE_RIGHT, AsofJoinNode
from tidemark.graph.operators.changes import Definition, DefinitionChange, Kept, Names, key_changes
from tidemark.graph.operators.join_keys import (
    added_names,
    check_join_keys,
    check_names,
    joined_schema,
    left_keys,
    paired_keys,
    result_columns,
    right_keys,
    shared_names,
)
from tidemark.graph.operators.keys import check_key_column, decode_keys, encode_keys, typed
from tidemark.graph.operators.kind import OperatorKind, Schemas
from tidemark.graph.operators.state_names import key_column, left_column, right_column

_FORMAT = 1
_HOWS = ("inner", "left")


class AsofJoinKind(OperatorKind[AsofJoinNode]):
    """``left.join_asof(right, ...)``."""

    name: ClassVar[str] = "asof_join"
    noun: ClassVar[str] = "temporal join"
    nouns: ClassVar[str] = "temporal joins"
    state_noun: ClassVar[str] = "left elements that wait for their version, and the versions of all keys"

    def validate(self, node: AsofJoinNode, schemas: Schemas) -> None:
        """Check ``how``, both sides, and the key of corrected results."""
        if node.how not in _HOWS:
            raise DefinitionError(
                f"join_asof(how={node.how!r}) is not supported: a version may be met by any number of later elements",
                fix="write how='inner' or how='left'; for right or full results exchange the sides, or use .join(..., within=...)",
                uid=node.uid,
                place=node.place,
            )
        check_join_keys(node.on, schemas, node, "join_asof")
        left, right = schemas
        if left is not None and right is not None:
            check_names(left.names, added_names(node.on, right.names), node, "join_asof")
        if node.corrects and not node.key:
            raise DefinitionError(
                "join_asof(allowed_lateness=...) corrects rows that were emitted, and has no key to find them by",
                fix="name the left columns that identify an element: key=['order_id']; or leave allowed_lateness out",
                uid=node.uid,
                place=node.place,
            )
        if node.key and not node.corrects:
            raise DefinitionError(
                f"join_asof(key={list(node.key)!r}) without allowed_lateness: each element is answered once, and nothing is corrected",
                fix="leave key out, or add allowed_lateness='1 hour'",
                uid=node.uid,
                place=node.place,
            )
        for name in node.key:
            check_key_column(name, "join_asof(key=...)", schemas[0], node, side="left ")

    def output_schema(self, node: AsofJoinNode, schemas: Schemas) -> Schema | None:
        """Return the left columns, then the right ones without the keys of one name."""
        left, right = schemas
        if left is None or right is None:
            return None
        return joined_schema(result_columns(node.on, left.names, right.names, one_sided=False), left, right)

    def side_schema(self, node: AsofJoinNode, counter: str, schemas: Schemas) -> Schema | None:
        """Return the columns of the late element's own input."""
        del node
        return schemas[1] if counter == LATE_RIGHT else schemas[0]

    def lineage(self, node: AsofJoinNode, origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
        """Return the origins of each side's columns; a key column of both is the left one's."""
        left, right = origins
        own = {name: found for name, found in right.columns.items() if name.lower() not in shared_names(node.on)}
        return ColumnOrigins({**own, **left.columns}, merged([left.other, right.other]), left.time)

    def side_lineage(self, node: AsofJoinNode, counter: str, origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
        """Return those of the late element's own input."""
        del node
        return origins[1] if counter == LATE_RIGHT else origins[0]

    def describe(self, node: AsofJoinNode) -> str:
        """Return what is compared, how, and the lateness."""
        on = ", ".join(f"{describe_expression(key.left)} = {describe_expression(key.right)}" for key in node.on)
        lateness = f", corrected for {format_duration(node.allowed_lateness_ms)}, key {', '.join(node.key)}" if node.corrects else ""
        return f"as-of join ({node.how}) on {on}{lateness}"

    def describe_rows(self, node: AsofJoinNode) -> str:
        """Return what a result row is."""
        kept = "" if node.how == "inner" else ", null where there is none"
        return f"A left element with the newest version of its key that is not after it{kept}"

    def describe_column(self, node: AsofJoinNode, name: str) -> str | None:
        """Return nothing: columns hold what the inputs' do."""
        del node, name
        return None

    def describe_counter(self, counter: str) -> str:
        """Return what late elements are."""
        return {
            LATE_LEFT: "Late left elements: the versions that they could meet are gone from state",
            LATE_RIGHT: "Late versions: a newer one of their key answers all that is still asked",
        }[counter]

    def made_by(self, node: AsofJoinNode) -> tuple[str, str]:
        """Return the method."""
        return "join_asof", f"joins the newest version by {', '.join(key.name for key in node.on)}"

    def counters(self, node: AsofJoinNode) -> tuple[str, ...]:
        """Return the counters of late elements."""
        del node
        return (LATE_LEFT, LATE_RIGHT)

    def late_counters(self, node: AsofJoinNode) -> tuple[str, ...]:
        """Return both."""
        return self.counters(node)

    def expressions(self, node: AsofJoinNode) -> Iterator[tuple[str, Expression | None]]:
        """Yield those that the sides are compared by."""
        yield from ((f"left key {key.name!r}", key.left) for key in node.on)
        yield from ((f"right key {key.name!r}", key.right) for key in node.on)

    def encode(self, node: AsofJoinNode) -> dict[str, object]:
        """Return what is compared, how, and the lateness."""
        return {
            "format": _FORMAT,
            "kind": self.name,
            "keys": encode_keys(left_keys(node.on)),
            "right_keys": encode_keys(right_keys(node.on)),
            "how": node.how,
            "allowed_lateness_ms": node.allowed_lateness_ms,
            "key": list(node.key),
        }

    def decode(self, definition: Definition, uid: str) -> AsofJoinNode:
        """Return a node with the same state."""
        right = decode_keys({"keys": definition["right_keys"]})
        return AsofJoinNode(
            uid=uid,
            on=paired_keys(decode_keys(definition), right),
            how=cast("Literal['inner', 'left']", definition["how"]),
            allowed_lateness_ms=int(cast("int", definition["allowed_lateness_ms"])),
            key=tuple(cast("list[str]", definition["key"])),
        )

    def changes(self, old: Definition, new: Definition, names: Names, kept: tuple[Kept, Kept] | None) -> tuple[DefinitionChange, ...]:
        """Return differences: of what is compared, which finds other state; of the rest, which holds from the next epoch on."""
        del kept
        found = key_changes(old, new, names)
        right = key_changes({"keys": old["right_keys"]}, {"keys": new["right_keys"]}, names)
        found += [change for change in right if change.effect == "other" and change not in found]
        before, after = (int(cast("int", each["allowed_lateness_ms"])) for each in (old, new))
        if before != after:
            found.append(
                DefinitionChange("allowed_lateness", "none", f"the allowed lateness was {_duration(before)} and is now {_duration(after)}")
            )
        for name, what in (("how", "how"), ("key", "the key of results")):
            if old[name] != new[name]:
                found.append(DefinitionChange(name, "none", f"{what} was {old[name]} and is now {new[name]}"))
        return tuple(found)

    def keeps(self, node: AsofJoinNode) -> Kept:
        """Return ``partials``: elements that wait and versions, with the columns that results need."""
        del node
        return "partials"

    def state_columns(self, node: AsofJoinNode, schemas: Schemas) -> dict[str, str | None] | None:
        """Return what is compared, and the columns of both sides."""
        left, right = schemas
        if left is None or right is None:
            return None
        keys = {key_column(column.name): column.type for column in typed(left_keys(node.on), left)}
        lefts = {left_column(column.name): column.type for column in left.columns}
        return {**keys, **lefts, **{right_column(column.name): column.type for column in right.columns}}

    def changelog_keys(self, node: AsofJoinNode) -> tuple[str, ...] | None:
        """Return the key of corrected results; None where nothing is corrected."""
        return node.key if node.corrects else None

    def needs_order(self, node: AsofJoinNode) -> bool:
        """Return true: of versions of one time the last in its source is met."""
        del node
        return True

    def late_known_after_emit(self, node: AsofJoinNode) -> bool:
        """Return true: an element is compared with the versions of its key when the epoch's answers are made."""
        del node
        return True

    def looks_up_side_rows(self, node: AsofJoinNode) -> bool:
        """Return false: the operator has its late elements itself."""
        del node
        return False


def _duration(milliseconds: int) -> str:
    return format_duration(milliseconds) if milliseconds else "none"
