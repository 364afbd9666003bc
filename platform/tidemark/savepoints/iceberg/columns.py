"""Types and partitions of Iceberg's tables, as Spark's JSON has them, and whether an output's rows fit a table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from tidemark.errors import SinkError
from tidemark.graph.connectors.iceberg.checks import column_fault, partition_fault
from tidemark.graph.connectors.iceberg.node import PartitionBy
from tidemark.savepoints.model.stored_types import shown_type
from tidemark.savepoints.model.table_columns import Columns, Stored, column_findings
from tidemark.savepoints.model.verdict import Finding

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.types import IcebergType

_WIDENED: Final = {"byte": "integer", "short": "integer"}
"""Types that Iceberg does not have, each with the one that holds its values."""

_TEXT: Final = re.compile(r"(?:var)?char\(\d+\)")
_NAMES: Final = {
    "boolean": "boolean", "int": "integer", "long": "long", "float": "float", "double": "double", "date": "date", "string": "string",
    "timestamptz": "timestamp", "timestamp": "timestamp_ntz", "binary": "binary",
}  # fmt: skip
"""Spark's names of types in JSON, by Iceberg's."""

_DECIMAL: Final = re.compile(r"decimal\((\d+), ?(\d+)\)")
_NEWEST_FORMAT: Final = 2
_VOID: Final = "void"
_LINEAR: Final = re.compile(r"identity|year|month|day|hour|truncate\[\d+\]")
_OTHER: Final = "write to another table, or change the table's columns to match the output's"


def normal(kind: object) -> object:
    """Return a type of Spark's JSON as it comes back from a table of Iceberg; None stays None.

    >>> normal("short"), normal("varchar(3)"), normal({"type": "array", "elementType": "byte", "containsNull": False})
    ('integer', 'string', {'type': 'array', 'elementType': 'integer', 'containsNull': True})
    """
    if isinstance(kind, str):
        return "string" if _TEXT.fullmatch(kind) else _WIDENED.get(kind, kind)
    if not isinstance(kind, Mapping):
        return kind
    match kind.get("type"):
        case "array":
            return {"type": "array", "elementType": normal(kind["elementType"]), "containsNull": True}
        case "map":
            key, value = normal(kind["keyType"]), normal(kind["valueType"])
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        case "struct":
            return {"type": "struct", "fields": [_field(field["name"], normal(field["type"])) for field in kind["fields"]]}
    return kind


def _field(name: str, kind: object) -> dict[str, object]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def spark_type(kind: IcebergType) -> object:
    """Return Spark's JSON of a type; of one that Spark does not have, the type's own name."""
    from pyiceberg.types import ListType, MapType, StructType

    if isinstance(kind, ListType):
        return {"type": "array", "elementType": spark_type(kind.element_type), "containsNull": True}
    if isinstance(kind, MapType):
        key, value = spark_type(kind.key_type), spark_type(kind.value_type)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if isinstance(kind, StructType):
        return {"type": "struct", "fields": [_field(field.name, spark_type(field.field_type)) for field in kind.fields]}
    text = str(kind)
    decimal = _DECIMAL.fullmatch(text)
    return f"decimal({decimal[1]},{decimal[2]})" if decimal else _NAMES.get(text, text)


COMMENT: Final = "comment"
"""Property of a table that readers show as its description."""


@dataclass(frozen=True)
class TableTexts:
    """What an output says of its table and of columns, by name; what is not named here is left as the table has it."""

    description: str
    columns: Mapping[str, str]

    @property
    def properties(self) -> dict[str, str]:
        """The property that has the table's description; none if there is no description."""
        return {COMMENT: self.description} if self.description else {}


NO_TEXTS: Final = TableTexts("", {})
"""Of an output that says nothing."""


def iceberg_schema(wanted: Columns, output: str, texts: TableTexts) -> Schema:
    """Return the columns of a table that is created; the numbers of its fields are given by the catalog.

    Raises:
        SinkError: Iceberg has no type for a column.
    """
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

    numbers = count(1)
    require_types(wanted, output)
    fields = [
        NestedField(next(numbers), name, iceberg_type(kind, numbers), required=False, doc=texts.columns.get(name))
        for name, kind in wanted.items()
    ]
    return Schema(*fields)


def require_types(wanted: Columns, output: str) -> None:
    """Make sure that Iceberg has a type for each column.

    Raises:
        SinkError: naming the first that it does not have.
    """
    for name, kind in wanted.items():
        fault = column_fault(name, shown_type(kind))
        if fault is not None:
            raise SinkError(f"output {output!r}: {fault[0]}", fix=fault[1], uid=output)


def iceberg_type(kind: object, numbers: Iterator[int] | None = None) -> IcebergType:
    """Return the type of Iceberg for Spark's JSON of one.

    Args:
        kind: as JSON.
        numbers: of fields within it.

    Raises:
        ValueError: there is none.
    """
    from pyiceberg.types import ListType, MapType, NestedField, StructType

    numbers = numbers if numbers is not None else count(1)
    found: Any = normal(kind)
    if isinstance(found, str):
        return _plain(found)
    number = next(numbers)
    match found["type"]:
        case "array":
            return ListType(number, iceberg_type(found["elementType"], numbers), element_required=False)
        case "map":
            value = next(numbers)
            key_type, value_type = iceberg_type(found["keyType"], numbers), iceberg_type(found["valueType"], numbers)
            return MapType(number, key_type, value, value_type, value_required=False)
        case "struct":
            fields = found["fields"]
            return StructType(
                *(NestedField(next(numbers), field["name"], iceberg_type(field["type"], numbers), required=False) for field in fields)
            )
    raise ValueError(f"no type of Iceberg holds {kind}")


def _plain(kind: str) -> IcebergType:
    from pyiceberg import types

    decimal = _DECIMAL.fullmatch(kind)
    if decimal:
        return types.DecimalType(int(decimal[1]), int(decimal[2]))
    plain: dict[str, IcebergType] = {
        "boolean": types.BooleanType(), "integer": types.IntegerType(), "long": types.LongType(), "float": types.FloatType(),
        "double": types.DoubleType(), "date": types.DateType(), "string": types.StringType(), "timestamp": types.TimestamptzType(),
        "timestamp_ntz": types.TimestampType(), "binary": types.BinaryType(),
    }  # fmt: skip
    if kind not in plain:
        raise ValueError(f"no type of Iceberg holds {kind}")
    return plain[kind]


def partition_spec(fields: Sequence[PartitionBy], schema: Schema) -> PartitionSpec:
    """Return the partitions of a table that is created."""
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import parse_transform

    return PartitionSpec(*(
        PartitionField(schema.find_field(field.column).field_id, 1000 + number, parse_transform(field.transform), _name(field))
        for number, field in enumerate(fields)
    ))  # fmt: skip


def _name(field: PartitionBy) -> str:
    kind = field.transform.partition("[")[0]
    return field.column if kind == "identity" else f"{field.column}_{'trunc' if kind == 'truncate' else kind}"


def partitions_of(table: Table) -> tuple[PartitionBy, ...]:
    """Return the fields by which a table is partitioned now."""
    schema = table.schema()
    fields = [field for field in table.spec().fields if str(field.transform) != _VOID]
    return tuple(PartitionBy(schema.find_column_name(field.source_id) or "", str(field.transform)) for field in fields)


def table_findings(table: Table, wanted: Columns, partition_by: Sequence[PartitionBy], *, own: bool) -> tuple[Finding, ...]:
    """Return every difference between the rows of an output and a table.

    Args:
        table: the table.
        wanted: types of the rows' columns, as Spark's JSON; None where a type is not certain.
        partition_by: as declared; none follow the table.
        own: whether the output has created the table, or published to it: then it gets new columns.
    """
    fields = table.schema().fields
    columns = {field.name: spark_type(field.field_type) for field in fields}
    if table.metadata.format_version > _NEWEST_FORMAT:
        what = f"the table has format version {table.metadata.format_version}, and PyIceberg writes none after {_NEWEST_FORMAT}"
        return (Finding(what, "incompatible", fix="write to another table: the version of a table cannot be lowered"),)
    required = frozenset(field.name for field in fields if field.required)
    same = {name: normal(kind) for name, kind in wanted.items()}
    stored = Stored("table", columns, follows=own or same.keys() == columns.keys(), fix=_OTHER, required=required)
    return (
        *column_findings(same, stored),
        *_required_findings(table, same),
        *_renamed_findings(table, same),
        *_partition_findings(table, same, partition_by),
    )


def _required_findings(table: Table, wanted: Columns) -> Iterator[Finding]:
    from pyiceberg.types import MapType

    schema = table.schema()
    for name in sorted(schema.column_names):
        outer, _, inner = name.rpartition(".")
        # Keys of maps always are.
        is_key = inner == "key" and isinstance(schema.find_type(outer), MapType)
        if not schema.find_field(name).required or is_key or name.partition(".")[0] not in wanted:
            continue
        what = f"column {name!r} is required in the table, and Spark's files do not say that it has no nulls"
        yield Finding(what, "incompatible", fix=f"make it optional: table.update_schema().make_column_optional({name!r}).commit()")


def _renamed_findings(table: Table, wanted: Columns) -> Iterator[Finding]:
    """Yield columns whose name is an earlier one of another column: that one's values would be shown under both."""
    schema, mapping = table.schema(), table.name_mapping()
    for field in mapping.root if mapping is not None else ():
        now = schema.find_column_name(field.field_id) if field.field_id is not None else None
        for name in field.names:
            if now is not None and name != now and name in wanted and now in schema.column_names and name not in schema.column_names:
                what = f"column {name!r} was renamed to {now!r} in the table"
                yield Finding(what, "incompatible", fix=f"rename it in a select after the last operator: {now}={name!r}")


def _partition_findings(table: Table, wanted: Columns, partition_by: Sequence[PartitionBy]) -> Iterator[Finding]:
    there = partitions_of(table)
    for name in (field.name for field in table.spec().fields if str(field.transform) == _VOID):
        what = f"the table was partitioned by {name!r}, of which its first format keeps an empty field (void)"
        yield Finding(what, "incompatible", fix="write to another table")
    shown = ", ".join(field.text() for field in there) or "nothing"
    for field in there:
        kind = wanted.get(field.column)
        fault = partition_fault(field, shown_type(kind)) if kind is not None else None
        if fault is not None or not _LINEAR.fullmatch(field.transform) or "." in field.column:
            what = f"the table is partitioned by {field.text()}, which the statistics of Spark's files do not show"
            yield Finding(what, "incompatible", fix="write to another table, or change its partitions (table.update_spec())")
    if partition_by and tuple(partition_by) != there:
        what = f"the table is partitioned by {shown}, not by {', '.join(field.text() for field in partition_by)}"
        yield Finding(what, "incompatible", fix="leave partition_by out, write what the table has, or write to another table")
