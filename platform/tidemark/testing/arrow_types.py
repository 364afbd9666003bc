"""Arrow types of Spark's, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tidemark.errors import DefinitionError
from tidemark.graph.expressions.ddl import parse_schema

if TYPE_CHECKING:
    from sqlglot import exp

_PLAIN: Final[Mapping[str, pa.DataType]] = MappingProxyType(
    {
        "TINYINT": pa.int8(),
        "SMALLINT": pa.int16(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "FLOAT": pa.float32(),
        "DOUBLE": pa.float64(),
        "TEXT": pa.string(),
        "VARCHAR": pa.string(),
        "BOOLEAN": pa.bool_(),
        "BINARY": pa.binary(),
        "VARBINARY": pa.binary(),
        "DATE": pa.date32(),
        "TIMESTAMP": pa.timestamp("us", "UTC"),
        "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
        "TIMESTAMPNTZ": pa.timestamp("us"),
        "INTERVAL": pa.duration("us"),
    }
)


def arrow_schema(ddl: str) -> pa.Schema:
    """Return the columns of a DDL text as an Arrow schema, as Spark would.

    Raises:
        DefinitionError: a type that has no values in Python.
    """
    return pa.schema([pa.field(each.name, arrow_type(each.type or "")) for each in parse_schema(ddl).columns])


def arrow_type(text: str) -> pa.DataType:
    """Return the Arrow type of a Spark type.

    Raises:
        DefinitionError: a type that has no values in Python.

    >>> arrow_type("MAP<STRING, ARRAY<DOUBLE>>")
    MapType(map<string, list<element: double>>)
    """
    from sqlglot import exp

    return _of(exp.DataType.build(text, dialect="spark"))


def _of(kind: exp.DataType) -> pa.DataType:
    from sqlglot import exp

    name, inner = kind.this.name, kind.expressions
    if name in _PLAIN:
        return _PLAIN[name]
    if name == "DECIMAL":
        digits = [int(each.name) for each in inner]
        return pa.decimal128(*(digits or [10, 0])) if len(digits) != 1 else pa.decimal128(digits[0], 0)
    if name == "ARRAY":
        return pa.list_(pa.field("element", _of(inner[0])))
    if name == "MAP":
        return pa.map_(_of(inner[0]), _of(inner[1]))
    if name == "STRUCT":
        return pa.struct([pa.field(each.name, _of(each.args["kind"])) for each in inner if isinstance(each, exp.ColumnDef)])
    raise DefinitionError(f"the harness does not know values of the type {kind.sql(dialect='spark')}", fix="use a type that Python has")
