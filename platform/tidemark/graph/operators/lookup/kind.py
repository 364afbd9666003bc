"""The join with a table as an operator kind: its rules in the graph, and its definition as stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal, cast

from tidemark.durations import format_duration
from tidemark.errors import ColumnError, DefinitionError
from tidemark.graph.expressions.column_origins import NO_ORIGINS, ColumnOrigins, merged
from tidemark.graph.expressions.expression_text import describe_expression
from tidemark.graph.model.nodes import Expression
from tidemark.graph.model.schema import Schema
from tidemark.graph.operators.changes import Definition, DefinitionChange, Kept, Names
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
from tidemark.graph.operators.keys import decode_keys, encode_keys
from tidemark.graph.operators.kind import OperatorKind, Schemas
from tidemark.graph.operators.lookup.node import LookupNode, LookupTable

_FORMAT = 1


class LookupKind(OperatorKind[LookupNode]):
    """``stream.lookup(table, ...)``."""

    name: ClassVar[str] = "lookup"
    noun: ClassVar[str] = "lookup"
    nouns: ClassVar[str] = "lookups"
    state_noun: ClassVar[str] = "nothing but a copy of its table"
    keeps_state: ClassVar[bool] = False

    def validate(self, node: LookupNode, schemas: Schemas) -> None:
        """Check ``how``, the columns that are compared, and those of results, as far as the table's are known."""
        if node.how not in {"inner", "left"}:
            raise DefinitionError(
                f"lookup(how={node.how!r}) is not supported: a stream has no end at which a row of the table would be without an element",
                fix="write how='left' or how='inner'",
                uid=node.uid,
                place=node.place,
            )
        known = node.table.columns(None, frozenset())
        if known is not None:
            missing = next((name for name in node.columns or () if known.find(name) is None), None)
            if missing is not None:
                raise missing_column(node, missing, known)
        check_join_keys(node.on, (schemas[0], known), node, "lookup")
        given, added = schemas[0], node.table.columns(node.columns, shared_names(node.on))
        if given is not None and added is not None:
            check_names(given.names, added_names(node.on, added.names), node, "lookup")

    def output_schema(self, node: LookupNode, schemas: Schemas) -> Schema | None:
        """Return the element's columns, then the table's; None where those of the table are not declared."""
        left, right = schemas[0], node.table.columns(node.columns, shared_names(node.on))
        if left is None or right is None:
            return None
        return joined_schema(result_columns(node.on, left.names, right.names, one_sided=False), left, right)

    def lineage(self, node: LookupNode, origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
        """Return the origins of the element's columns; the table's are from no source, and depend on what elements are compared by."""
        (given,) = origins
        keys = merged(given.of(key.left) for key in node.on)
        return ColumnOrigins(given.columns, merged([given.other, keys]) if given.other != NO_ORIGINS else keys, given.time)

    def describe(self, node: LookupNode) -> str:
        """Return the table, what is compared, and how often a new version is looked for."""
        on = ", ".join(f"{describe_expression(key.left)} = {describe_expression(key.right)}" for key in node.on)
        refresh = format_duration(node.refresh_ms) if node.refresh_ms else "each epoch"
        return f"lookup ({node.how}) in {node.table.format} table {node.table.label} on {on}, refreshed: {refresh}"

    def describe_rows(self, node: LookupNode) -> str:
        """Return what a result row is."""
        kept = ", null where there is none" if node.how == "left" else ""
        return f"An element with each row of the table `{node.table.label}` that has its key{kept}"

    def describe_column(self, node: LookupNode, name: str) -> str | None:
        """Return nothing: columns hold what the input's and the table's do."""
        del node, name
        return None

    def describe_counter(self, counter: str) -> str:
        """Never called: there are no counters."""
        raise KeyError(counter)

    def made_by(self, node: LookupNode) -> tuple[str, str]:
        """Return the method."""
        return "lookup", f"looks up rows of {node.table.label}"

    def counters(self, node: LookupNode) -> tuple[str, ...]:
        """Return none: every element is accepted."""
        del node
        return ()

    def expressions(self, node: LookupNode) -> Iterator[tuple[str, Expression | None]]:
        """Yield those that elements are compared by."""
        yield from ((f"key {key.name!r}", key.left) for key in node.on)

    def variables(self, node: LookupNode) -> Mapping[str, str]:
        """Return the variables of a database's password and options."""
        database = node.table.database
        if database is None:
            return {}
        return {variable: f"the {option} for the table {node.table.label}" for option, variable in database.environment.items()}

    def encode(self, node: LookupNode) -> dict[str, object]:
        """Return the table, what is compared, and how."""
        return {
            "format": _FORMAT,
            "kind": self.name,
            "keys": encode_keys(left_keys(node.on)),
            "right_keys": encode_keys(right_keys(node.on)),
            "how": node.how,
            "table": node.table.encoded(),
            "columns": None if node.columns is None else list(node.columns),
            "refresh_ms": node.refresh_ms,
        }

    def decode(self, definition: Definition, uid: str) -> LookupNode:
        """Return the node."""
        columns = cast("list[str] | None", definition["columns"])
        return LookupNode(
            uid=uid,
            on=paired_keys(decode_keys(definition), decode_keys({"keys": definition["right_keys"]})),
            table=LookupTable.decoded(cast("Mapping[str, object]", definition["table"])),
            how=cast("Literal['inner', 'left']", definition["how"]),
            columns=None if columns is None else tuple(columns),
            refresh_ms=int(cast("int", definition["refresh_ms"])),
        )

    def changes(self, old: Definition, new: Definition, names: Names, kept: tuple[Kept, Kept] | None) -> tuple[DefinitionChange, ...]:
        """Return differences, none of which concerns state."""
        del names, kept
        parts = {
            "keys": "what elements are compared by",
            "right_keys": "what rows of the table are compared by",
            "how": "how",
            "table": "the table",
            "columns": "the columns of the table",
            "refresh_ms": "the time between refreshes",
        }
        return tuple(DefinitionChange(name, "none", f"{what} changed") for name, what in parts.items() if old.get(name) != new.get(name))

    def keeps(self, node: LookupNode) -> Kept:
        """Return ``nothing``."""
        del node
        return "nothing"

    def state_columns(self, node: LookupNode, schemas: Schemas) -> dict[str, str | None]:
        """Return no columns."""
        del node, schemas
        return {}

    def needs_order(self, node: LookupNode) -> bool:
        """Return true: rows get the positions of their elements, by which operators and sinks that follow order them."""
        del node
        return True


def missing_column(node: LookupNode, name: str, known: Schema) -> ColumnError:
    """Return the error for a column that the table does not have."""
    near = known.nearest(name)
    hint = f"; did you mean {near!r}?" if near else ", which has no such column."
    return ColumnError(
        f"lookup reads column {name!r} of table {node.table.label!r}{hint} The columns are: {', '.join(known.names)}",
        fix=f"write {near!r}" if near else "name columns of the table",
        uid=node.uid,
        place=node.place,
    )
