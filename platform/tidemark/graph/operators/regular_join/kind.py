"""The regular join as an operator kind: its rules in the graph, and its definition as stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, cast

from tidemark.graph.expressions.column_origins import NO_ORIGINS, ColumnOrigins, merged
from tidemark.graph.expressions.expression_text import describe_expression
from tidemark.graph.expressions.expression_types import expression_type
from tidemark.graph.expressions.function_fingerprint import function_text, text_hash
from tidemark.graph.model.nodes import Expression
from tidemark.graph.model.schema import Schema, SchemaColumn
from tidemark.graph.operators.changes import Definition, DefinitionChange, Kept, Names, same_expression
from tidemark.graph.operators.kind import OperatorKind, Schemas
from tidemark.graph.operators.lifetimes import decode_lifetime, describe_lifetime, encode_lifetime, lifetime_changes
from tidemark.graph.operators.regular_join.checks import check_regular_join
from tidemark.graph.operators.regular_join.columns import compared_columns, kept_columns, on_part
from tidemark.graph.operators.regular_join.node import How, JoinSide, RegularJoinNode

_FORMAT = 1


class RegularJoinKind(OperatorKind[RegularJoinNode]):
    """``changelog.join(other, on=...)``."""

    name: ClassVar[str] = "regular_join"
    noun: ClassVar[str] = "join"
    nouns: ClassVar[str] = "joins of changelogs"
    state_noun: ClassVar[str] = "the rows of both inputs"
    part_noun: ClassVar[str] = "input"
    takes_changelogs: ClassVar[bool] = True

    def validate(self, node: RegularJoinNode, schemas: Schemas) -> None:
        """Check the compared expressions, and the names of columns."""
        check_regular_join(node, schemas)

    def output_schema(self, node: RegularJoinNode, schemas: Schemas) -> Schema | None:
        """Return all columns of the left input, then those of the right that are not compared with one of the same name."""
        left, right = schemas
        columns = [_column(left, name) for name in node.left.columns]
        return Schema((*columns, *(_column(right, name) for name in node.added)))

    def lineage(self, node: RegularJoinNode, origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
        """Return the origins of each column; of compared ones those of both inputs. Which rows there are depends on all compared ones."""
        left, right = origins
        columns = {name.lower(): left.of_names([name]) for name in node.left.columns}
        columns |= {name.lower(): right.of_names([name]) for name in node.added}
        if not node.left_only:
            for there, here in node.shared.items():
                columns[here.lower()] = merged((columns[here.lower()], right.of_names([there])))
        return ColumnOrigins(columns, NO_ORIGINS, left.time if node.left_only else merged((left.time, right.time)))

    def describe(self, node: RegularJoinNode) -> str:
        """Return how it joins, what is compared, and how long rows are kept."""
        return f"{node.how} join of changelogs on {_compared(node)}, key {', '.join(node.result_keys)}{_lives(node)}"

    def describe_rows(self, node: RegularJoinNode) -> str:
        """Return what a result is."""
        on = _compared(node)
        if node.how == "semi":
            return f"A row of the left input for which the right one has a row with equal `{on}`"
        if node.how == "anti":
            return f"A row of the left input for which the right one has no row with equal `{on}`"
        kept = {"inner": "", "left": "the left input", "right": "the right input", "full": "either input"}[node.how]
        return f"A pair of rows of both inputs with equal `{on}`{f', or a row of {kept} without a partner' if kept else ''}"

    def describe_column(self, node: RegularJoinNode, name: str) -> str | None:
        """Return which input a column may lack; other columns hold what the inputs' do."""
        nulls = {"left": node.added, "full": (*node.left.columns, *node.added), "right": node.left.columns}.get(node.how, ())
        return "Null in a row without a partner." if name in nulls and name not in node.shared.values() else None

    def describe_counter(self, counter: str) -> str:
        """Never called: it accepts all changes."""
        raise KeyError(counter)

    def made_by(self, node: RegularJoinNode) -> tuple[str, str]:
        """Return the method."""
        return "join", f"joins on {_compared(node)}"

    def counters(self, node: RegularJoinNode) -> tuple[str, ...]:
        """Return none."""
        del node
        return ()

    def expressions(self, node: RegularJoinNode) -> Iterator[tuple[str, Expression | None]]:
        """Yield the compared expressions."""
        for port, side in node.sides.items():
            yield from ((f"join of the {port} stream on", each) for each in side.on)

    def encode(self, node: RegularJoinNode) -> dict[str, object]:
        """Return how it joins, and of each input columns, key, compared expressions and the lifetime of rows."""
        return {
            "format": _FORMAT,
            "kind": self.name,
            "how": node.how,
            "inputs": [{"name": port, **_encoded(side)} for port, side in node.sides.items()],
        }

    def decode(self, definition: Definition, uid: str) -> RegularJoinNode:
        """Return the node."""
        left, right = map(_decoded, _inputs(definition))
        return RegularJoinNode(uid=uid, left=left, right=right, how=cast("How", definition["how"]))

    def changes(self, old: Definition, new: Definition, names: Names, kept: tuple[Kept, Kept] | None) -> tuple[DefinitionChange, ...]:
        """Return differences: another kind of join, key or comparison needs other state, and so does a column that is new."""
        del kept
        found = []
        if old.get("how") != new.get("how"):
            found.append(
                DefinitionChange("how", "other", f"it was a join of kind {old.get('how')} and is now one of kind {new.get('how')}")
            )
        for before, after in zip(_inputs(old), _inputs(new), strict=True):
            found += _side_changes(before, after, names)
        return tuple(found)

    def keeps(self, node: RegularJoinNode) -> Kept:
        """Return ``partials``: rows as far as results need them."""
        del node
        return "partials"

    def state_columns(self, node: RegularJoinNode, schemas: Schemas) -> dict[str, str | None]:
        """Return the kept columns of both inputs, and the compared expressions that are no columns."""
        found: dict[str, str | None] = {}
        for port, given in zip(node.PORTS, schemas, strict=True):
            found |= {stored: _column(given, name).type for name, stored in kept_columns(node, port).items()}
            for stored, expression in compared_columns(node, port):
                found.setdefault(stored, expression_type(expression, given))
        return found

    def state_parts(self, definition: Definition) -> dict[str, list[str]]:
        """Return the kept columns of each input, and its compared expressions."""
        node = self.decode(definition, "")
        found: dict[str, list[str]] = {}
        for port in node.PORTS:
            kept = list(kept_columns(node, port).values())
            found[port] = kept
            more = [stored for stored, _ in compared_columns(node, port) if stored not in kept]
            found |= {on_part(port): more} if more else {}
        return found

    def expires(self, node: RegularJoinNode) -> bool:
        """Return whether rows of an input are kept for some time only."""
        return any(side.ttl is not None for side in node.sides.values())

    def changelog_keys(self, node: RegularJoinNode) -> tuple[str, ...]:
        """Return the pair of keys; of a semi or anti join the left input's."""
        return node.result_keys


def _compared(node: RegularJoinNode) -> str:
    pairs = ((describe_expression(left), describe_expression(right)) for left, right in zip(node.left.on, node.right.on, strict=True))
    return ", ".join(left if left == right else f"{left} = {right}" for left, right in pairs)


def _lives(node: RegularJoinNode) -> str:
    left, right = (None if side.ttl is None else describe_lifetime(side.ttl) for side in (node.left, node.right))
    if left == right:
        return "" if left is None else f", state lives for {left}"
    return f", left rows live for {left or 'ever'}, right rows for {right or 'ever'}"


def _column(schema: Schema | None, name: str) -> SchemaColumn:
    found = schema.find(name) if schema is not None else None
    return SchemaColumn(name, found.type if found is not None else None)


def _encoded(side: JoinSide) -> dict[str, object]:
    on = [each if isinstance(each, str) else f"function {text_hash(function_text(each))}" for each in side.on]
    return {"columns": list(side.columns), "keys": list(side.keys), "on": on, **encode_lifetime(side.ttl)}


def _decoded(entry: Mapping[str, list[str]]) -> JoinSide:
    return JoinSide(tuple(entry["columns"]), tuple(entry["keys"]), tuple(entry["on"]), decode_lifetime(entry))


def _inputs(definition: Definition) -> list[Mapping[str, list[str]]]:
    return cast("list[Mapping[str, list[str]]]", definition["inputs"])


def _side_changes(old: Mapping[str, list[str]], new: Mapping[str, list[str]], names: Names) -> Iterator[DefinitionChange]:
    port = old["name"]
    if old["keys"] != new["keys"]:
        what = f"the key of the {port} input was {', '.join(old['keys'])} and is now {', '.join(new['keys'])}"
        yield DefinitionChange("key", "other", what)
    same = len(old["on"]) == len(new["on"]) and all(same_expression(*pair, names) for pair in zip(old["on"], new["on"], strict=True))
    if not same:
        yield DefinitionChange("on", "other", f"the {port} input was joined on {', '.join(old['on'])} and is now on {', '.join(new['on'])}")
    for change in lifetime_changes(old, new):
        yield DefinitionChange(change.about, change.effect, f"of the {port} input {change.what}")
    for name in new["columns"]:
        if name not in old["columns"]:
            yield DefinitionChange("column", "other", f"the {port} input has a column {name!r}, which stored rows do not have")
    for name in old["columns"]:
        if name not in new["columns"]:
            yield DefinitionChange("column", "none", f"the column {name!r} of the {port} input is no longer there")
