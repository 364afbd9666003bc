"""The map that a broadcast stream writes: few entries, kept in one file and sent to each task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.errors import StateMismatchError, UserCodeError
from tidemark.graph.checks.schema_inference import schema_of
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.model.nodes import StatefulNode
from tidemark.graph.operators.broadcast import BroadcastSpec
from tidemark.savepoints.model.restore_words import LEAVE_BEHIND
from tidemark.savepoints.model.stored_types import shown_type, type_change
from tidemark.spark.columns.expressions import POSITION, TIME, column, quoted
from tidemark.spark.columns.schemas import no_rows, nullable, struct_of
from tidemark.spark.operators.base.contract import OperatorContext
from tidemark.spark.operators.base.tables import STATE_COMPRESSION, StateTables
from tidemark.spark.operators.keyed.python_values import python_rows
from tidemark.spark.operators.keyed_process.conversions import same_key
from tidemark.state.log.parquet_files import write_parquet

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

PART: Final = "broadcast"
"""The table of the map's entries."""

KEY: Final = "__tm_broadcast_key"
VALUE: Final = "__tm_broadcast_value"
_REMOVES: Final = "__tm_broadcast_removes"

MAX_ENTRIES: Final = 1_000_000
"""Each task has the whole map in memory."""

Entries = dict[Any, Any]


class BroadcastMap:
    """The map of an operator over the epochs of a run.

    Args:
        node: the operator.
        spec: of the map.
    """

    def __init__(self, node: StatefulNode, spec: BroadcastSpec) -> None:
        self._node = node
        self._spec = spec
        self._read: tuple[tuple[str, ...], Entries] | None = None
        self._types: pa.Schema | None = None

    def entries(self, tables: StateTables, context: OperatorContext) -> Entries:
        """Return the entries after the newest epoch that wrote any; read once per run.

        Raises:
            StateMismatchError: the stream has other types than the entries.
        """
        files = tables.files(PART)
        paths = tuple(file.path for file in files)
        if self._read is None or self._read[0] != paths:
            rows = tables.read_few(files) if files else None
            self._types = None if rows is None else rows.schema
            self._require(self._known_types(context), context)
            names = parse_schema(self._spec.value).names
            # Entries that were written before values had a column have null there.
            found = () if rows is None else python_rows(rows)
            self._read = paths, {same_key(row[KEY]): {name: row[VALUE].get(name) for name in names} for row in found}
        return self._read[1]

    def _known_types(self, context: OperatorContext) -> T.StructType | None:
        """Return the types of new entries as far as they follow from the graph, without a row; None where they do not."""
        schema = schema_of(self._node.inputs[1]) if self._types is not None else None
        if schema is None or any(each.type is None for each in schema.columns):
            return None
        columns = struct_of(", ".join(f"{quoted(each.name)} {each.type}" for each in schema.columns))
        found = self._made(no_rows(context.spark, columns)).schema
        return T.StructType([field for field in nullable(found) if field.name in (KEY, VALUE)])

    def _require(self, made: T.StructType | None, context: OperatorContext) -> None:
        """Check the types of new entries: keys of another type would meet none of the stored ones."""
        if made is None or self._types is None:
            return
        given = _arrow(made)
        for part, what in ((KEY, "keys"), (VALUE, "values")):
            if given.field(part).type == self._types.field(part).type:
                continue
            before, now = (_spark(types.field(part).type) for types in (self._types, given))
            if isinstance(before, T.StructType) and isinstance(now, T.StructType):
                # Those that values have now, and had not, are null in the stored ones.
                now = T.StructType([now[name] for name in before.names if name in now.names])
            if type_change(before.jsonValue(), now.jsonValue(), compared=part == KEY) == "other":
                was, is_now = (shown_type(kind.jsonValue()) for kind in (before, now))
                raise StateMismatchError(
                    f"the {what} of the broadcast map {self._spec.name!r} were {was} and are now {is_now}",
                    fix=f"cast what they are made of to {was} before the broadcast, such as .with_columns(id='CAST(id AS {was})'), "
                    f"or give the operator a new uid, and drop the old state: {LEAVE_BEHIND}",
                    job=context.job,
                    uid=self._node.uid,
                    place=self._node.place,
                )

    def stored_entries(self, tables: StateTables, context: OperatorContext) -> DataFrame:
        """Return a row per entry: ``key``, and ``value`` with the declared columns; the key is a text where there never was one."""
        files = tables.files(PART)
        if not files:
            return no_rows(context.spark, T.StructType().add("key", "string").add("value", struct_of(self._spec.value)))
        rows = context.spark.createDataFrame(tables.read_few(files).rename_columns(["key", "value"]))
        stored = cast("T.StructType", rows.schema["value"].dataType).names
        made = [
            (F.col("value").getField(field.name) if field.name in stored else F.lit(None).cast(field.dataType)).alias(field.name)
            for field in struct_of(self._spec.value)
        ]
        return rows.select("key", F.struct(*made).alias("value"))

    def write(self, rows: DataFrame, tables: StateTables, context: OperatorContext) -> int:
        """Apply an epoch's rows, in order of their times; return their number.

        Raises:
            UserCodeError: the map would be too large to be sent to tasks, or has keys that cannot be looked up.
            StateMismatchError: the rows have other types than the entries.
        """
        entries, uid = dict(self.entries(tables, context)), self._node.uid
        changes, types = self._changes(rows)
        self._require(types, context)
        for row in python_rows(changes):
            key = same_key(row[KEY])
            try:
                if row[_REMOVES]:
                    entries.pop(key, None)
                else:
                    entries[key] = row[VALUE]
            except TypeError:
                what = f"the broadcast map {self._spec.name!r} has the key {key!r}, which cannot be looked up"
                raise UserCodeError(what, fix="use a key that is no array, map or struct", uid=uid, place=self._node.place) from None
        if len(entries) > MAX_ENTRIES:
            raise UserCodeError(
                f"the broadcast map {self._spec.name!r} has {len(entries):,} entries, and each task gets all of them",
                fix=f"connect the streams by a key instead; up to {MAX_ENTRIES:,} entries are broadcast",
                uid=uid,
                place=self._node.place,
            )
        tables.drop(tables.files(PART))
        if entries:
            table = _table(entries, types)
            written = write_parquet(context.store, f"{tables.new_folder()}/part-00000.parquet", table, compression=STATE_COMPRESSION)
            tables.add([written], PART)
        self._read = tuple(file.path for file in tables.files(PART)), entries
        self._types = _arrow(types) if entries else None
        return int(changes.num_rows)

    def _changes(self, rows: DataFrame) -> tuple[pa.Table, T.StructType]:
        """Return the rows in order, and the types of the map's columns."""
        order = [name for name in (TIME, POSITION) if name in rows.columns]
        made = self._made(rows, *order).orderBy(*order)
        types = T.StructType([field for field in nullable(made.schema) if field.name in (KEY, VALUE)])
        return made.drop(*order).toArrow(), types

    def _made(self, rows: DataFrame, *more: str) -> DataFrame:
        """Return the entries of rows of the stream, whether each is removed, and further columns."""
        spec = self._spec
        removes = F.lit(False) if spec.removes is None else F.coalesce(column(spec.removes), F.lit(False))
        value = F.struct(*(F.col(quoted(name)).alias(name) for name in parse_schema(spec.value).names))
        return rows.select(column(spec.key).alias(KEY), value.alias(VALUE), removes.alias(_REMOVES), *more)


def _arrow(types: T.StructType) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(types, timezone="UTC")


def _spark(kind: pa.DataType) -> T.DataType:
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(kind, prefer_timestamp_ntz=True)


def _table(entries: Entries, types: T.StructType) -> pa.Table:
    import pyarrow as pa

    schema = _arrow(types)
    columns = [pa.array(list(entries), schema.field(KEY).type), pa.array(list(entries.values()), schema.field(VALUE).type)]
    return pa.Table.from_arrays(columns, schema=schema)
