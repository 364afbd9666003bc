"""Tables that exist already, that get columns, that were lost; and what does not fit is refused with the fix."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, IntegerType, LongType, NestedField, StringType, TimestamptzType

from tests.iceberg.rig import LINEAGE, Lake, Rig, struct
from tidemark.errors import MissingEpochsError, PublishError, SinkError, StoreError
from tidemark.graph.connectors.iceberg.node import IcebergSpec, IcebergTable, PartitionBy
from tidemark.savepoints.delta.missing_records import Retained
from tidemark.savepoints.iceberg.fit import check_iceberg
from tidemark.state.log.records import SinkPosition

ROWS = {"k": "string", "v": "long"}


def made(lake: Lake, *columns: tuple[str, IcebergType] | tuple[str, IcebergType, bool]) -> None:
    fields = [NestedField(n + 1, column[0], column[1], required=len(column) > 2) for n, column in enumerate(columns)]
    lake.catalog().create_table("shop.orders", Schema(*fields))


def test_a_table_of_its_own_gets_new_columns(lake: Lake, tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.publish(0, [{"k": "a", "v": 1}])
    rig.columns = {**ROWS, "at": "timestamp"}
    rig.sink.check(struct(rig.columns))
    record = rig.stage(1, [{"k": "b", "v": 2, "at": None}])
    assert "at" not in lake.table().schema().column_names
    rig.sink.publish(record, LINEAGE, 1)
    assert str(lake.table().schema().find_type("at")) == "timestamptz"
    # Rows and column came in one commit.
    assert len(lake.table().metadata.snapshots) == 2
    rig.columns = {"k": "string", "n": "integer"}
    rig.sink.check(struct(rig.columns))
    rig.publish(2, [{"k": "c", "n": 5}])
    assert lake.rows(columns=("k", "v", "n")) == [("a", 1, None), ("b", 2, None), ("c", None, 5)]
    rig.columns = {"k": "string", "v": "string"}
    with pytest.raises(SinkError, match=r"column 'v' is STRING in the output and BIGINT in the table, whose types stay.*Fix: cast it"):
        rig.sink.check(struct(rig.columns))


@pytest.mark.parametrize(
    "case",
    [
        ([("k", StringType())], "the table lacks column 'v' (BIGINT)", "write to another table"),
        ([("k", StringType()), ("v", IntegerType())], "column 'v' is BIGINT in the output and INT in the table", "cast it to INT"),
        ([("k", StringType()), ("V", LongType())], "column 'v' is spelled 'V' in the table", "spell it 'V'"),
        ([("k", StringType()), ("v", LongType()), ("x", LongType(), True)], "the output lacks column 'x'", "write to another table"),
        ([("k", StringType(), True), ("v", LongType())], "column 'k' is required in the table", "make_column_optional('k')"),
    ],
)
def test_a_table_that_does_not_fit(lake: Lake, tmp_path: Path, case: tuple[list[tuple[str, IcebergType]], str, str]) -> None:
    columns, what, fix = case
    made(lake, *columns)
    rig = Rig(tmp_path)
    with pytest.raises(SinkError) as raised:
        rig.sink.check(struct(ROWS))
    assert what in str(raised.value)
    assert fix in str(raised.value).partition("Fix: ")[2]
    assert "the table at iceberg://lake/shop.orders" in str(raised.value)
    assert rig.sink.occupancy == "taken"


def test_a_table_of_others_that_fits(lake: Lake, tmp_path: Path) -> None:
    made(lake, ("k", StringType()), ("v", LongType()))
    rig = Rig(tmp_path)
    rig.sink.check(struct(ROWS))
    rig.publish(0, [{"k": "a", "v": 1}])
    assert lake.rows() == [("a", 1)]
    # It is the output's, too, since it was written to.
    rig.sink.check(struct({**ROWS, "more": "string"}))


def test_a_column_that_was_renamed_in_the_table(lake: Lake, tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.publish(0, [{"k": "a", "v": 1}])
    with lake.table().update_schema() as update:
        update.rename_column("v", "w")
    assert lake.rows(columns=("k", "w")) == [("a", 1)]
    with pytest.raises(SinkError, match=r"column 'v' was renamed to 'w' in the table.*Fix: rename it in a select"):
        rig.open().check(struct(ROWS))


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("bucket[4]", "which the statistics of Spark's files do not show"),
        ("truncate[2]", "the table is partitioned by truncate(2, k), not by k"),
    ],
)
def test_other_partitions(lake: Lake, tmp_path: Path, field: str, message: str) -> None:
    made(lake, ("k", StringType()), ("v", LongType()))
    with lake.table().update_spec() as update:
        update.add_field("k", field)
    with pytest.raises(SinkError) as raised:
        Rig(tmp_path, partition_by=(PartitionBy("k"),)).sink.check(struct(ROWS))
    assert message in str(raised.value)
    assert "leave partition_by out" in str(raised.value).partition("Fix: ")[2]


def test_a_file_whose_statistics_do_not_show_its_partition(lake: Lake, tmp_path: Path) -> None:
    rig = Rig(tmp_path, partition_by=(PartitionBy("k"),))
    rig.publish(0, [{"k": "a", "v": 1}])
    with lake.table().transaction() as transaction:
        transaction.set_properties({"write.metadata.metrics.default": "none"})
    record = rig.stage(1, [{"k": "b", "v": 2}])
    with pytest.raises(PublishError, match="do not show its partition k"):
        rig.sink.publish(record, LINEAGE, 1)
    with lake.table().transaction() as transaction:
        transaction.remove_properties("write.metadata.metrics.default")
    rig.sink.publish(record, LINEAGE, 1)
    rig.publish(2, [{"k": None, "v": 3}])
    assert sorted((file["partition"]["k"] for file in lake.table().inspect.files().to_pylist()), key=repr) == ["a", "b", None]


def test_a_table_without_rows_follows_the_code(lake: Lake, tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    found = [rig.sink.occupancy]
    rig.sink.create(struct({"k": "string", "v": "string"}))
    found.append(rig.sink.occupancy)
    rig.sink.check(struct(ROWS))
    assert str(lake.table().schema().find_type("v")) == "long"
    rig.publish(0, [{"k": "a", "v": 1}])
    assert [*found, rig.sink.occupancy] == ["missing", "empty", "taken"]


def test_a_namespace_that_is_missing(lake: Lake, tmp_path: Path) -> None:
    lake.catalog().drop_namespace("shop")
    with pytest.raises(SinkError, match=r"has no namespace 'shop'.*Fix: create it: pyiceberg --catalog lake create namespace shop"):
        Rig(tmp_path).sink.create(struct(ROWS))


@pytest.mark.parametrize("lost", ["rolled back", "deleted", "an older copy"])
def test_what_the_table_has_lost_is_found(lake: Lake, tmp_path: Path, lost: str) -> None:
    rig = Rig(tmp_path)
    rig.publish(0, [{"k": "a", "v": 1}])
    copy = (lake.folder / "catalog.db").read_bytes()
    rig.publish(1, [{"k": "b", "v": 2}])
    known = SinkPosition(lineage=LINEAGE, epoch=1)
    rig.open(before=known).require_whole()
    if lost == "rolled back":
        table = lake.table()
        table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()
    elif lost == "deleted":
        lake.catalog().drop_table("shop.orders")
    else:
        (lake.folder / "catalog.db").write_bytes(copy)
    sink = rig.open(before=known)
    why = {"rolled back": "it was rolled back", "deleted": "there is no table any more", "an older copy": "as in an older copy of it"}
    with pytest.raises(MissingEpochsError, match=why[lost]):
        sink.require_whole()
    with pytest.raises(MissingEpochsError, match="not published again to a table of Iceberg"):
        sink.republish(Retained((), complete=True))
    sink.adopt()
    assert sink.position == (SinkPosition() if lost == "deleted" else SinkPosition(lineage=LINEAGE, epoch=0))
    sink.require_whole()


@pytest.mark.usefixtures("lake")
def test_the_verdict_on_new_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = IcebergSpec(IcebergTable("lake", "shop.orders"))
    assert check_iceberg("orders", spec, ROWS, job="job") is None
    Rig(tmp_path).publish(0, [{"k": "a", "v": 1}])
    for columns, status in (({**ROWS, "x": "date"}, "migrates"), ({"k": "string", "v": "date"}, "incompatible"), (ROWS, "compatible")):
        found = check_iceberg("orders", spec, columns, job="job")
        assert found is not None
        assert found.status == status
    unknown = check_iceberg("orders", spec, None, job="job")
    assert unknown is not None
    assert unknown.status == "unknown"
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/nowhere/catalog.db")
    unknown = check_iceberg("orders", spec, ROWS, job="job")
    assert unknown is not None
    assert "cannot be read" in unknown.findings[0].what
    with pytest.raises(StoreError):
        Rig(tmp_path).sink.newest(LINEAGE)


def test_types_of_tables_that_others_made(lake: Lake, tmp_path: Path) -> None:
    made(lake, ("k", StringType()), ("v", LongType()), ("at", TimestamptzType()))
    with pytest.raises(SinkError, match="column 'at' is TIMESTAMP_NTZ in the output and TIMESTAMP in the table"):
        Rig(tmp_path).sink.check(struct({**ROWS, "at": "timestamp_ntz"}))


def test_expired_snapshots_are_no_loss(lake: Lake, tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    record = rig.publish(0, [{"k": "a", "v": 1}])
    table = lake.table()
    table.append(table.scan().to_arrow())
    table.maintenance.expire_snapshots().by_id(table.snapshots()[0].snapshot_id).commit()
    assert [snapshot.parent_snapshot_id for snapshot in lake.table().snapshots()] == [None]
    sink = rig.open(before=SinkPosition(lineage=LINEAGE, epoch=0))
    sink.require_whole()
    sink.publish(record, LINEAGE, 0)
    assert len(lake.rows()) == 2
    sink.adopt()
    assert sink.position == SinkPosition(lineage=LINEAGE, epoch=0)
    with pytest.raises(MissingEpochsError, match="its newest epoch is 0"):
        rig.open(before=SinkPosition(lineage=LINEAGE, epoch=1)).require_whole()
