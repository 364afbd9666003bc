"""Keyed process functions as an operator kind: rules in the graph, and the definition as stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, cast

from tidemark.errors import StateMismatchError
from tidemark.graph.expressions.column_origins import NO_ORIGINS, ColumnOrigins
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.expressions.expression_text import describe_columns
from tidemark.graph.expressions.function_fingerprint import function_text, text_hash
from tidemark.graph.model.nodes import Expression
from tidemark.graph.model.schema import Schema, SchemaColumn
from tidemark.graph.operators.changes import Definition, DefinitionChange, Kept, Names, entries, key_changes, part_changes
from tidemark.graph.operators.emitting import FAILED, emitted_counter
from tidemark.graph.operators.keyed_process.checks import check_process
from tidemark.graph.operators.keyed_process.descriptors import StateDescriptor
from tidemark.graph.operators.keyed_process.node import KeyedProcessNode
from tidemark.graph.operators.keyed_process.state_columns import columns_of, renewed_column
from tidemark.graph.operators.keys import check_keys, decode_keys, encode_keys, typed
from tidemark.graph.operators.kind import OperatorKind, Schemas
from tidemark.graph.operators.lifetimes import decode_lifetime, describe_lifetime
from tidemark.graph.operators.state_names import key_column
from tidemark.semantics.keyed_process.declarations import Aggregation, StateKind

_FORMAT = 1
ERROR = "error"
"""The column of a failed element that says what went wrong."""


class KeyedProcessKind(OperatorKind[KeyedProcessNode]):
    """``key_by(...).process(...)``."""

    name: ClassVar[str] = "keyed_process"
    noun: ClassVar[str] = "process function"
    nouns: ClassVar[str] = "process functions"
    state_noun: ClassVar[str] = "the states and timers of all keys"
    part_noun: ClassVar[str] = "state"
    added_part: ClassVar[str] = "keys that are stored already begin without it"

    def validate(self, node: KeyedProcessNode, schemas: Schemas) -> None:
        """Check the keys, the function and the side outputs."""
        check_keys(node.keys, schemas[0], node.place, uid=node.uid)
        check_process(node, schemas[0])

    def output_schema(self, node: KeyedProcessNode, schemas: Schemas) -> Schema:
        """Return the columns that the function declares."""
        del schemas
        return parse_schema(node.returns, place=node.place)

    def side_schema(self, node: KeyedProcessNode, counter: str, schemas: Schemas) -> Schema | None:
        """Return the declared columns; of failed elements those of the input, and the error."""
        for tag, ddl in node.side_outputs:
            if emitted_counter(tag) == counter:
                return parse_schema(ddl, place=node.place)
        return None if schemas[0] is None else schemas[0].with_columns([SchemaColumn(ERROR, "STRING")])

    def lineage(self, node: KeyedProcessNode, origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
        """Return all columns of the input as the origin of each result."""
        names = parse_schema(node.returns).names
        return ColumnOrigins({name.lower(): origins[0].every() for name in names}, NO_ORIGINS, origins[0].time)

    def side_lineage(self, node: KeyedProcessNode, counter: str, origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
        """Return those of failed elements as they are, and all columns of the input for what the function makes."""
        given = origins[0]
        if counter == FAILED:
            return ColumnOrigins({**given.columns, ERROR: given.every()}, given.other, given.time)
        schema = self.side_schema(node, counter, (None,))
        return ColumnOrigins({name.lower(): given.every() for name in schema.names} if schema else {}, NO_ORIGINS, given.time)

    def describe(self, node: KeyedProcessNode) -> str:
        """Return the keys, the function, and the states."""
        states = f", {', '.join(f'{name}: {describe_state(each)}' for name, each in node.states)}" if node.states else ", without state"
        return f"process by {describe_columns(node.keys)} with {node.function_name}{states}, returns {node.returns}"

    def describe_rows(self, node: KeyedProcessNode) -> str:
        """Return who makes the rows."""
        keys = ", ".join(f"`{name}`" for name, _ in node.keys)
        return f"The rows that `{node.function_name}` emits for the elements and timers of each {keys}"

    def describe_column(self, node: KeyedProcessNode, name: str) -> str | None:
        """Return nothing: only the function knows."""
        del node, name
        return None

    def describe_counter(self, counter: str) -> str:
        """Return what failed elements are, and rows that were emitted to a tag."""
        return (
            "Failed elements: the function raised an error" if counter == FAILED else "Rows that the function emitted to this side output"
        )

    def made_by(self, node: KeyedProcessNode) -> tuple[str, str]:
        """Return the method."""
        return "process", f"processes with {node.function_name}"

    def counters(self, node: KeyedProcessNode) -> tuple[str, ...]:
        """Return ``failed``, where there is an output for these; else the first one ends the epoch."""
        return () if node.on_error is None else (FAILED,)

    def expressions(self, node: KeyedProcessNode) -> Iterator[tuple[str, Expression | None]]:
        """Yield those of the keys."""
        yield from ((f"key {name!r}", expression) for name, expression in node.keys)

    def functions(self, node: KeyedProcessNode) -> Iterator[tuple[str, object]]:
        """Yield the function, and those of its states."""
        yield "the process function", node.function
        for name, descriptor in node.states:
            if descriptor.aggregation is not None:
                yield from ((f"the state {name!r}", function) for function in descriptor.functions)

    def encode(self, node: KeyedProcessNode) -> dict[str, object]:
        """Return keys, states, side outputs and a hash of the function's text."""
        return {
            "format": _FORMAT,
            "kind": self.name,
            "keys": encode_keys(node.keys),
            "states": [_encoded(name, each) for name, each in node.states],
            "function": {"hash": text_hash(function_text(node.function)), "returns": node.returns},  # type: ignore[arg-type]
            "side_outputs": [{"name": tag.name, "returns": ddl} for tag, ddl in node.side_outputs],
        }

    def decode(self, definition: Definition, uid: str) -> KeyedProcessNode:
        """Return a node with the same state, whose function does nothing."""
        states = tuple((name, _decoded(name, each, uid)) for name, each in entries(definition, "states").items())
        returns = str(cast("Mapping[str, object]", definition["function"])["returns"])
        return KeyedProcessNode(uid=uid, keys=decode_keys(definition), function=_nothing, returns=returns, states=states)

    def changes(self, old: Definition, new: Definition, names: Names, kept: tuple[Kept, Kept] | None) -> tuple[DefinitionChange, ...]:
        """Return differences of keys, states and the function. Types are compared with those of the stored columns."""
        del kept
        states = part_changes("state", entries(old, "states"), entries(new, "states"), names, _one_state)
        return (*key_changes(old, new, names), *states, *_others(old, new))

    def keeps(self, node: KeyedProcessNode) -> Kept:
        """Return ``partials``: no elements are kept, unless the function does."""
        del node
        return "partials"

    def state_columns(self, node: KeyedProcessNode, schemas: Schemas) -> dict[str, str | None]:
        """Return the keys, and the columns of each state."""
        columns: dict[str, str | None] = {key_column(column.name): column.type for column in typed(node.keys, schemas[0])}
        for name, descriptor in node.states:
            columns |= columns_of(name, descriptor)
        return columns

    def state_parts(self, definition: Definition) -> dict[str, list[str]]:
        """Return the columns of each state."""
        states = entries(definition, "states").items()
        return {name: list(columns_of(name, _decoded(name, each, ""))) for name, each in states}

    def needs_order(self, node: KeyedProcessNode) -> bool:
        """Return true: of elements of one time the first in its source comes first."""
        del node
        return True

    def late_known_after_emit(self, node: KeyedProcessNode) -> bool:
        """Return true: the function runs when the watermark is known."""
        del node
        return True

    def looks_up_side_rows(self, node: KeyedProcessNode) -> bool:
        """Return false: they come from the function."""
        del node
        return False


def describe_state(descriptor: StateDescriptor) -> str:
    """Return kind and types of a state, and how long it lives.

    >>> describe_state(StateDescriptor("map", "DOUBLE", key_type="STRING"))
    'map of STRING to DOUBLE'
    """
    types = descriptor.type if descriptor.key_type is None else f"{descriptor.key_type} to {descriptor.type}"
    lives = f" for {describe_lifetime(descriptor.ttl)}" if descriptor.ttl is not None else ""
    return f"{descriptor.kind} of {types}{lives}"


def _encoded(name: str, descriptor: StateDescriptor) -> dict[str, object]:
    ttl = descriptor.ttl
    found: dict[str, object] = {"name": name, "kind": descriptor.kind, "type": descriptor.type}
    if descriptor.key_type is not None:
        found["key_type"] = descriptor.key_type
    if ttl is not None:
        found["ttl"] = {"ms": ttl.ms, "domain": ttl.domain, "on_read": ttl.on_read}
    if descriptor.aggregation is not None:
        found["functions"] = [text_hash(function_text(function)) for function in descriptor.functions]
    return found


def _decoded(name: str, entry: Mapping[str, object], uid: str) -> StateDescriptor:
    if entry.get("kind") not in ("value", "list", "map", "reducing", "aggregating"):
        raise StateMismatchError(
            f"the state {name!r} is of kind {entry.get('kind')!r}, which this release does not know",
            fix="use the release that wrote it",
            uid=uid or None,
        )
    kind, key_type = cast("StateKind", entry["kind"]), entry.get("key_type")
    aggregation = Aggregation(_nothing, _nothing, _nothing) if kind in ("reducing", "aggregating") else None
    return StateDescriptor(
        kind,
        str(entry["type"]),
        key_type=None if key_type is None else str(key_type),
        aggregation=aggregation,
        ttl=decode_lifetime(entry),
    )


def _nothing(*_: object) -> None:
    """Stand for a function of a job whose state is read without its code."""


def _one_state(name: str, before: Mapping[str, object], now: str, after: Mapping[str, object]) -> Iterator[DefinitionChange]:
    if before.get("kind") != after.get("kind"):
        what = f"the state {now!r} was a {before.get('kind')} state and is now a {after.get('kind')} state"
        yield DefinitionChange("state", "other", what, now, name)
        return
    if now != name:
        yield DefinitionChange("state", "renamed", f"the state {name!r} is now called {now!r}", now, name)
    if before.get("ttl") != after.get("ttl"):
        was, is_now = (decode_lifetime(each) for each in (before, after))
        # Times of one domain are none of the other.
        other = was is not None and is_now is not None and was.domain != is_now.domain
        since = "from now on, also what is stored" if other else "from when it is next written"
        what = f"the state {now!r} lived for {describe_lifetime(was)} and lives now for {describe_lifetime(is_now)}, {since}"
        yield DefinitionChange("ttl", "none", what, now, restarted=(renewed_column(name),) if other else ())
    if before.get("functions") != after.get("functions"):
        yield DefinitionChange("functions", "none", f"the functions of the state {now!r} were replaced, and get its accumulators", now)


def _others(old: Definition, new: Definition) -> Iterator[DefinitionChange]:
    if old.get("function") != new.get("function"):
        yield DefinitionChange("function", "none", "the process function was replaced, and gets the states and timers of the old one")
    if old.get("side_outputs") != new.get("side_outputs"):
        yield DefinitionChange("side_outputs", "none", "the side outputs changed")
