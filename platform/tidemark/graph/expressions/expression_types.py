"""The Spark type of an SQL expression, if it is certain without Spark; None otherwise.

Certain means: the same in every session. Decimal arithmetic, mixed floats, user functions and implicit casts of strings
depend on settings or on more than is known here, and stay unknown.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tidemark.graph.expressions.expressions import Site, parse_sql
from tidemark.graph.model.nodes import Expression
from tidemark.graph.model.schema import Schema

if TYPE_CHECKING:
    from sqlglot import exp

_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_WHOLE = frozenset(_INTEGERS)
_FRACTIONS = frozenset({"FLOAT", "DOUBLE"})
_FIXED = {
    "BOOLEAN": "EQ NEQ GT GTE LT LTE And Or Not In Like ILike RegexpLike Between Is NullSafeEQ StartsWith EndsWith Contains "
    "IsNan ArrayContains Exists Boolean",
    "INT": "Hour Minute Second Month DayOfWeek Quarter Year Day WeekOfYear Length ArraySize StrPosition",
    "BIGINT": "UnixMillis UnixSeconds StrToUnix",
    "DOUBLE": "Sqrt Pow Exp Ln Rand",
    "STRING": "Upper Lower Trim Replace RegexpReplace RegexpExtract TimeToStr UnixToStr Initcap MD5 SHA2 ConcatWs JSONFormat "
    "JSONExtractScalar",
    "DATE": "TsOrDsToDate AddMonths LastDay CurrentDate",
    "TIMESTAMP": "CurrentTimestamp",
}
_BY_CLASS = {name: kind for kind, names in _FIXED.items() for name in names.split()}
_BY_NAME = {
    "timestamp_millis": "TIMESTAMP",
    "timestamp_micros": "TIMESTAMP",
    "timestamp_seconds": "TIMESTAMP",
    "make_date": "DATE",
    "isnull": "BOOLEAN",
    "isnotnull": "BOOLEAN",
    "hash": "INT",
    "xxhash64": "BIGINT",
}


def expression_type(expression: Expression, schema: Schema | None) -> str | None:
    """Return the type of an expression over columns, None where it is not certain."""
    return type_of(parse_sql(expression, Site("expression", "")), schema) if isinstance(expression, str) else None


def type_of(parsed: exp.Expr | None, schema: Schema | None) -> str | None:  # noqa: C901, PLR0911, PLR0912 - one case per kind of expression
    """Return the Spark type of a parsed expression over a stream's columns as DDL text, None where it is not certain.

    >>> import sqlglot
    >>> schema = Schema.of([("fares", "ARRAY<INT>"), ("tip", "DOUBLE")])
    >>> type_of(sqlglot.parse_one("fares[0] + tip", dialect="spark"), schema)
    'DOUBLE'
    """
    from sqlglot import exp

    if parsed is None:
        return None
    name = type(parsed).__name__
    if name in _BY_CLASS:
        return _BY_CLASS[name]
    match parsed:
        case exp.Column():
            return _column_type(parsed, schema)
        case exp.Literal():
            return _literal_type(parsed)
        case exp.Cast() | exp.TryCast():
            return parsed.to.sql(dialect="spark")
        case exp.Paren() | exp.Neg() | exp.Abs() | exp.Nullif():
            kind = type_of(parsed.this, schema)
            return None if kind in {"STRING", None} and not isinstance(parsed, exp.Paren) else kind
        case exp.Coalesce() | exp.Greatest() | exp.Least():
            return _common([parsed.this, *parsed.expressions], schema)
        case exp.If():
            return _common([parsed.args["true"], parsed.args.get("false")], schema)
        case exp.Case():
            return _common([*(branch.args["true"] for branch in parsed.args["ifs"]), parsed.args.get("default")], schema)
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Mod() | exp.Div():
            return _arithmetic(parsed, schema)
        case exp.Concat() | exp.DPipe():
            parts = parsed.expressions if isinstance(parsed, exp.Concat) else [parsed.this, parsed.expression]
            return "STRING" if all(type_of(part, schema) == "STRING" for part in parts) else None
        case exp.TimestampTrunc():
            return "TIMESTAMP" if type_of(parsed.this, schema) in {"TIMESTAMP", "DATE"} else None
        case exp.Bracket():
            return _item_type(type_of(parsed.this, schema))
        case exp.Dot():
            return _field_type(type_of(parsed.this, schema), parsed.name)
        case exp.Anonymous():
            return _BY_NAME.get(parsed.name.lower())
    return None


def _column_type(column: exp.Column, schema: Schema | None) -> str | None:
    found = schema.find(column.parts[0].name) if schema else None
    kind = found.type if found else None
    for part in column.parts[1:]:
        kind = _field_type(kind, part.name)
    return kind


def _literal_type(literal: exp.Literal) -> str | None:
    if literal.is_string:
        return "STRING"
    text = literal.name.lower()
    if text.isdigit():
        return "INT" if int(text) < 2**31 else "BIGINT" if int(text) < 2**63 else None
    return "DOUBLE" if "e" in text else None


def _common(parts: list[exp.Expr | None], schema: Schema | None) -> str | None:
    from sqlglot import exp

    kinds = {type_of(part, schema) for part in parts if part is not None and not isinstance(part, exp.Null)}
    if len(kinds) == 1:
        return kinds.pop()
    return _widest(kinds)


def _widest(kinds: set[str | None]) -> str | None:
    if kinds and kinds <= set(_INTEGERS):
        return max(kinds, key=lambda kind: _INTEGERS.index(kind or ""))
    return "DOUBLE" if "DOUBLE" in kinds and kinds <= {*_INTEGERS, "DOUBLE"} else None


def _arithmetic(operation: exp.Binary, schema: Schema | None) -> str | None:
    from sqlglot import exp

    left, right = (type_of(side, schema) for side in (operation.this, operation.expression))
    numbers = {*_INTEGERS, "DOUBLE"}
    if left in numbers and right in numbers:
        return "DOUBLE" if isinstance(operation, exp.Div) else _widest({left, right})
    if "DOUBLE" in {left, right} and any(_is_decimal(side) for side in (operation.this, operation.expression)):
        return "DOUBLE"
    if isinstance(operation, exp.Add | exp.Sub):
        if left == "TIMESTAMP" and isinstance(operation.expression, exp.Interval):
            return "TIMESTAMP"
        if left == "DATE" and right in {"TINYINT", "SMALLINT", "INT"}:
            return "DATE"
    return None


def _is_decimal(part: exp.Expr) -> bool:
    from sqlglot import exp

    return isinstance(part, exp.Literal) and not part.is_string


@lru_cache(maxsize=1024)
def _item_type(kind: str | None) -> str | None:
    parsed = _data_type(kind)
    if parsed is None or not parsed.expressions:
        return None
    name = parsed.this.name
    return parsed.expressions[-1].sql(dialect="spark") if name in {"ARRAY", "MAP"} else None


@lru_cache(maxsize=1024)
def _field_type(kind: str | None, name: str) -> str | None:
    parsed = _data_type(kind)
    if parsed is None or parsed.this.name != "STRUCT":
        return None
    fields = (field for field in parsed.expressions if field.name.lower() == name.lower())
    found = next(fields, None)
    return found.kind.sql(dialect="spark") if found is not None and found.args.get("kind") else None


def _data_type(kind: str | None) -> exp.DataType | None:
    from sqlglot import exp

    return exp.DataType.build(kind, dialect="spark") if kind else None


def item_type(kind: str | None) -> str | None:
    """Return the type of what ``explode`` makes of an array or map type: the item, or a struct of key and value.

    >>> item_type("MAP<STRING, INT>")
    'STRUCT<key: STRING, value: INT>'
    """
    parsed = _data_type(kind)
    if parsed is not None and parsed.this.name == "MAP" and len(parsed.expressions) == 2:
        key, value = (part.sql(dialect="spark") for part in parsed.expressions)
        return f"STRUCT<key: {key}, value: {value}>"
    return _item_type(kind)


def keeps_type(kind: str, expected: str) -> bool:
    """Return whether values of one type can be cast to the other without a relevant loss: the same, or of one family.

    >>> keeps_type("BIGINT", "INT"), keeps_type("INT", "DOUBLE"), keeps_type("DOUBLE", "INT")
    (True, True, False)
    """
    families = (_WHOLE, _FRACTIONS)
    if kind == expected or any(kind in family and expected in family for family in families):
        return True
    return (kind in _WHOLE and expected in _FRACTIONS) or (kind.startswith("DECIMAL") and expected.startswith("DECIMAL"))
