"""Changelogs in the graph: which nodes are one, by which key, and what may follow them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from tidemark.errors import ColumnError, DefinitionError, ExpressionError
from tidemark.graph.checks.node_expressions import node_expressions
from tidemark.graph.checks.schema_inference import schema_of
from tidemark.graph.expressions.determinism import changing_function
from tidemark.graph.expressions.expression_types import type_of
from tidemark.graph.expressions.expressions import Site, check_columns, parse_row_expression, parse_sql
from tidemark.graph.expressions.name_checks import check_column_names
from tidemark.graph.model.nodes import (
    ChangelogNode,
    ElementsNode,
    ExplodeNode,
    Expression,
    FilterNode,
    FunctionNode,
    Node,
    SelectNode,
    SideOutputNode,
    SplitNode,
    StatefulNode,
    TransformNode,
    UnionNode,
    WithColumnsNode,
    walk,
)
from tidemark.graph.operators.keys import check_key_column
from tidemark.graph.operators.latest.checks import check_ordered
from tidemark.graph.operators.registry import kind_of

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

_known: WeakKeyDictionary[Node, tuple[str, ...] | None] = WeakKeyDictionary()

_REFUSED = {
    ExplodeNode: ("explode", "several rows of one key would have one key"),
    FunctionNode: ("a Python function", "it would have to return the same for a row when the row is taken back"),
    TransformNode: ("transform", "it sees an epoch's changes, not the rows that are there"),
    UnionNode: ("union", "a key could be in both streams"),
}


def changelog_keys(node: Node) -> tuple[str, ...] | None:
    """Return the columns that identify a row of a changelog; None for a stream that is only added to. Cached per node."""
    if node not in _known:
        _known[node] = _derive(node)
    return _known[node]


def is_net(node: Node) -> bool:
    """Return whether the changes that a node passes on in an epoch are net already, as those of an operator are.

    After a filter one row of an update may be missing, and after a selection both may be equal.
    """
    while isinstance(node, WithColumnsNode):
        schema = schema_of(node.input)
        if schema is None or any(schema.find(name) is not None for name, _ in node.columns):
            return False
        node = node.input
    return isinstance(node, StatefulNode | ChangelogNode)


def expires(node: Node) -> bool:
    """Return whether a changelog comes from state that expires: rows of it may come again without a delete before."""
    return any(isinstance(found, StatefulNode) and kind_of(found).expires(found) for found in walk((node,)))


def is_declared(node: Node) -> bool:
    """Return whether a changelog's rows come from one that users declare, and not from an operator's state, which has all of them."""
    while not isinstance(node, ChangelogNode | StatefulNode):
        if not node.inputs:
            return False
        node = node.inputs[0]
    return isinstance(node, ChangelogNode)


def _derive(node: Node) -> tuple[str, ...] | None:
    match node:
        case ChangelogNode():
            return node.keys
        case StatefulNode():
            return kind_of(node).changelog_keys(node)
        case SideOutputNode() if isinstance(node.emitter, FilterNode | SplitNode):
            return changelog_keys(node.emitter.input)
        case SelectNode() | WithColumnsNode() | FilterNode():
            keys = changelog_keys(node.input)
            return keys if keys is None or isinstance(node, FilterNode) else _kept(keys, node)
    return None


def _kept(keys: Sequence[str], node: SelectNode | WithColumnsNode) -> tuple[str, ...]:
    """Return the names of key columns after a step."""
    found = []
    for key in keys:
        made = next((name for name, expression in node.columns if _is_column(expression, key)), None)
        replaced = any(name.lower() == key.lower() for name, _ in node.columns)
        if made is None and (isinstance(node, SelectNode) or replaced):
            what = "replaces" if replaced else "leaves out"
            raise DefinitionError(
                f"{'select' if isinstance(node, SelectNode) else 'with_columns'} {what} {key!r}, part of the key of a changelog "
                f"({', '.join(keys)}): its rows could not be found again",
                fix=f"keep {key!r}, under any name; for other groups, .key_by(...).aggregate(...)",
                uid=node.uid,
                place=node.place,
            )
        found.append(key if made is None or (isinstance(node, WithColumnsNode) and not replaced) else made)
    return tuple(found)


def _is_column(expression: Expression, name: str) -> bool:
    return isinstance(expression, str) and expression.strip().strip("`").lower() == name.lower()


def check_changelog(node: Node) -> None:
    """Check that a node may follow a changelog, where it does, and the declarations of changelogs.

    Raises:
        DefinitionError: or one of its kinds; it says what to write instead.
    """
    if isinstance(node, ChangelogNode):
        _check_declared(node)
        return
    if isinstance(node, ElementsNode):
        _check_elements(node)
        return
    changelogs = [child for child in node.inputs if not isinstance(node, SideOutputNode) and changelog_keys(child) is not None]
    if not changelogs:
        return
    refused = _REFUSED.get(type(node))
    if refused is not None:
        raise DefinitionError(
            f"{refused[0]} is no step over a changelog: {refused[1]}",
            fix="do it before the changelog is made, or take its changes as elements: .as_elements()",
            uid=node.uid,
            place=node.place,
        )
    if isinstance(node, StatefulNode) and not kind_of(node).takes_changelogs:
        kind = kind_of(node)
        raise DefinitionError(
            f"{kind.made_by(node)[0]} is given a changelog (key: {', '.join(changelog_keys(changelogs[0]) or ())}), and {kind.nouns} take "
            "streams that are only added to",
            fix=kind.instead_of_changelog,
            uid=node.uid,
            place=node.place,
        )
    _check_expressions(node)
    changelog_keys(node)


def _check_expressions(node: Node) -> None:
    """Check that a row has the same values when it is taken back as when it was added."""
    schemas = [schema_of(child) for child in node.inputs]

    def is_time(part: Expr) -> bool:
        return any((type_of(part, schema) or "").startswith(("DATE", "TIMESTAMP")) for schema in schemas)

    for site, text in node_expressions(node):
        try:
            found = changing_function(parse_sql(text, site), is_time)
        except ExpressionError:
            # Texts of aggregates with places for their arguments.
            continue
        if found is not None:
            raise changing_over_changelog(site, text, f"uses {found!r}")


def changing_over_changelog(site: Site, text: object, why: str) -> ExpressionError:
    """Return the error for an expression over a changelog that may give another value when it is computed again."""
    return ExpressionError(
        f"{site.of(text)} {why}, and is over a changelog: when a row is taken back, it would have another value than when it was added",
        fix="add the value as a column before the stream becomes a changelog: .with_columns(added_at='now()').latest(by=['ride_id'])",
        uid=site.uid,
        place=site.place,
    )


def _check_declared(node: ChangelogNode) -> None:
    schema = schema_of(node.input)
    if changelog_keys(node.input) is not None:
        raise DefinitionError("as_changelog is given a changelog", fix="leave it out", place=node.place)
    if not node.keys:
        raise DefinitionError(
            f"as_changelog(key={list(node.keys)!r}) names no columns that identify a row", fix="write key=['ride_id']", place=node.place
        )
    for key in node.keys:
        check_key_column(key, "as_changelog(key=...)", schema, node)
    if node.sequence is not None:
        if node.operation is None:
            raise DefinitionError(
                "as_changelog(sequence=...) orders the changes of a key, and without operation each key has one",
                fix="leave sequence out; to keep the newest row of each key: .latest(by=[...], sequence=...)",
                place=node.place,
            )
        check_ordered(node.sequence, "as_changelog sequence", schema, node.place, None)
    if node.operation is None:
        return
    site = Site("as_changelog operation", node.place)
    parsed = parse_row_expression(node.operation, site)
    check_columns(parsed, node.operation, schema, site)
    kind = type_of(parsed, schema)
    if kind not in {None, "STRING"}:
        raise ExpressionError(
            f"{site.of(node.operation)} is of type {kind}, not the name of an operation",
            fix="give 'insert', 'update_before', 'update_after' or 'delete', such as CASE op WHEN 'c' THEN 'insert' ... END",
            place=node.place,
        )


def _check_elements(node: ElementsNode) -> None:
    if changelog_keys(node.input) is None:
        raise DefinitionError("as_elements is given a stream that is no changelog", fix="leave it out", place=node.place)
    check_column_names([node.operation], "as_elements(operation=...)", node.place)
    schema = schema_of(node.input)
    if schema is not None and schema.find(node.operation) is not None:
        raise ColumnError(
            f"as_elements adds a column {node.operation!r}, and the changelog has one already",
            fix="name another: .as_elements(operation='change')",
            place=node.place,
        )
