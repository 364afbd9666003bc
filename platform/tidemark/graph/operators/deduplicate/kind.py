"""Deduplication as an operator kind: its rules in the graph, and its definition as stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, cast

from tidemark.durations import format_duration
from tidemark.errors import DefinitionError
from tidemark.graph.expressions.column_origins import ColumnOrigins
from tidemark.graph.expressions.expression_text import describe_columns
from tidemark.graph.model.nodes import Expression
from tidemark.graph.model.schema import Schema
from tidemark.graph.operators.changes import Definition, DefinitionChange, Kept, Names, key_changes
from tidemark.graph.operators.deduplicate.node import DeduplicateNode
from tidemark.graph.operators.keys import check_keys, decode_keys, encode_keys, typed
from tidemark.graph.operators.kind import OperatorKind, Schemas
from tidemark.graph.operators.state_names import key_column

_FORMAT = 1


class DeduplicateKind(OperatorKind[DeduplicateNode]):
    """``key_by(...).deduplicate(...)``."""

    name: ClassVar[str] = "deduplicate"
    noun: ClassVar[str] = "operator"
    nouns: ClassVar[str] = "deduplications"
    state_noun: ClassVar[str] = "the first elements that show duplicates"
    chooses_rows: ClassVar[bool] = True

    def validate(self, node: DeduplicateNode, schemas: Schemas) -> None:
        """Check the keys, ``keep`` and the times."""
        if node.keep != "first":
            raise DefinitionError(
                f"deduplicate(keep={node.keep!r}) keeps neither the first nor the last element",
                fix="write keep='first', or keep='last' without within",
                uid=node.uid,
                place=node.place,
            )
        if node.within_ms < 1:
            raise DefinitionError(
                "deduplicate(within=...) of zero length finds no duplicates", fix="write within='1 hour'", uid=node.uid, place=node.place
            )
        check_keys(node.keys, schemas[0], node.place, uid=node.uid)

    def output_schema(self, node: DeduplicateNode, schemas: Schemas) -> Schema | None:
        """Return the input's columns."""
        del node
        return schemas[0]

    def lineage(self, node: DeduplicateNode, origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
        """Return those of the input."""
        del node
        return origins[0]

    def describe(self, node: DeduplicateNode) -> str:
        """Return keys, time and lateness."""
        lateness = f", allowed lateness {format_duration(node.allowed_lateness_ms)}" if node.allowed_lateness_ms else ""
        return f"deduplicate by {describe_columns(node.keys)}, keep {node.keep} within {format_duration(node.within_ms)}{lateness}"

    def describe_rows(self, node: DeduplicateNode) -> str:
        """Return which rows are kept."""
        keys = ", ".join(f"`{name}`" for name, _ in node.keys)
        return f"The first row of each {keys} within {format_duration(node.within_ms)}"

    def describe_column(self, node: DeduplicateNode, name: str) -> str | None:
        """Return nothing: columns hold what the input's do."""
        del node, name
        return None

    def describe_counter(self, counter: str) -> str:
        """Return what duplicates and late rows are."""
        return {
            "duplicates": "Duplicates: a row of their key had been emitted",
            "late": "Late rows: the state that could show them as duplicates had expired",
        }[counter]

    def made_by(self, node: DeduplicateNode) -> tuple[str, str]:
        """Return the method."""
        return "deduplicate", f"deduplicates by {', '.join(name for name, _ in node.keys)}"

    def counters(self, node: DeduplicateNode) -> tuple[str, ...]:
        """Return ``duplicates`` and ``late``."""
        del node
        return ("duplicates", "late")

    def expressions(self, node: DeduplicateNode) -> Iterator[tuple[str, Expression | None]]:
        """Yield those of the keys."""
        yield from ((f"key {name!r}", expression) for name, expression in node.keys)

    def encode(self, node: DeduplicateNode) -> dict[str, object]:
        """Return keys, ``keep``, and the times."""
        return {
            "format": _FORMAT,
            "kind": self.name,
            "keys": encode_keys(node.keys),
            "keep": node.keep,
            "within_ms": node.within_ms,
            "allowed_lateness_ms": node.allowed_lateness_ms,
        }

    def decode(self, definition: Definition, uid: str) -> DeduplicateNode:
        """Return a node with the same state."""
        within, lateness = (int(cast("int", definition[name])) for name in ("within_ms", "allowed_lateness_ms"))
        return DeduplicateNode(uid=uid, keys=decode_keys(definition), within_ms=within, allowed_lateness_ms=lateness)

    def changes(self, old: Definition, new: Definition, names: Names, kept: tuple[Kept, Kept] | None) -> tuple[DefinitionChange, ...]:
        """Return differences of keys, and of times: new ones apply from the next epoch on; state that was dropped does not come back."""
        del kept
        found = key_changes(old, new, names)
        for name, what in (("within_ms", "the time within which a row is a duplicate"), ("allowed_lateness_ms", "the allowed lateness")):
            before, after = (int(cast("int", each[name])) for each in (old, new))
            if before != after:
                found.append(
                    DefinitionChange(name.removesuffix("_ms"), "none", f"{what} was {_duration(before)} and is now {_duration(after)}")
                )
        return tuple(found)

    def keeps(self, node: DeduplicateNode) -> Kept:
        """Return ``partials``: of elements only key and time are kept."""
        del node
        return "partials"

    def state_columns(self, node: DeduplicateNode, schemas: Schemas) -> dict[str, str | None]:
        """Return the keys."""
        return {key_column(column.name): column.type for column in typed(node.keys, schemas[0])}

    def needs_order(self, node: DeduplicateNode) -> bool:
        """Return true: of elements of one time the first in its source is kept."""
        del node
        return True


def _duration(milliseconds: int) -> str:
    return format_duration(milliseconds) if milliseconds else "none"
