"""Running results as an operator kind: rules in the graph, and the definition as stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal, cast

from tidemark.graph.aggregates.aggregate_types import aggregate_type
from tidemark.graph.expressions.column_origins import NO_ORIGINS, ColumnOrigins
from tidemark.graph.expressions.expression_text import describe_columns, describe_expression
from tidemark.graph.expressions.expressions import Site
from tidemark.graph.model.nodes import Expression
from tidemark.graph.model.schema import Schema, SchemaColumn
from tidemark.graph.operators.changes import Definition, DefinitionChange, Kept, Names, entries, key_changes, same_expression
from tidemark.graph.operators.keys import decode_keys, encode_keys, typed
from tidemark.graph.operators.kind import OperatorKind, Schemas
from tidemark.graph.operators.lifetimes import decode_lifetime, describe_lifetime, encode_lifetime, lifetime_changes
from tidemark.graph.operators.running.checks import check_running
from tidemark.graph.operators.running.node import Extreme, RunningNode
from tidemark.graph.operators.state_names import key_column, partial_column
from tidemark.graph.operators.window.columns import aggregate_columns
from tidemark.graph.operators.window.definition import aggregate_definition
from tidemark.graph.operators.window.definition_decoder import aggregate_of_definition
from tidemark.graph.operators.window.definition_diff import aggregate_changes
from tidemark.graph.operators.window.descriptions import describe_aggregate
from tidemark.graph.operators.window.state_columns import partial_types

_FORMAT = 1
BEST_COLUMN = partial_column("best", "row")
"""The column of state that has the element of an extreme, with its value."""


class RunningKind(OperatorKind[RunningNode]):
    """``key_by(...).running_aggregate(...)``, ``max_by(...)`` and ``min_by(...)``: results over a key's elements so far."""

    name: ClassVar[str] = "running"
    noun: ClassVar[str] = "running aggregate"
    nouns: ClassVar[str] = "running aggregates"
    state_noun: ClassVar[str] = "the results so far of all keys"
    added_part: ClassVar[str] = "keys that are stored already begin without it"

    def validate(self, node: RunningNode, schemas: Schemas) -> None:
        """Check keys and aggregates."""
        check_running(node, schemas[0])

    def output_schema(self, node: RunningNode, schemas: Schemas) -> Schema | None:
        """Return keys and results; of an extreme the input's columns."""
        given = schemas[0]
        if node.extreme is not None:
            return given
        results = (SchemaColumn(name, aggregate_type(aggregate, given)) for name, aggregate in node.aggregates)
        return Schema((*typed(node.keys, given), *results))

    def lineage(self, node: RunningNode, origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
        """Return the origins of keys and results; of an extreme those of the input, with what elements are chosen by."""
        given = origins[0]
        if node.extreme is not None:
            return given
        columns = {name.lower(): given.of(expression) for name, expression in node.keys}
        columns |= {
            name.lower(): given.of_names(aggregate_columns(aggregate, Site(f"aggregate {name!r}", node.place, node.uid)))
            for name, aggregate in node.aggregates
        }
        return ColumnOrigins(columns, NO_ORIGINS, given.time)

    def describe(self, node: RunningNode) -> str:
        """Return keys, results, and how long state lives."""
        lives = f", state lives for {describe_lifetime(node.ttl)}" if node.ttl is not None else ""
        if node.extreme is not None:
            shown = f"{node.extreme.kind} {describe_expression(node.extreme.by)}"
        else:
            shown = ", ".join(f"{name} = {describe_aggregate(aggregate)}" for name, aggregate in node.aggregates)
        return f"running by {describe_columns(node.keys)}: {shown}{lives}"

    def describe_rows(self, node: RunningNode) -> str:
        """Return what there is for each element."""
        keys = ", ".join(f"`{name}`" for name, _ in node.keys)
        if node.extreme is not None:
            which = "greatest" if node.extreme.kind == "max_by" else "least"
            return f"For each element the one with the {which} `{describe_expression(node.extreme.by)}` of its {keys} so far"
        return f"A row for each element, with the results over all elements of its {keys} so far"

    def describe_column(self, node: RunningNode, name: str) -> str | None:
        """Return keys and aggregates; the columns of an extreme hold what the input's do."""
        keys, aggregates = dict(node.keys), dict(node.aggregates)
        if node.extreme is not None:
            return None
        if name in aggregates:
            return f"`{describe_aggregate(aggregates[name])}` over all elements so far."
        return f"Key: `{describe_expression(keys[name])}`." if name in keys else None

    def describe_counter(self, counter: str) -> str:
        """Never called: it accepts all elements."""
        raise KeyError(counter)

    def made_by(self, node: RunningNode) -> tuple[str, str]:
        """Return the method."""
        if node.extreme is not None:
            return node.extreme.kind, f"chooses by {describe_expression(node.extreme.by)}"
        return "running_aggregate", f"aggregates {', '.join(name for name, _ in node.aggregates)}"

    def counters(self, node: RunningNode) -> tuple[str, ...]:
        """Return none."""
        del node
        return ()

    def expressions(self, node: RunningNode) -> Iterator[tuple[str, Expression | None]]:
        """Yield those of keys and aggregates, and what an extreme is chosen by."""
        yield from ((f"key {name!r}", expression) for name, expression in node.keys)
        if node.extreme is not None:
            yield node.extreme.kind, node.extreme.by
        for name, aggregate in node.aggregates:
            written = [text for part in aggregate.partials for text in (part.create, part.merge)]
            texts = [*written, aggregate.result] if aggregate.kind == "sql_aggregate" else aggregate.arguments
            yield from ((f"aggregate {name!r}", text) for text in texts)

    def encode(self, node: RunningNode) -> dict[str, object]:
        """Return keys, aggregates or the extreme, and the lifetime."""
        extreme = {} if node.extreme is None else {"extreme": {"kind": node.extreme.kind, "by": node.extreme.by}}
        return {
            "format": _FORMAT,
            "kind": self.name,
            "keys": encode_keys(node.keys),
            "aggregates": [aggregate_definition(name, aggregate) for name, aggregate in node.aggregates],
            **extreme,
            **encode_lifetime(node.ttl),
        }

    def decode(self, definition: Definition, uid: str) -> RunningNode:
        """Return the node."""
        found = definition.get("extreme")
        extreme = Extreme(cast("Literal['max_by', 'min_by']", found["kind"]), str(found["by"])) if isinstance(found, Mapping) else None
        return RunningNode(
            uid=uid,
            keys=decode_keys(definition),
            aggregates=tuple((name, aggregate_of_definition(entry)) for name, entry in entries(definition, "aggregates").items()),
            extreme=extreme,
            ttl=decode_lifetime(definition),
        )

    def changes(self, old: Definition, new: Definition, names: Names, kept: tuple[Kept, Kept] | None) -> tuple[DefinitionChange, ...]:
        """Return differences of keys, aggregates, what an extreme is chosen by, and the lifetime."""
        del kept
        aggregates = aggregate_changes(entries(old, "aggregates"), entries(new, "aggregates"), names, "keys")
        return (*key_changes(old, new, names), *_extreme_changes(old, new, names), *aggregates, *lifetime_changes(old, new))

    def keeps(self, node: RunningNode) -> Kept:
        """Return ``partials``."""
        del node
        return "partials"

    def state_columns(self, node: RunningNode, schemas: Schemas) -> dict[str, str | None]:
        """Return keys and partials; of an extreme the element, with its value."""
        given = schemas[0]
        columns = {key_column(column.name): column.type for column in typed(node.keys, given)}
        if node.extreme is not None:
            return {**columns, BEST_COLUMN: None}
        partials = ((name, part, kind) for name, aggregate in node.aggregates for part, kind in partial_types(aggregate, given))
        return columns | {partial_column(name, part): kind for name, part, kind in partials}

    def state_parts(self, definition: Definition) -> dict[str, list[str]]:
        """Return the columns of partial results, by aggregate."""
        return {
            name: [partial_column(name, str(part["name"])) for part in cast("list[Definition]", entry.get("partials", []))]
            for name, entry in entries(definition, "aggregates").items()
        }

    def needs_order(self, node: RunningNode) -> bool:
        """Return true: of elements of one time the first in its source comes first."""
        del node
        return True


def _extreme_changes(old: Definition, new: Definition, names: Names) -> Iterator[DefinitionChange]:
    before, after = old.get("extreme"), new.get("extreme")
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        if before.get("kind") == after.get("kind") and same_expression(str(before.get("by")), str(after.get("by")), names):
            return
    elif before == after:
        return
    was, now = (_described(each) for each in (before, after))
    yield DefinitionChange("aggregate", "other", f"it chose {was} and chooses now {now}")


def _described(extreme: object) -> str:
    return f"{extreme.get('kind')}({extreme.get('by')})" if isinstance(extreme, Mapping) else "aggregates"
