"""What a declaration takes and refuses; no catalog and no library of Iceberg is needed for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

import tidemark as tm
from tidemark.errors import ColumnError, DefinitionError, SinkError, TidemarkError
from tidemark.graph.connectors.iceberg.checks import column_fault
from tidemark.graph.connectors.iceberg.node import IcebergSpec, IcebergTable, PartitionBy
from tidemark.savepoints.model.isolation import redirect_outputs

SECRET = "s3cr3t"  # noqa: S105 - made up
ROWS = tm.source(
    "rows",
    tm.files("x", format="json", schema="k STRING, v INT, f FLOAT, at TIMESTAMP, tags MAP<STRING, INT>"),
    watermarks=tm.ascending(timestamp="at"),
)
PLAIN = ROWS.select("k", "v")
LOG = PLAIN.latest(by=["k"]).uid("newest")


def declare(table: str = "shop.orders", catalog: str = "lake", **given: object) -> Callable[[], object]:
    return lambda: tm.iceberg(ROWS, table=table, catalog=catalog, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("declared", "error", "messages"),
    [
        (declare("orders"), DefinitionError, ["names no table with its namespace", "'shop.orders'"]),
        (declare("shop.a b"), DefinitionError, ["names no table"]),
        (declare('shop."; DROP TABLE b'), DefinitionError, ["names no table"]),
        (declare("shop.../../x"), DefinitionError, ["names no table"]),
        (declare("shop." + "x" * 129), DefinitionError, ["at most 128"]),
        (declare(catalog=f"postgresql://u:{SECRET}@h/d"), DefinitionError, ["no name of a catalog", "PYICEBERG_CATALOG__LAKE__URI"]),
        (declare(mode="upsert"), DefinitionError, ["can only be added", "tm.delta", "history"]),
        (declare(partition_by="k"), DefinitionError, ["no list of texts"]),
        (declare(partition_by=["bucket(4, k)"]), DefinitionError, ["'bucket(4, k)'", "truncate(4, zone)"]),
        (declare(partition_by=["day(4, at)"]), DefinitionError, ["is no field of partitions"]),
        (declare(partition_by=["truncate(0, k)"]), DefinitionError, ["is no field of partitions"]),
        (declare(partition_by=["k", "k"]), DefinitionError, ["a field twice"]),
        (declare(partition_by=["nothing"]), ColumnError, ["unknown column 'nothing'", "k, v, f, at, tags"]),
        (declare(partition_by=["K"]), ColumnError, ["unknown column 'K'"]),
        (declare(partition_by=["at"]), ColumnError, ["'at' is TIMESTAMP", "day(at)"]),
        (declare(partition_by=["f"]), ColumnError, ["'f' is FLOAT"]),
        (declare(partition_by=["hour(k)"]), ColumnError, ["'k' is STRING"]),
        (lambda: tm.iceberg(LOG.with_columns(epoch="v"), table="a.b", catalog="c"), ColumnError, ["adds a column 'epoch'"]),
        (lambda: tm.iceberg(PLAIN.with_columns(**{"a.b": "v"}), table="a.b", catalog="c"), ColumnError, ["has a dot"]),
    ],
)
def test_what_is_refused(declared: Callable[[], object], error: type[TidemarkError], messages: list[str]) -> None:
    with pytest.raises(error) as raised:
        declared()
    text = str(raised.value)
    assert all(message in text for message in messages), text
    assert "Fix: " in text
    assert "test_declarations.py" in text
    assert SECRET not in text


def test_a_job_knows_its_place_and_guarantee() -> None:
    by = ["k", "days(at)", "month(at)", "truncate(4, `v`)"]
    output = tm.iceberg(ROWS, table="shop.orders", catalog="lake", partition_by=by)
    fields = (PartitionBy("k"), PartitionBy("at", "day"), PartitionBy("at", "month"), PartitionBy("v", "truncate[4]"))
    assert output.sink == IcebergSpec(IcebergTable("lake", "shop.orders"), fields)
    job = tm.Job("shop", {"orders": output})
    assert "iceberg shop.orders in catalog lake, partitioned by k, day(at), month(at), truncate(4, v), exactly once" in job.explain()
    with pytest.raises(DefinitionError, match="both write to one place"):
        tm.Job("shop", {"orders": output, "again": tm.iceberg(PLAIN, table="shop.orders", catalog="lake")})


def test_a_fork_writes_to_a_table_of_its_own() -> None:
    job = tm.Job("shop", {"orders": tm.iceberg(PLAIN, table="lake.shop.orders", catalog="c-1")})
    names = set()
    sinks = [redirect_outputs(job, name=fork, root="/forks").outputs["orders"].sink for fork in ("try", "try-1", "try.1")]
    long = IcebergSpec(IcebergTable("c-1", f"lake.shop.{'o' * 100}")).redirected("x" * 100)
    for sink in (*sinks, long):
        assert isinstance(sink, IcebergSpec)
        assert sink.table.namespace == "lake.shop"
        assert len(sink.table.name.rpartition(".")[2]) <= 128
        assert IcebergTable.of_location(sink.location) == sink.table
        names.add(sink.table.name)
    assert len(names) == 4
    assert "lake.shop.try_orders" in names
    assert "lake.shop.orders" not in names


def test_another_place_is_no_table() -> None:
    with pytest.raises(SinkError, match="no table of Iceberg"):
        IcebergTable.of_location("/lake/orders")


@pytest.mark.parametrize(
    ("kind", "taken"),
    [
        ("STRUCT<time: TIMESTAMP, a: ARRAY<MAP<STRING, DECIMAL(38, 2)>>>", True),
        ("TIMESTAMP_NTZ", True),
        ("TIME(6)", False),
        ("ARRAY<VARIANT>", False),
        ("INTERVAL DAY TO SECOND", False),
        ("VOID", False),
    ],
)
def test_types(kind: str, *, taken: bool) -> None:
    assert (column_fault("v", kind) is None) is taken


def test_a_definition_loads_no_library_of_iceberg() -> None:
    code = (
        "import sys, tidemark as tm\n"
        "rows = tm.source('rows', tm.files('x', format='json', schema='k STRING'), watermarks=tm.ingestion_time())\n"
        "tm.Job('j', {'o': tm.iceberg(rows, table='a.o', catalog='lake')})\n"
        "print([name for name in ('pyiceberg', 'pyspark') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
