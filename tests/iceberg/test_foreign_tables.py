"""Tables that others made or changed in ways that PyIceberg cannot write to: refused before anything is staged, with the fix."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from tests.iceberg.rig import COLUMNS, LINEAGE, Lake, Rig, struct
from tidemark.errors import FencedError, SinkError
from tidemark.savepoints.iceberg.columns import iceberg_type
from tidemark.spark.sinks.iceberg.iceberg_sink import DATA
from tidemark.spark.sinks.staging.sink_owner import SinkOwner

PLAIN = Schema(NestedField(1, "k", StringType()), NestedField(2, "v", LongType()))


def third_format(lake: Lake) -> None:
    """PyIceberg reads such tables."""
    table = lake.catalog().create_table("shop.orders", PLAIN)
    metadata = Path(table.metadata_location.removeprefix("file://"))
    metadata.write_text(json.dumps({**json.loads(metadata.read_bytes()), "format-version": 3, "next-row-id": 0}))


def empty_partition(lake: Lake) -> None:
    by = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "k"))
    table = lake.catalog().create_table("shop.orders", PLAIN, partition_spec=by, properties={"format-version": "1"})
    with table.update_spec() as update:
        update.remove_field("k")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (third_format, "the table has format version 3, and PyIceberg writes none after 2"),
        (empty_partition, r"the table was partitioned by 'k', of which its first format keeps an empty field \(void\)"),
    ],
)
def test_formats_and_partitions(lake: Lake, tmp_path: Path, make: Callable[[Lake], None], message: str) -> None:
    make(lake)
    with pytest.raises(SinkError, match=f"{message}.*Fix: .*write to another table"):
        Rig(tmp_path).sink.check(struct(COLUMNS))
    assert lake.table().current_snapshot() is None


def test_required_fields_within_columns(lake: Lake, tmp_path: Path) -> None:
    inner = StructType(NestedField(5, "key", StringType(), required=True))
    fields = [
        NestedField(1, "xs", ListType(4, inner, element_required=False)),
        NestedField(2, "p", MapType(6, StringType(), 7, LongType(), value_required=False)),
        NestedField(3, "v", LongType()),
    ]
    lake.catalog().create_table("shop.orders", Schema(*fields))
    entry = {"type": "struct", "fields": [{"name": "key", "type": "string", "nullable": True, "metadata": {}}]}
    array = {"type": "array", "elementType": entry, "containsNull": True}
    entries = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}
    assert [str(iceberg_type(kind)).startswith(name) for kind, name in ((array, "list"), (entries, "map"))] == [True, True]
    with pytest.raises(SinkError) as raised:
        Rig(tmp_path).sink.check(struct({"xs": array, "p": entries, "v": "long"}))
    assert "column 'xs.element.key' is required in the table" in str(raised.value)
    assert "'p.key'" not in str(raised.value)


def test_a_driver_that_was_taken_over_drops_no_table(lake: Lake, tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.sink.create(struct({"k": "string"}))

    def confirm() -> None:
        raise FencedError("a newer driver has begun", fix="nothing", job="job")

    rig.sink.owner = SinkOwner(rig.sink.owner.store, 1, confirm)
    with pytest.raises(FencedError):
        rig.sink.check(struct({"k": "string", "v": "long"}))
    assert lake.table().schema().column_names == ["k"]
    rig.open().check(struct({"k": "string", "v": "long"}))
    assert lake.table().schema().column_names == ["k", "v"]
    assert lake.table().metadata.format_version == 2


def test_readers_do_not_skip_a_file_for_values_without_bounds(lake: Lake, tmp_path: Path) -> None:
    """Of the row groups of a file one may have no bounds: its text is too long for Parquet's."""
    rig = Rig(tmp_path)
    record = rig.stage(0, [{"k": "m", "v": 5}])
    long = "z" * 5000
    rows = pa.table({"k": [long, "a", "b"], "v": [1, 2, 3]}, schema=pa.schema([("k", pa.string()), ("v", pa.int64())]))
    pq.write_table(rows, f"{record.options[DATA].removeprefix('file://')}/{record.files[0].path}", row_group_size=1)
    rig.sink.publish(record, LINEAGE, 0)
    found = {key: lake.table().scan(f"k = '{key}'").to_arrow()["v"].to_pylist() for key in (long, "b", "c")}
    assert found == {long: [1], "b": [3], "c": []}
    # Bounds that all row groups have are those of the file.
    assert not list(lake.table().scan("v = 4").plan_files())
