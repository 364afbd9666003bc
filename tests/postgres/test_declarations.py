"""What is declared of a Postgres sink, and refused where it is declared."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

import tidemark as tm
from tests.postgres.server import SECRET
from tidemark.errors import ColumnError, DefinitionError, SinkError, TidemarkError
from tidemark.graph.connectors.postgres.node import PostgresSpec, PostgresTable
from tidemark.graph.connectors.postgres.types import postgres_type
from tidemark.savepoints.model.isolation import redirect_outputs

SCHEMA = "k STRING, v INT, tags MAP<STRING, INT>, at TIMESTAMP, price DECIMAL(10, 2), raw BINARY, marks ARRAY<INT>, t BIGINT"
ROWS = tm.source("rows", tm.from_elements(epochs=[[]], schema=SCHEMA), watermarks=tm.ascending(timestamp="t"))
PLAIN = ROWS.select("k", "v", "at", "price", "raw", "marks")
LOG = PLAIN.latest(by=["k"]).uid("newest")


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("STRING", "text"),
        ("TINYINT", "smallint"),
        ("BIGINT", "bigint"),
        ("FLOAT", "real"),
        ("DOUBLE", "double precision"),
        ("DECIMAL(38, 18)", "numeric(38,18)"),
        ("DATE", "date"),
        ("TIMESTAMP", "timestamp with time zone"),
        ("TIMESTAMP_NTZ", "timestamp without time zone"),
        ("BINARY", "bytea"),
        ("ARRAY<DECIMAL(5, 1)>", "numeric(5,1)[]"),
        ("ARRAY<ARRAY<INT>>", None),
        ("MAP<STRING, INT>", None),
        ("STRUCT<a: INT>", None),
        ("VARIANT", None),
        ("INTERVAL DAY TO SECOND", None),
    ],
)
def test_types(kind: str, wanted: str | None) -> None:
    assert postgres_type(kind) == wanted


@pytest.mark.parametrize(
    ("declare", "error", "messages"),
    [
        (lambda: tm.postgres(ROWS, table="t", dsn_env="DSN"), ColumnError, ["'tags', MAP<STRING, INT>", "to_json(tags)"]),
        (lambda: tm.postgres(PLAIN, table="a b", dsn_env="DSN"), DefinitionError, ["names no table", "'shop.orders'"]),
        (lambda: tm.postgres(PLAIN, table="a.b.c", dsn_env="DSN"), DefinitionError, ["names no table"]),
        (lambda: tm.postgres(PLAIN, table='a"; DROP TABLE b; --', dsn_env="DSN"), DefinitionError, ["names no table"]),
        (lambda: tm.postgres(PLAIN, table="x" * 64, dsn_env="DSN"), DefinitionError, ["at most 63"]),
        (lambda: tm.postgres(PLAIN, table="shop.tidemark_epochs", dsn_env="DSN"), DefinitionError, ["name another table"]),
        (lambda: tm.postgres(PLAIN, table="t", dsn_env=f"postgresql://u:{SECRET}@h/d"), DefinitionError, ["dsn_env='SHOP_DSN'"]),
        (lambda: tm.postgres(PLAIN, table="t", dsn_env="DSN", keys=["k"]), DefinitionError, ["neither an append nor an upsert"]),
        (lambda: tm.postgres(PLAIN, table="t", dsn_env="DSN", mode="upsert"), DefinitionError, ["postgres(mode='upsert')", "keys=["]),
        (lambda: tm.postgres(PLAIN, table="t", dsn_env="DSN", mode="upsert", keys=["x"]), ColumnError, ["unknown column 'x'"]),
        (lambda: tm.postgres(LOG, table="t", dsn_env="DSN", mode="upsert", keys=["v"]), DefinitionError, ["key of the changelog"]),
        (lambda: tm.postgres(LOG, table="t", dsn_env="DSN", with_epoch=True), DefinitionError, ["has the epoch already"]),
        (
            lambda: tm.postgres(PLAIN, table="t", dsn_env="DSN", mode="upsert", keys=["k"], with_epoch=True),
            DefinitionError,
            ["keeps only the newest rows"],
        ),
        (lambda: tm.postgres(PLAIN.with_columns(ctid="v"), table="t", dsn_env="DSN"), ColumnError, ["'ctid' of its own"]),
        (lambda: tm.postgres(PLAIN.with_columns(**{"x" * 64: "v"}), table="t", dsn_env="DSN"), ColumnError, ["63 bytes"]),
        (lambda: tm.postgres(LOG.with_columns(epoch="v"), table="t", dsn_env="DSN"), ColumnError, ["adds a column 'epoch'"]),
    ],
)
def test_what_is_refused(declare: Callable[[], object], error: type[TidemarkError], messages: list[str]) -> None:
    with pytest.raises(error) as raised:
        declare()
    text = str(raised.value)
    assert all(message in text for message in messages), text
    assert "Fix: " in text
    assert "test_declarations.py" in text
    assert SECRET not in text


def test_a_job_knows_its_place_and_guarantee() -> None:
    output = tm.postgres(LOG, table="orders", dsn_env="SHOP_DSN", mode="upsert")
    assert output.sink == PostgresSpec(PostgresTable("SHOP_DSN", "public", "orders"), "upsert", ("k",))
    job = tm.Job("shop", {"orders": output})
    assert "postgres public.orders by SHOP_DSN, upsert by k, exactly once, the newest row of each key" in job.explain()
    with pytest.raises(DefinitionError, match="both write to one place"):
        tm.Job("shop", {"orders": output, "again": tm.postgres(PLAIN, table="public.orders", dsn_env="SHOP_DSN")})


def test_a_fork_writes_to_a_table_of_its_own() -> None:
    job = tm.Job("shop", {"orders": tm.postgres(PLAIN, table="shop.orders", dsn_env="SHOP_DSN")})
    names = set()
    for fork in ("try", "try-1", "try.1", "x" * 90):
        sink = redirect_outputs(job, name=fork, root="/forks").outputs["orders"].sink
        assert isinstance(sink, PostgresSpec)
        assert sink.table.schema == "shop"
        assert len(sink.table.name) <= 63
        assert PostgresTable.of_location(sink.location) == sink.table
        names.add(sink.table.name)
    assert len(names) == 4
    assert "try_orders" in names
    assert "orders" not in names


def test_another_place_is_no_table() -> None:
    with pytest.raises(SinkError, match="no table of Postgres"):
        PostgresTable.of_location("/lake/orders")


def test_a_definition_loads_no_driver() -> None:
    code = (
        "import sys, tidemark as tm\n"
        "rows = tm.source('rows', tm.files('x', format='json', schema='k STRING'), watermarks=tm.ingestion_time())\n"
        "tm.Job('j', {'o': tm.postgres(rows, table='o', dsn_env='DSN')})\n"
        "print([name for name in ('psycopg', 'pyspark') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
