"""Checks of one operator against its inputs, made when a stream is built, so that an error points at the user's line."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.errors import ColumnError, DefinitionError, ExpressionError
from tidemark.graph.checks.changelogs import check_changelog
from tidemark.graph.checks.schema_inference import input_schemas, schema_of
from tidemark.graph.checks.side_outputs import check_has_rows
from tidemark.graph.checks.source_checks import check_source
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.expressions.expression_types import type_of
from tidemark.graph.expressions.expressions import Site, check_columns, parse_row_expression
from tidemark.graph.expressions.function_checks import check_takes
from tidemark.graph.expressions.name_checks import check_column_names, check_tag
from tidemark.graph.model.nodes import (
    ExplodeNode,
    Expression,
    FilterNode,
    FunctionNode,
    Node,
    SelectNode,
    SideOutputNode,
    SourceNode,
    SplitNode,
    StatefulNode,
    TransformNode,
    UnionNode,
    WithColumnsNode,
)
from tidemark.graph.operators.registry import kind_of
from tidemark.names import validate_name


def check_node(node: Node) -> None:  # noqa: C901, PLR0912 - one case per kind of node
    """Check one operator against the known schemas of its inputs.

    Raises:
        DefinitionError: or one of its kinds: ``ColumnError``, ``ExpressionError``, ``InvalidNameError``.
    """
    if not isinstance(node, SideOutputNode):
        for child in node.inputs:
            check_has_rows(child, node.place)
    match node:
        case SourceNode():
            check_source(node)
        case SelectNode():
            _check_columns_made("select", node, node.columns)
        case WithColumnsNode():
            _check_columns_made("with_columns", node, node.columns)
        case FilterNode():
            _check_condition(node.condition, "filter condition", node)
            if node.rejects_to is not None:
                check_tag(node.rejects_to, "rejects_to", node.place)
        case ExplodeNode():
            _check_explode(node)
        case FunctionNode():
            _check_function(node)
        case TransformNode():
            _check_transform(node)
        case SplitNode():
            _check_split(node)
        case UnionNode():
            _check_union(node)
        case StatefulNode():
            _check_operator(node)
    check_changelog(node)


def check_uid(node: Node, uid: object, place: str) -> None:
    """Check a new uid of an operator.

    Raises:
        InvalidNameError: it is not allowed.
        DefinitionError: the node is identified by another name.
    """
    validate_name("uid", uid, place=place)
    if isinstance(node, SourceNode):
        raise DefinitionError(f"source {node.name!r} takes no uid: its state is found by its name", fix="leave .uid(...) out", place=place)
    if isinstance(node, SideOutputNode):
        raise DefinitionError(
            f"side output {node.tag.name!r} takes no uid: its tag names it", fix="give the uid to the operator that emits it", place=place
        )


def _check_operator(node: StatefulNode) -> None:
    kind = kind_of(node)
    for counter, tag in node.side_tags.items():
        check_tag(tag, f"{counter}_to", node.place)
    for tag in node.emitted_tags.values():
        check_tag(tag, "side_outputs", node.place)
    kind.validate(node, input_schemas(node))
    if not kind.needs_time(node):
        return
    for port in node.ports:
        source = _malformed_origin(port.node)
        if source is not None:
            raise DefinitionError(
                f"{kind.nouns} over the malformed records of source {source.name!r} are impossible: they have no event time",
                fix="bind the malformed output to a sink, and count it there",
                uid=node.uid,
                place=node.place,
            )


def _malformed_origin(node: Node) -> SourceNode | None:
    """Return the source whose malformed records flow, through operators on single rows, into a node."""
    pending = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, SideOutputNode) and isinstance(current.emitter, SourceNode):
            return current.emitter
        if not isinstance(current, StatefulNode):
            pending.extend(current.inputs)
    return None


def _row(expression: Expression, what: str, node: Node) -> str | None:
    """Check an expression over the node's input and return its type."""
    site = Site(what, node.place, node.uid)
    parsed = parse_row_expression(expression, site)
    schema = schema_of(node.input)
    check_columns(parsed, expression, schema, site)
    return type_of(parsed, schema)


def _check_condition(expression: Expression, what: str, node: Node) -> None:
    kind = _row(expression, what, node)
    if kind not in {None, "BOOLEAN"}:
        raise ExpressionError(
            f"{Site(what, node.place).of(expression)} is of type {kind}, not BOOLEAN",
            fix="write a condition, such as 'fare_amount >= 0'",
            uid=node.uid,
            place=node.place,
        )


def _check_columns_made(operator: str, node: Node, columns: Sequence[tuple[str, Expression]]) -> None:
    if not columns:
        raise DefinitionError(f"{operator}() names no column", fix=f"name at least one: .{operator}(fare='fare_amount')", place=node.place)
    check_column_names([name for name, _ in columns], operator, node.place, uid=node.uid)
    for name, expression in columns:
        _row(expression, f"{operator} column {name!r}", node)


def _check_explode(node: ExplodeNode) -> None:
    check_column_names([node.as_], "explode", node.place, uid=node.uid)
    kind = _row(node.expression, "explode", node)
    if kind is not None and not kind.startswith(("ARRAY", "MAP")):
        raise ExpressionError(
            f"explode {node.expression!r} is of type {kind}, neither an array nor a map",
            fix="explode an array, such as split(tags, ',')",
            uid=node.uid,
            place=node.place,
        )
    schema = schema_of(node.input)
    if schema is not None and schema.find(node.as_) is not None:
        raise ColumnError(
            f"explode makes column {node.as_!r}, which the stream has already; the columns are: {', '.join(schema.names)}",
            fix="give as_ another name, and drop the old column with .select(...)",
            uid=node.uid,
            place=node.place,
        )


def _check_function(node: FunctionNode) -> None:
    _check_takes_one(node.function, node.kind, node)
    schema = parse_schema(node.schema, place=node.place, what=f"{node.kind}(returns=...)")
    check_column_names(schema.names, f"{node.kind}(returns=...)", node.place, uid=node.uid)


def _check_transform(node: TransformNode) -> None:
    _check_takes_one(node.function, "transform", node)
    if node.columns is not None:
        if not node.columns:
            raise DefinitionError("transform(columns=[]) names no column", fix="name the columns, or leave them out", place=node.place)
        check_column_names(node.columns, "transform(columns=...)", node.place, uid=node.uid)


def _check_takes_one(function: object, operator: str, node: Node) -> None:
    fix = f"pass a function of one argument: .{operator}(function, ...)"
    check_takes(function, operator, count=1, fix=fix, place=node.place, uid=node.uid)


def _check_split(node: SplitNode) -> None:
    if not node.branches:
        raise DefinitionError("split({}) has no branch", fix="give {tm.OutputTag('big'): 'fare > 100', ...}", place=node.place)
    for tag, condition in node.branches:
        name = check_tag(tag, "a branch of split", node.place).name
        _check_condition(condition, f"split condition of {name!r}", node)
    if node.otherwise is not None:
        check_tag(node.otherwise, "otherwise", node.place)
        if any(tag == node.otherwise for tag, _ in node.branches):
            raise DefinitionError(
                f"split uses tag {node.otherwise.name!r} for a branch and for otherwise", fix="give each its own tag", place=node.place
            )


def _check_union(node: UnionNode) -> None:
    if len(node.inputs) < 2:
        raise DefinitionError("union() is given no other stream", fix="pass at least one: .union(other)", place=node.place)
    schemas = [schema_of(child) for child in node.inputs]
    first = schemas[0]
    for other in schemas[1:]:
        if first is None or other is None:
            continue
        lacking = [name for name in first.names if other.find(name) is None]
        more = [name for name in other.names if first.find(name) is None]
        if lacking or more:
            raise ColumnError(
                f"union of streams with different columns: one has {', '.join(lacking) or 'nothing'} that the other lacks,"
                f" and lacks {', '.join(more) or 'nothing'}; the columns are: {first}; and: {other}",
                fix="give both the same columns with .select(...) before the union",
                place=node.place,
            )
        for column in first.columns:
            match = other.find(column.name)
            if match and match.type and column.type and match.type != column.type:
                raise ColumnError(
                    f"union of streams whose column {column.name!r} is {column.type} in one and {match.type} in the other",
                    fix=f"cast it before the union: .with_columns({column.name}='CAST({column.name} AS {column.type})')",
                    place=node.place,
                )
