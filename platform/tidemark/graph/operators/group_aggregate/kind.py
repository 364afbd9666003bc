"""Aggregates of groups as an operator kind: rules in the graph, and the definition as stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, cast

from tidemark.graph.aggregates.aggregate_types import aggregate_type, argument_type
from tidemark.graph.expressions.column_origins import NO_ORIGINS, ColumnOrigins
from tidemark.graph.expressions.expression_text import describe_columns, describe_expression
from tidemark.graph.expressions.expressions import Site
from tidemark.graph.model.aggregates import Aggregate
from tidemark.graph.model.nodes import Expression
from tidemark.graph.model.schema import Schema, SchemaColumn
from tidemark.graph.operators.changes import Definition, DefinitionChange, Kept, Names, entries, key_changes, renamed
from tidemark.graph.operators.group_aggregate.checks import check_group_aggregate
from tidemark.graph.operators.group_aggregate.node import GroupAggregateNode
from tidemark.graph.operators.group_aggregate.older_sums import is_older_sum, older_sum
from tidemark.graph.operators.group_aggregate.ways import SUMS, VALUE, state_columns_of, way_of
from tidemark.graph.operators.keys import decode_keys, encode_keys, typed
from tidemark.graph.operators.kind import OperatorKind, Schemas
from tidemark.graph.operators.lifetimes import decode_lifetime, describe_lifetime, encode_lifetime, lifetime_changes
from tidemark.graph.operators.state_names import key_column, partial_column
from tidemark.graph.operators.window.columns import aggregate_columns
from tidemark.graph.operators.window.definition import aggregate_definition
from tidemark.graph.operators.window.definition_decoder import aggregate_of_definition
from tidemark.graph.operators.window.definition_diff import aggregate_changes
from tidemark.graph.operators.window.descriptions import describe_aggregate
from tidemark.graph.operators.window.state_columns import partial_types

_FORMAT = 1


class GroupAggregateKind(OperatorKind[GroupAggregateNode]):
    """``key_by(...).aggregate(...)`` and ``aggregate_all(...)``: a changelog of the results of groups."""

    name: ClassVar[str] = "group_aggregate"
    noun: ClassVar[str] = "aggregate"
    nouns: ClassVar[str] = "aggregates"
    state_noun: ClassVar[str] = "the results so far of all groups"
    added_part: ClassVar[str] = "in groups that are stored already it covers only rows from now on"
    takes_changelogs: ClassVar[bool] = True

    def validate(self, node: GroupAggregateNode, schemas: Schemas) -> None:
        """Check keys and aggregates."""
        check_group_aggregate(node, schemas[0])

    def output_schema(self, node: GroupAggregateNode, schemas: Schemas) -> Schema | None:
        """Return keys and results."""
        given = schemas[0]
        results = (SchemaColumn(name, aggregate_type(aggregate, given)) for name, aggregate in node.aggregates)
        return Schema((*typed(node.keys, given), *results))

    def lineage(self, node: GroupAggregateNode, origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
        """Return the origins of keys and results."""
        given = origins[0]
        columns = {name.lower(): given.of(expression) for name, expression in node.keys}
        columns |= {
            name.lower(): given.of_names(aggregate_columns(aggregate, Site(f"aggregate {name!r}", node.place, node.uid)))
            for name, aggregate in node.aggregates
        }
        return ColumnOrigins(columns, NO_ORIGINS, given.time)

    def describe(self, node: GroupAggregateNode) -> str:
        """Return keys, results, what comes in, and how long state lives."""
        by = f"by {describe_columns(node.keys)}" if node.keys else "over all rows"
        shown = ", ".join(f"{name} = {describe_aggregate(aggregate)}" for name, aggregate in node.aggregates)
        over = ", rows are taken back" if node.takes_back else ""
        lives = f", state lives for {describe_lifetime(node.ttl)}" if node.ttl is not None else ""
        return f"aggregate {by}: {shown}{over}{lives}"

    def describe_rows(self, node: GroupAggregateNode) -> str:
        """Return that there is a row for each group."""
        if not node.keys:
            return "A changelog of one row: the results over all rows so far"
        keys = ", ".join(f"`{name}`" for name, _ in node.keys)
        return f"A changelog with one row for each {keys}: the results over all its rows so far"

    def describe_column(self, node: GroupAggregateNode, name: str) -> str | None:
        """Return keys and aggregates."""
        keys, aggregates = dict(node.keys), dict(node.aggregates)
        if name in aggregates:
            return f"`{describe_aggregate(aggregates[name])}` over all rows so far."
        return f"Key: `{describe_expression(keys[name])}`." if name in keys else None

    def describe_counter(self, counter: str) -> str:
        """Never called: it accepts all rows."""
        raise KeyError(counter)

    def made_by(self, node: GroupAggregateNode) -> tuple[str, str]:
        """Return the method."""
        return "aggregate" if node.keys else "aggregate_all", f"aggregates {', '.join(name for name, _ in node.aggregates)}"

    def counters(self, node: GroupAggregateNode) -> tuple[str, ...]:
        """Return none."""
        del node
        return ()

    def expressions(self, node: GroupAggregateNode) -> Iterator[tuple[str, Expression | None]]:
        """Yield those of keys and aggregates."""
        yield from ((f"key {name!r}", expression) for name, expression in node.keys)
        for name, aggregate in node.aggregates:
            written = [text for part in aggregate.partials for text in (part.create, part.merge)]
            texts = [*written, aggregate.result] if aggregate.kind == "sql_aggregate" else aggregate.arguments
            yield from ((f"aggregate {name!r}", text) for text in texts)

    def encode(self, node: GroupAggregateNode) -> dict[str, object]:
        """Return keys, aggregates, the lifetime, and the key of the input's rows where they are taken back."""
        return {
            "format": _FORMAT,
            "kind": self.name,
            "keys": encode_keys(node.keys),
            "aggregates": [aggregate_definition(name, aggregate) for name, aggregate in node.aggregates],
            **({} if node.row_keys is None else {"row_keys": list(node.row_keys)}),
            **encode_lifetime(node.ttl),
        }

    def decode(self, definition: Definition, uid: str) -> GroupAggregateNode:
        """Return the node."""
        return GroupAggregateNode(
            uid=uid,
            keys=decode_keys(definition),
            aggregates=tuple((name, aggregate_of_definition(entry)) for name, entry in entries(definition, "aggregates").items()),
            row_keys=_row_keys(definition),
            ttl=decode_lifetime(definition),
        )

    def changes(self, old: Definition, new: Definition, names: Names, kept: tuple[Kept, Kept] | None) -> tuple[DefinitionChange, ...]:
        """Return differences of keys, of the input's key, of aggregates, and of the lifetime."""
        del kept
        found = aggregate_changes(entries(old, "aggregates"), entries(new, "aggregates"), names, "groups")
        if _row_keys(new) is not None:
            found = [_not_added(change) if change.effect == "added" else change for change in found]
        return (*key_changes(old, new, names), *_input_changes(old, new, names), *found, *lifetime_changes(old, new))

    def keeps(self, node: GroupAggregateNode) -> Kept:
        """Return ``partials``."""
        del node
        return "partials"

    def state_columns(self, node: GroupAggregateNode, schemas: Schemas) -> dict[str, str | None]:
        """Return keys, and the columns of aggregates."""
        given = schemas[0]
        columns = {key_column(column.name): column.type for column in typed(node.keys, given)}
        for name, aggregate in node.aggregates:
            columns |= {partial_column(name, part): kind for part, kind in _types(aggregate, given, takes_back=node.takes_back)}
        return columns

    def state_parts(self, definition: Definition) -> dict[str, list[str]]:
        """Return the columns of state by aggregate."""
        takes_back = _row_keys(definition) is not None
        return {
            name: state_columns_of(name, aggregate_of_definition(entry), takes_back=takes_back)
            for name, entry in entries(definition, "aggregates").items()
        }

    def older_form(self, part: str, stored: object, wanted: object) -> tuple[str, str] | None:
        """Return what to say of sums that earlier releases kept as one number, and the fix."""
        return older_sum(part) if is_older_sum(stored, wanted) else None

    def changelog_keys(self, node: GroupAggregateNode) -> tuple[str, ...]:
        """Return the keys of groups."""
        return tuple(name for name, _ in node.keys)

    def expires(self, node: GroupAggregateNode) -> bool:
        """Return whether groups are kept for some time only."""
        return node.ttl is not None

    def needs_order(self, node: GroupAggregateNode) -> bool:
        """Return whether an aggregate depends on the order of rows."""
        return any(aggregate.ordered for _, aggregate in node.aggregates)


def _row_keys(definition: Definition) -> tuple[str, ...] | None:
    found = definition.get("row_keys")
    return None if found is None else tuple(cast("list[str]", found))


def _types(aggregate: Aggregate, given: Schema | None, *, takes_back: bool) -> Iterator[tuple[str, str | None]]:
    """Yield the parts of an aggregate's state with their types, None for one that is not certain."""
    way = way_of(aggregate) if takes_back else "kept"
    if way == "signed":
        yield SUMS, "BIGINT" if aggregate.kind == "count" else None
    elif way == "counted":
        single = len(aggregate.arguments) == 1 and aggregate.kind != "approx_percentile"
        yield VALUE, argument_type(aggregate, given) if single else "INT" if aggregate.kind == "approx_percentile" else None
    else:
        yield from partial_types(aggregate, given)


def _not_added(change: DefinitionChange) -> DefinitionChange:
    what = f"the aggregate {change.name!r} is new, and the rows that the groups had before could not be taken back from it"
    return DefinitionChange(change.about, "other", what, change.name)


def _input_changes(old: Definition, new: Definition, names: Names) -> Iterator[DefinitionChange]:
    before, after = _row_keys(old), _row_keys(new)
    was = None if before is None else tuple(renamed(name, names) for name in before)
    if after in {was, before}:
        return
    shown = [
        "a stream that is only added to" if keys is None else f"a changelog with the key {', '.join(keys)}" for keys in (before, after)
    ]
    yield DefinitionChange("input", "other", f"the input was {shown[0]} and is now {shown[1]}")
