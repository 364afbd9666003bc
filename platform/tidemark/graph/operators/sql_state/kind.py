"""State machines in SQL as an operator kind: rules in the graph, and the definition as stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, cast

from tidemark.graph.expressions.column_origins import NO_ORIGINS, ColumnOrigins, Origins, merged
from tidemark.graph.expressions.expression_text import describe_columns, describe_expression
from tidemark.graph.expressions.expression_types import expression_type
from tidemark.graph.model.nodes import Expression
from tidemark.graph.model.schema import Schema, SchemaColumn
from tidemark.graph.operators.changes import Definition, DefinitionChange, Kept, Names, entries, key_changes, part_changes
from tidemark.graph.operators.keyed_process.state_columns import value_column
from tidemark.graph.operators.keys import decode_keys, encode_keys, typed
from tidemark.graph.operators.kind import OperatorKind, Schemas
from tidemark.graph.operators.lifetimes import decode_lifetime, describe_lifetime, encode_lifetime, lifetime_changes
from tidemark.graph.operators.sql_state.checks import check_sql_state
from tidemark.graph.operators.sql_state.expressions import NEW, depends_on_state, fields_read, names_read, seen_by_results
from tidemark.graph.operators.sql_state.node import SqlStateNode, StateField

_FORMAT = 1


class SqlStateKind(OperatorKind[SqlStateNode]):
    """``key_by(...).process(sql_state(...))``, and ``key_by(...).reduce(...)``."""

    name: ClassVar[str] = "sql_state"
    noun: ClassVar[str] = "state machine"
    nouns: ClassVar[str] = "state machines"
    state_noun: ClassVar[str] = "the fields of all keys"
    part_noun: ClassVar[str] = "field"
    added_part: ClassVar[str] = "keys that are stored already begin with its initial value"

    def validate(self, node: SqlStateNode, schemas: Schemas) -> None:
        """Check keys, names and expressions."""
        check_sql_state(node, schemas[0])

    def output_schema(self, node: SqlStateNode, schemas: Schemas) -> Schema:
        """Return the declared columns; of ``reduce`` keys and reduced columns."""
        given = schemas[0]
        if node.reduced:
            return Schema((*typed(node.keys, given), *(SchemaColumn(field.name, _field_type(field, given)) for field in node.fields)))
        seen = seen_by_results(node, given)
        return Schema(tuple(SchemaColumn(name, expression_type(text, seen)) for name, text in node.returns))

    def lineage(self, node: SqlStateNode, origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
        """Return the origins of results: fields are made of all columns that their updates read, directly or through other fields."""
        given = origins[0]
        fields = {field.name.lower(): _field_origins(node, field, given) for field in node.fields}
        if node.reduced:
            columns = {name.lower(): given.of(expression) for name, expression in node.keys}
            return ColumnOrigins(columns | fields, NO_ORIGINS, given.time)
        seen = ColumnOrigins({**given.columns, **fields, NEW: merged(fields.values())}, given.other, given.time)
        return ColumnOrigins({name.lower(): _origins_of(text, seen) for name, text in node.returns}, NO_ORIGINS, given.time)

    def describe(self, node: SqlStateNode) -> str:
        """Return keys, fields, when it emits what, and how long state lives."""
        lives = f", state lives for {describe_lifetime(node.ttl)}" if node.ttl is not None else ""
        by = describe_columns(node.keys)
        if node.reduced:
            shown = ", ".join(f"{field.name} = {describe_expression(field.update)}" for field in node.fields)
            return f"reduce by {by}: {shown}{lives}"
        shown = ", ".join(_describe_field(field) for field in node.fields)
        when = f", emits when {describe_expression(node.emit_when)}" if node.emit_when is not None else ""
        how = "element by element" if depends_on_state(node) else "from the element before"
        return f"state by {by}: {shown}, {how}{when}, returns {describe_columns(node.returns)}{lives}"

    def describe_rows(self, node: SqlStateNode) -> str:
        """Return which elements emit a row."""
        keys = ", ".join(f"`{name}`" for name, _ in node.keys)
        if node.reduced:
            return f"Each element merged with all before it of its {keys}"
        if node.emit_when is None:
            return f"A row for each element, with the state of its {keys}"
        return f"A row for each element for which `{describe_expression(node.emit_when)}`, with the state of its {keys}"

    def describe_column(self, node: SqlStateNode, name: str) -> str | None:
        """Return the expression of a column."""
        merges = {field.name: field.update for field in node.fields} if node.reduced else {}
        text = {**merges, **dict(node.returns)}.get(name)
        return None if text is None else f"`{describe_expression(text)}`."

    def describe_counter(self, counter: str) -> str:
        """Never called: it accepts all elements."""
        raise KeyError(counter)

    def made_by(self, node: SqlStateNode) -> tuple[str, str]:
        """Return the method."""
        names = ", ".join(field.name for field in node.fields)
        return ("reduce", f"reduces {names}") if node.reduced else ("process", f"keeps {names}")

    def counters(self, node: SqlStateNode) -> tuple[str, ...]:
        """Return none."""
        del node
        return ()

    def expressions(self, node: SqlStateNode) -> Iterator[tuple[str, Expression | None]]:
        """Yield those of keys, fields, ``emit_when`` and results."""
        yield from ((f"key {name!r}", expression) for name, expression in node.keys)
        for field in node.fields:
            yield f"field {field.name!r}", field.update
            yield f"initial value of field {field.name!r}", field.initial
        yield "emit_when", node.emit_when
        yield from ((f"column {name!r}", text) for name, text in node.returns)

    def encode(self, node: SqlStateNode) -> dict[str, object]:
        """Return keys, fields, when it emits what, and the lifetime."""
        return {
            "format": _FORMAT,
            "kind": self.name,
            "keys": encode_keys(node.keys),
            "fields": [_encoded(field) for field in node.fields],
            "reduced": node.reduced,
            "emit_when": node.emit_when,
            "returns": [{"name": name, "expression": text} for name, text in node.returns],
            **encode_lifetime(node.ttl),
        }

    def decode(self, definition: Definition, uid: str) -> SqlStateNode:
        """Return the node."""
        emit_when = definition.get("emit_when")
        return SqlStateNode(
            uid=uid,
            keys=decode_keys(definition),
            fields=tuple(_decoded(name, entry) for name, entry in entries(definition, "fields").items()),
            returns=tuple((name, str(entry["expression"])) for name, entry in entries(definition, "returns").items()),
            emit_when=None if emit_when is None else str(emit_when),
            ttl=decode_lifetime(definition),
            reduced=bool(definition.get("reduced")),
        )

    def changes(self, old: Definition, new: Definition, names: Names, kept: tuple[Kept, Kept] | None) -> tuple[DefinitionChange, ...]:
        """Return differences of keys, fields, and expressions. Types are compared with those of the stored columns."""
        del kept
        if bool(old.get("reduced")) != bool(new.get("reduced")):
            was, now = (("a state machine", "a reduce")[bool(each.get("reduced"))] for each in (old, new))
            return (DefinitionChange("fields", "other", f"it was {was} and is now {now}"),)
        fields = part_changes("field", entries(old, "fields"), entries(new, "fields"), names, _one_field)
        return (*key_changes(old, new, names), *fields, *_result_changes(old, new), *lifetime_changes(old, new))

    def keeps(self, node: SqlStateNode) -> Kept:
        """Return ``partials``: no elements are kept."""
        del node
        return "partials"

    def state_columns(self, node: SqlStateNode, schemas: Schemas) -> dict[str, str | None]:
        """Return keys and fields."""
        from tidemark.graph.operators.state_names import key_column

        columns = {key_column(column.name): column.type for column in typed(node.keys, schemas[0])}
        return columns | {value_column(field.name): _field_type(field, schemas[0]) for field in node.fields}

    def state_parts(self, definition: Definition) -> dict[str, list[str]]:
        """Return the column of each field."""
        return {name: [value_column(name)] for name in entries(definition, "fields")}

    def needs_order(self, node: SqlStateNode) -> bool:
        """Return true: of elements of one time the first in its source comes first."""
        del node
        return True


def _field_type(field: StateField, given: Schema | None) -> str | None:
    found = None if given is None else given.find(field.name)
    return field.type if field.type is not None or found is None else found.type


def _origins_of(text: str, seen: ColumnOrigins) -> Origins:
    """Return the origins of an expression; of ``new.last`` that of ``last``."""
    from sqlglot import exp

    from tidemark.graph.expressions.expressions import Site, parse_sql

    names = [[part.name.lower() for part in column.parts] for column in parse_sql(text, Site("column", "")).find_all(exp.Column)]
    return seen.of_names(parts[1] if parts[0] == NEW and len(parts) > 1 else parts[0] for parts in names)


def _field_origins(node: SqlStateNode, field: StateField, given: ColumnOrigins) -> Origins:
    read = fields_read(node, field)
    if node.reduced:
        return given.of_names(read)
    updates = {each.name.lower(): each.update for each in node.fields}
    return merged(given.of_names(names_read(updates[name]) - node.field_names) for name in read)


def _describe_field(field: StateField) -> str:
    initial = "" if field.initial is None else f", at first {describe_expression(field.initial)}"
    return f"{field.name} {field.type} = {describe_expression(field.update)}{initial}"


def _encoded(field: StateField) -> dict[str, object]:
    found: dict[str, object] = {"name": field.name, "update": field.update}
    found |= {} if field.type is None else {"type": field.type}
    return found if field.initial is None else {**found, "initial": field.initial}


def _decoded(name: str, entry: Mapping[str, object]) -> StateField:
    kind, initial = entry.get("type"), entry.get("initial")
    return StateField(name, str(entry["update"]), None if kind is None else str(kind), None if initial is None else str(initial))


def _one_field(name: str, before: Mapping[str, object], now: str, after: Mapping[str, object]) -> Iterator[DefinitionChange]:
    if now != name:
        yield DefinitionChange("field", "renamed", f"the field {name!r} is now called {now!r}", now, name)
    for about, what in (("update", "next value"), ("initial", "initial value")):
        if before.get(about) != after.get(about):
            was, is_now = (each.get(about) or "null" for each in (before, after))
            yield DefinitionChange(about, "none", f"the {what} of the field {now!r} was {was} and is now {is_now}", now)


def _result_changes(old: Definition, new: Definition) -> Iterator[DefinitionChange]:
    if old.get("emit_when") != new.get("emit_when"):
        was, now = (cast("str | None", each.get("emit_when")) or "always" for each in (old, new))
        yield DefinitionChange("emit_when", "none", f"it emitted when {was} and emits now when {now}")
    if old.get("returns") != new.get("returns"):
        yield DefinitionChange("returns", "none", "the columns of its results changed")
