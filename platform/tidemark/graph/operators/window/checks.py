"""Checks of a window operator: keys, assigner, results, late output, and that its input has event time."""

from __future__ import annotations

from tidemark.errors import DefinitionError, ExpressionError, InvalidNameError
from tidemark.graph.aggregates.aggregate_checks import check_argument_types
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.expressions.expression_types import type_of
from tidemark.graph.expressions.expressions import Site, check_columns, parse_row_expression, parse_sql, unknown_column
from tidemark.graph.expressions.name_checks import check_column_names
from tidemark.graph.expressions.sql_functions import is_aggregate
from tidemark.graph.model.aggregates import Aggregate
from tidemark.graph.model.nodes import StatefulNode
from tidemark.graph.model.schema import Schema
from tidemark.graph.operators.keys import check_keys
from tidemark.graph.operators.window.columns import ORDER_COLUMN, aggregate_columns, filled_create, own_columns
from tidemark.graph.operators.window.execution import is_local
from tidemark.graph.operators.window.node import WindowNode
from tidemark.graph.operators.window.trigger_rules import check_firing
from tidemark.semantics.windows.assigners import DynamicSession
from tidemark.semantics.windows.local_windows import LocalWindows

_ASSIGNER = ("assign", "describe", "merging", "domain")


def check_window(node: WindowNode, schema: Schema | None) -> None:
    """Check a window operator against its input.

    Raises:
        DefinitionError: or one of its kinds; see ``WindowedStream``.
    """
    check_assigner(node.assigner, node.place)
    if not node.aggregates and node.function is None:
        raise DefinitionError(
            "aggregate() is given no aggregate", fix="name at least one: .aggregate(trips=tm.count())", uid=node.uid, place=node.place
        )
    _check_names(node)
    check_keys(node.keys, schema, node.place, uid=node.uid)
    if isinstance(node.assigner, DynamicSession):
        _check_gap(node.assigner, node, schema)
    if isinstance(node.assigner, LocalWindows) and node.assigner.zone_by is not None:
        _check_zone(node.assigner.zone_by, node, schema)
    for name, aggregate in node.aggregates:
        check_aggregate(name, aggregate, node, schema)
    check_firing(node)


def check_assigner(assigner: object, place: str) -> None:
    """Check that windows are given by an assigner.

    Raises:
        DefinitionError: they are not.
    """
    if all(hasattr(assigner, member) for member in _ASSIGNER) and not isinstance(assigner, type):
        return
    name = getattr(assigner, "__name__", None) if callable(assigner) else None
    raise DefinitionError(
        f"window({name or repr(assigner)}) is not given a window assigner",
        fix=f"call it: .window(tm.{name}(...))" if name else "pass one, such as .window(tm.tumbling('1 hour'))",
        place=place,
    )


def _check_gap(assigner: DynamicSession, node: WindowNode, schema: Schema | None) -> None:
    site = Site("session gap_by", node.place, node.uid)
    parsed = parse_row_expression(assigner.gap_by, site)
    check_columns(parsed, assigner.gap_by, schema, site)
    kind = type_of(parsed, schema)
    if kind is not None and kind not in {"TINYINT", "SMALLINT", "INT", "BIGINT"} and not kind.startswith("INTERVAL"):
        raise ExpressionError(
            f"{site.of(assigner.gap_by)} is of type {kind}, neither a whole number of milliseconds nor an interval",
            fix=f"convert it, such as gap_by='CAST({assigner.gap_by} AS BIGINT)', or write an interval: gap_by='INTERVAL 5 MINUTES'",
            uid=node.uid,
            place=node.place,
        )


def _check_zone(zone_by: str, node: WindowNode, schema: Schema | None) -> None:
    site = Site("zone_by", node.place, node.uid)
    parsed = parse_row_expression(zone_by, site)
    check_columns(parsed, zone_by, schema, site)
    kind = type_of(parsed, schema)
    if kind is not None and not _is_text(kind):
        raise ExpressionError(
            f"{site.of(zone_by)} is of type {kind}, not the name of a time zone",
            fix="give a column with names such as 'Europe/Berlin'",
            uid=node.uid,
            place=node.place,
        )
    if not is_local(node):
        raise DefinitionError(
            f"windows with zone_by={zone_by!r} keep no elements, which this function, evictor or trigger needs",
            fix="use .aggregate(...) or .reduce(...), also with a tm.window_function over the results, and a trigger that comes with "
            "Tidemark other than delta_trigger; or a fixed zone",
            uid=node.uid,
            place=node.place,
        )


def _is_text(kind: str) -> bool:
    return kind == "STRING" or kind.startswith(("VARCHAR(", "CHAR("))


def _check_names(node: WindowNode) -> None:
    keys = [name for name, _ in node.keys]
    names = [*keys, *_result_names(node)]
    # The row of a function after aggregates also has keys and bounds.
    given = [*keys, *(name for name, _ in node.aggregates)] if node.function is not None else []
    for name in (*names, *given):
        if name.lower() in own_columns(node):
            raise InvalidNameError(
                f"the window's result has a built-in column {name!r}, so no key or result may have that name",
                fix=f"give it another name, such as .aggregate(my_{name}=...) or .key_by(my_{name}={name!r})",
                uid=node.uid,
                place=node.place,
            )
    lowered = {name.lower() for name in keys}
    twice = [name for name, _ in node.reduced if name.lower() in lowered]
    if twice:
        raise InvalidNameError(
            f"reduce makes a column {twice[0]!r}, but the result has the key of that name already",
            fix=f"leave {twice[0]!r} out of reduce(...); elements of a window have the same key",
            uid=node.uid,
            place=node.place,
        )
    check_column_names(names, "the window's result", node.place, uid=node.uid)
    check_column_names(given, "what the window function is given", node.place, uid=node.uid)


def _result_names(node: WindowNode) -> tuple[str, ...]:
    if node.function is not None:
        return parse_schema(node.function.returns, place=node.place).names
    return tuple(name for name, _ in (node.reduced or node.aggregates))


def check_aggregate(name: str, aggregate: object, node: StatefulNode, schema: Schema | None) -> None:
    """Check one aggregate of an operator against its input.

    Raises:
        DefinitionError: or one of its kinds.
    """
    site = Site(f"aggregate {name!r}", node.place, node.uid)
    if not isinstance(aggregate, Aggregate):
        called = f"{getattr(aggregate, '__name__', 'count')}(...)"
        raise DefinitionError(
            f"{site.what} is {'the function ' + called if callable(aggregate) else repr(aggregate)}, not an aggregate",
            fix=f"call the function: {name}=tm.{called}" if callable(aggregate) else f"pass one, such as {name}=tm.count()",
            uid=node.uid,
            place=node.place,
        )
    argument_site = Site(f"argument of aggregate {name!r}", node.place, node.uid)
    for argument in aggregate.arguments:
        check_columns(parse_row_expression(argument, argument_site), argument, schema, argument_site)
    for partial in aggregate.partials:
        _check_create(filled_create(partial, site), site)
    for column in aggregate_columns(aggregate, site):
        if schema is not None and schema.find(column) is None:
            raise unknown_column(column, site.what, schema, site)
    check_argument_types(name, aggregate, schema, site)


def _check_create(create: str, site: Site) -> None:
    from sqlglot import exp

    parsed = parse_sql(create, site)
    # A function unknown here may be an aggregate of the user's own.
    if any(is_aggregate(part) or isinstance(part, exp.Anonymous) for part in parsed.walk()):
        return
    shown = create.replace(ORDER_COLUMN, "{order}")
    raise ExpressionError(
        f"{site.what} makes its partial by {shown!r}, which aggregates nothing",
        fix="use an aggregate function there, such as sum(fare) or max_by(fare, {order})",
        uid=site.uid,
        place=site.place,
    )
