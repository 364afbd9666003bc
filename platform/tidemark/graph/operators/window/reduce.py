"""Reduce: elements of a window merged two by two into one row, in SQL or in Python; built as an ordinary aggregate.

The state of a key and window is the reduced row so far and the order of its first element. Rows are merged in order of
(event time, source position), the reduced rows of several epochs in that of their first elements.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

from tidemark.errors import UserCodeError
from tidemark.graph.aggregates.aggregate_arguments import in_template
from tidemark.graph.aggregates.aggregates_custom import python_aggregate
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.expressions.expressions import Site, parse_sql
from tidemark.graph.model.aggregates import Aggregate, Partial
from tidemark.graph.model.schema import Schema, SchemaColumn

REDUCED = "reduced"
"""Name of the one aggregate of a reducing window; no result column has it."""

EARLIER, LATER = "a", "b"
"""The names of the two rows in a merge expression."""

Row = dict[str, object]

_ROWS = "__tm_rows"


def sql_reduce(merges: Mapping[str, str], schema: Schema | None) -> Aggregate:
    """Return the aggregate that merges rows by an SQL expression per column over ``a`` and ``b``.

    An expression's value is cast to its column's type if the schema has it; otherwise it has to be of that type already.
    """
    columns = {name: quoted(name) for name in merges}
    row = f"struct({', '.join(f'{column} AS {column}' for column in map(_braced, columns.values()))})"
    merged = f"struct({', '.join(f'{_cast(name, merge, schema)} AS {_braced(columns[name])}' for name, merge in merges.items())})"
    partials = (
        Partial("since", "min({order})", "min({since})"),
        Partial("row", _fold("{order}", row, merged), _fold("{since}", "{row}", merged)),
    )
    return Aggregate("reduce", tuple(columns.values()), partials, "{row}")


def _fold(order: str, row: str, merged: str) -> str:
    """Return the template that sorts rows by an order and merges them. The sorted rows get a name, so that Spark sorts them once."""
    rows = f"sort_array(collect_list(named_struct('order', {order}, 'row', {row}))).row"
    merging = f"aggregate(slice({_ROWS}, 2, size({_ROWS})), {_ROWS}[0], ({EARLIER}, {LATER}) -> {merged})"
    return f"transform(array({rows}), {_ROWS} -> {merging})[0]"


def _cast(name: str, merge: str, schema: Schema | None) -> str:
    found = schema.find(name) if schema else None
    return f"CAST({in_template(merge)} AS {found.type})" if found and found.type else in_template(merge)


def python_reduce(function: Callable[[Row, Row], object], columns: Sequence[SchemaColumn]) -> Aggregate:
    """Return the aggregate that merges rows by a Python function of two dicts; every column has its type."""
    schema = ", ".join(f"{quoted(column.name)} {column.type}" for column in columns)
    values = [f"CAST({quoted(column.name)} AS {column.type})" for column in columns]
    names = tuple(column.name for column in columns)
    merge = merging(function, names, frozenset(column.name for column in columns if column.type in {"DOUBLE", "FLOAT"}))
    made = python_aggregate(nothing, adding(merge, names), merge, same, arguments=values, state=schema, returns=schema)
    return dataclasses.replace(made, kind="reduce")


def nothing() -> Row:
    """Return the accumulator before the first element."""
    return {}


def same(row: Row) -> Row:
    """Return the reduced row, which is the result."""
    return row


def adding(merge: Callable[[Row, Row], Row], names: tuple[str, ...]) -> Callable[..., Row]:
    """Return the function that merges an element's values into the reduced row so far.

    A function within a function, here and in ``merging``: the text of what it closes over counts when definitions are compared.
    """

    def add(row: Row, *values: object) -> Row:
        element = dict(zip(names, values, strict=True))
        return merge(row, element) if row else element

    return add


def merging(function: Callable[[Row, Row], object], names: tuple[str, ...], fractions: frozenset[str]) -> Callable[[Row, Row], Row]:
    """Return a function that merges two rows by the user's and checks the result: these columns, and no others.

    A whole number in one of the ``fractions`` becomes a float: Spark would take it for null.
    """

    def merge(earlier: Row, later: Row) -> Row:
        row = function(dict(earlier), dict(later))
        if not isinstance(row, dict) or row.keys() != set(names):
            raise UserCodeError(
                f"the function given to reduce() returned {row!r}, not a dict of the columns {', '.join(names)}",
                fix="return a dict with a value for each column, and for nothing else",
            )
        return {name: float(value) if name in fractions and type(value := row[name]) is int else row[name] for name in names}

    return merge


def quoted(name: str) -> str:
    """Return a column's name quoted as SQL.

    >>> quoted("double fare")
    '`double fare`'
    """
    return "`" + name.replace("`", "``") + "`"


def reduced_types(aggregate: Aggregate, names: Sequence[str], schema: Schema | None) -> tuple[SchemaColumn, ...]:
    """Return the columns of a reduced row, with types where they are known."""
    declared = parse_schema(aggregate.functions[-1].returns) if aggregate.functions else schema
    found = {name: declared.find(name) if declared else None for name in names}
    return tuple(SchemaColumn(name, column.type if column else None) for name, column in found.items())


def merged_columns(merge: str | None, names: Iterable[str]) -> frozenset[str]:
    """Return, in lower case, the columns of the two rows that a merge expression reads; all of them where it is in Python.

    >>> sorted(merged_columns("if(a.top > b.top, a.zone, b.zone)", ["top", "zone", "fare"]))
    ['top', 'zone']
    """
    if merge is None:
        return frozenset(names)
    from sqlglot import exp

    read = [[part.name.lower() for part in column.parts] for column in parse_sql(merge, Site("merge", "")).find_all(exp.Column)]
    return frozenset(names) if any(len(parts) == 1 for parts in read) else frozenset(parts[1] for parts in read)


def _braced(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
