"""Checks the arguments of ``reduce`` and makes an aggregate of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tidemark.errors import ColumnError, DefinitionError, ExpressionError
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.expressions.expression_types import keeps_type, type_of
from tidemark.graph.expressions.expressions import Site, parse_row_expression, unknown_column
from tidemark.graph.expressions.function_checks import check_takes
from tidemark.graph.model.aggregates import Aggregate
from tidemark.graph.model.schema import Schema, SchemaColumn
from tidemark.graph.operators.window.reduce import EARLIER, LATER, python_reduce, quoted, sql_reduce

if TYPE_CHECKING:
    from sqlglot import exp

_FIX = "write .reduce(fare='a.fare + b.fare'), or .reduce(function, columns=['fare'])"


class Reduction(NamedTuple):
    """The aggregate, and the columns of its result with the SQL that merges each (None: in Python)."""

    aggregate: Aggregate
    columns: tuple[tuple[str, str | None], ...]


def sql_reduction(
    merges: Mapping[str, str], *, columns: Sequence[str], returns: str | None, schema: Schema | None, place: str
) -> Reduction:
    """Return the reduction that merges columns by SQL.

    Raises:
        DefinitionError: no expression, or arguments of the other kind.
        ColumnError: a column that the stream does not have.
        ExpressionError: SQL that cannot be parsed, reads something else than the two rows, or gives another type.
    """
    if columns or returns is not None:
        name = "columns" if columns else "returns"
        raise DefinitionError(
            f"reduce is given {name}, which goes with a Python function, and no function",
            fix=f"{_FIX}; a column that is called {name!r} needs another name before",
            place=place,
        )
    if not merges:
        raise DefinitionError("reduce is given nothing to merge", fix=_FIX, place=place)
    _require_columns(tuple(merges), schema, place)
    _require_order(tuple(merges), schema, place)
    for name, merge in merges.items():
        _check_merge(name, merge, tuple(merges), schema, place)
    texts = {name: merge.strip() for name, merge in merges.items()}
    return Reduction(sql_reduce(texts, schema), tuple(texts.items()))


def python_reduction(
    function: Callable[..., object],
    merges: Mapping[str, str],
    *,
    columns: Sequence[str],
    returns: str | None,
    schema: Schema | None,
    place: str,
) -> Reduction:
    """Return the reduction that merges rows by a Python function.

    Raises:
        DefinitionError: not a function of two arguments, no columns, ``returns`` that cannot be read or names other columns, or
            expressions beside the function.
        ColumnError: a column that the stream does not have, is of another type there, or whose type is unknown.
    """
    check_takes(function, "reduce", count=2, fix="pass a function of two rows: .reduce(function, columns=['fare'])", place=place)
    if merges:
        raise DefinitionError(
            f"reduce is given a function, and an expression for {', '.join(map(repr, merges))}",
            fix=f"give one of them: {_FIX}",
            place=place,
        )
    declared = parse_schema(returns, place=place, what="reduce(returns=...)") if returns is not None else None
    names = _names(columns, declared, place)
    _require_columns(names, schema, place)
    made = [_typed(name, declared, schema, place) for name in names]
    return Reduction(python_reduce(function, made), tuple((name, None) for name in names))


def _names(columns: Sequence[str], declared: Schema | None, place: str) -> tuple[str, ...]:
    if isinstance(columns, str) or not all(isinstance(name, str) for name in columns):
        raise DefinitionError(f"reduce(columns={columns!r}) is not a list of columns", fix="write columns=['fare']", place=place)
    if declared is None and not columns:
        raise DefinitionError("reduce is given a function, and no columns for it", fix="name them: columns=['fare', 'top']", place=place)
    if declared is not None and columns and {name.lower() for name in columns} != {name.lower() for name in declared.names}:
        raise DefinitionError(
            f"reduce is given columns={list(columns)!r}, and returns={str(declared)!r} with others",
            fix="name the same columns in both, or leave columns out",
            place=place,
        )
    return tuple(columns) if columns else declared.names if declared else ()


def _require_columns(names: tuple[str, ...], schema: Schema | None, place: str) -> None:
    for name in names:
        if schema is not None and schema.find(name) is None:
            raise unknown_column(name, "reduce", schema, Site("reduce", place))


def _require_order(names: tuple[str, ...], schema: Schema | None, place: str) -> None:
    for name in names:
        kind = found.type if schema and (found := schema.find(name)) else None
        if kind and re.search(r"\bMAP<|\bVARIANT\b", kind):
            raise ColumnError(
                f"reduce cannot merge column {name!r} of type {kind} in SQL, where rows are sorted, and such values have no order",
                fix=f"merge it in Python: .reduce(function, columns=[{name!r}, ...])",
                place=place,
            )


def _typed(name: str, declared: Schema | None, schema: Schema | None, place: str) -> SchemaColumn:
    said = declared.find(name) if declared else None
    found = schema.find(name) if schema else None
    if said is not None:
        if found is not None and found.type not in {None, said.type}:
            raise ColumnError(
                f"reduce(returns=...) has column {name!r} of type {said.type}, but the stream's is {found.type}, and reducing keeps types",
                fix=f"cast it before: .with_columns({name}='CAST({name} AS {said.type})')",
                place=place,
            )
        return SchemaColumn(name, said.type)
    if found is None or found.type is None:
        raise ColumnError(
            f"the type of column {name!r}, which reduce() keeps between epochs, is not known before the job runs",
            fix=f"declare it: .reduce(function, returns='{name} DOUBLE'), with every column and its type",
            place=place,
        )
    return SchemaColumn(name, found.type)


def _check_merge(name: str, merge: object, names: tuple[str, ...], schema: Schema | None, place: str) -> None:
    site = Site(f"reduce column {name!r}", place)
    if not isinstance(merge, str):
        raise ExpressionError(f"{site.what} is {merge!r}, not SQL text", fix=_FIX, place=place)
    parsed = parse_row_expression(merge, site)
    if parsed is None:
        return
    _check_reads(parsed, merge, name, names, site)
    kind = type_of(parsed, _two_rows(names, schema))
    expected = schema.find(name) if schema else None
    if kind and expected and expected.type and not keeps_type(kind, expected.type):
        raise ExpressionError(
            f"{site.of(merge)} is of type {kind}, but the column is {expected.type}, and reducing keeps types",
            fix=f"cast the result, CAST(... AS {expected.type}), or the column before: .with_columns({name}='CAST({name} AS {kind})')",
            place=place,
        )


def _check_reads(parsed: exp.Expr, merge: str, name: str, names: tuple[str, ...], site: Site) -> None:
    from sqlglot import exp

    known = {column.lower() for column in names}
    for column in parsed.find_all(exp.Column, bfs=False):
        row, *fields = (part.name for part in column.parts)
        if row not in {EARLIER, LATER}:
            shown = row if row.lower() in known else name
            raise ExpressionError(
                f"{site.of(merge)} reads {row!r}, which is neither of the two rows that are merged, {EARLIER!r} and {LATER!r}",
                fix=f"write {EARLIER}.{shown} for the earlier row's, {LATER}.{shown} for the later row's",
                place=site.place,
            )
        if fields and fields[0].lower() not in known:
            raise ColumnError(
                f"{site.of(merge)} reads {row}.{fields[0]}, but the rows that are merged have only the columns {', '.join(names)}",
                fix=f"reduce that column, too: .reduce(..., {fields[0]}='...')",
                place=site.place,
            )


def _two_rows(names: tuple[str, ...], schema: Schema | None) -> Schema | None:
    """Return the schema of a merge expression: two structs; None if a type in them is not known."""
    types = [(name, found.type if (found := schema.find(name)) else None) for name in names] if schema else []
    if not types or not all(kind for _, kind in types):
        return None
    struct = f"STRUCT<{', '.join(f'{quoted(name)}: {kind}' for name, kind in types)}>"
    return Schema.of([(EARLIER, struct), (LATER, struct)])
