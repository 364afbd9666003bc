"""What is declared of a sink to MariaDB, MySQL or SQLite, and refused where it is declared."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any, cast

import pytest

import tidemark as tm
from tests.sql_tables.server import SECRET
from tidemark.errors import ColumnError, DefinitionError, SinkError, TidemarkError
from tidemark.graph.connectors.sql_table.node import SqlDatabase, SqlTable, SqlTableSpec
from tidemark.graph.connectors.sql_table.types import INDEX_BYTES, key_types, sql_type
from tidemark.savepoints.model.isolation import redirect_outputs

SCHEMA = "k STRING, v INT, tags MAP<STRING, INT>, at TIMESTAMP, price DECIMAL(10, 2), raw BINARY, marks ARRAY<INT>, t BIGINT"
ROWS = tm.source("rows", tm.from_elements(epochs=[[]], schema=SCHEMA), watermarks=tm.ascending(timestamp="t"))
PLAIN = ROWS.select("k", "v", "at", "price", "raw")
LOG = PLAIN.latest(by=["k"]).uid("newest")


def declared(stream: Any = PLAIN, **options: Any) -> tm.Output:
    return tm.sql_table(stream, **{"database": "mariadb", "table": "t", "dsn_env": "DSN", **options})


@pytest.mark.parametrize(
    ("kind", "mariadb", "sqlite"),
    [
        ("BOOLEAN", "tinyint", "INTEGER"),
        ("TINYINT", "tinyint", "INTEGER"),
        ("SMALLINT", "smallint", "INTEGER"),
        ("INT", "int", "INTEGER"),
        ("BIGINT", "bigint", "INTEGER"),
        ("FLOAT", "double", "REAL"),
        ("DOUBLE", "double", "REAL"),
        ("DECIMAL(38, 18)", "decimal(38,18)", "TEXT"),
        ("DECIMAL(38, 31)", None, "TEXT"),
        ("STRING", "longtext", "TEXT"),
        ("VARCHAR(9)", "longtext", "TEXT"),
        ("BINARY", "longblob", "BLOB"),
        ("DATE", "date", "TEXT"),
        ("TIMESTAMP", "datetime(6)", "TEXT"),
        ("TIMESTAMP_NTZ", "datetime(6)", "TEXT"),
        ("ARRAY<INT>", None, None),
        ("MAP<STRING, INT>", None, None),
        ("STRUCT<a: INT>", None, None),
        ("VARIANT", None, None),
        ("INTERVAL DAY TO SECOND", None, None),
    ],
)
def test_types(kind: str, mariadb: str | None, sqlite: str | None) -> None:
    assert (sql_type("mariadb", kind), sql_type("mysql", kind), sql_type("sqlite", kind)) == (mariadb, mariadb, sqlite)


@pytest.mark.parametrize("texts", [1, 2, 3, 5, 9])
def test_texts_of_a_key_fit_into_an_index(texts: int) -> None:
    keys = [f"k{number}" for number in range(texts)]
    found = key_types({**dict.fromkeys(keys, "longtext"), "n": "bigint", "v": "longtext"}, [*keys, "n"])
    lengths = [int(found[key].removeprefix("varchar(")[:-1]) for key in keys]
    assert found["v"] == "longtext"
    assert sum(4 * length + 3 for length in lengths) + 9 <= INDEX_BYTES
    assert min(lengths) >= 70


@pytest.mark.parametrize(
    ("declare", "error", "messages"),
    [
        (lambda: declared(database="oracle"), DefinitionError, ["sql_table(database='oracle'): there is no sink to it", "'sqlite'"]),
        (lambda: declared(database="postgres"), DefinitionError, ["has a sink of its own", "tm.postgres("]),
        (lambda: declared(database=None), DefinitionError, ["there is no sink to it"]),
        (lambda: declared(ROWS), ColumnError, ["MariaDB has no type for the values of column 'tags', MAP<STRING, INT>", "to_json(tags)"]),
        (lambda: declared(table="shop.orders"), DefinitionError, ["names no table", "'orders'"]),
        (lambda: declared(table="a`; DROP TABLE b; --"), DefinitionError, ["names no table"]),
        (lambda: declared(table="x" * 65), DefinitionError, ["at most 64"]),
        (lambda: declared(table="tidemark_epochs"), DefinitionError, ["name another table"]),
        (lambda: declared(database="sqlite", table="sqlite_master"), DefinitionError, ["SQLite keeps such names for itself"]),
        (lambda: declared(dsn_env=f"mariadb://u:{SECRET}@h/d"), DefinitionError, ["dsn_env='SHOP_DSN'"]),
        (lambda: declared(keys=["k"]), DefinitionError, ["neither an append nor an upsert"]),
        (lambda: declared(mode="merge"), DefinitionError, ["neither an append nor an upsert"]),
        (lambda: declared(mode="upsert"), DefinitionError, ["sql_table(mode='upsert')", "keys=["]),
        (lambda: declared(mode="upsert", keys=["x"]), ColumnError, ["unknown column 'x'"]),
        (lambda: declared(LOG, mode="upsert", keys=["v"]), DefinitionError, ["key of the changelog"]),
        (lambda: declared(LOG, with_epoch=True), DefinitionError, ["has the epoch already"]),
        (lambda: declared(mode="upsert", keys=["k"], with_epoch=True), DefinitionError, ["keeps only the newest rows"]),
        (lambda: declared(PLAIN.with_columns(rowid="v"), database="sqlite"), ColumnError, ["'rowid' of their own"]),
        (lambda: declared(PLAIN.with_columns(**{"x" * 65: "v"})), ColumnError, ["more than 64 characters"]),
        (lambda: declared(LOG.with_columns(epoch="v")), ColumnError, ["adds a column 'epoch'"]),
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


@pytest.mark.parametrize("database", ["mariadb", "mysql", "sqlite"])
def test_a_job_knows_its_place_and_guarantee(database: str) -> None:
    kind = cast("SqlDatabase", database)
    output = declared(LOG, database=database, table="orders", mode="upsert")
    assert output.sink == SqlTableSpec(SqlTable("DSN", "", "orders", kind), "upsert", ("k",))
    assert SqlTable.of_location(f"{database}://DSN/orders") == SqlTable("DSN", "", "orders", kind)
    job = tm.Job("shop", {"orders": output})
    assert f"{database} orders by DSN, upsert by k, exactly once, the newest row of each key" in job.explain()
    with pytest.raises(DefinitionError, match="both write to one place"):
        tm.Job("shop", {"orders": output, "again": declared(database=database, table="orders")})


def test_a_fork_writes_to_a_table_of_its_own() -> None:
    job = tm.Job("shop", {"orders": declared(table="orders")})
    names = set()
    for fork in ("try", "try-1", "try.1", "x" * 90):
        sink = redirect_outputs(job, name=fork, root="/forks").outputs["orders"].sink
        assert isinstance(sink, SqlTableSpec)
        assert len(sink.table.name) <= 64
        assert SqlTable.of_location(sink.location) == sink.table
        names.add(sink.table.name)
    assert len(names) == 4
    assert "try_orders" in names
    assert "orders" not in names


def test_another_place_is_no_table() -> None:
    with pytest.raises(SinkError, match="no table of MariaDB, MySQL or SQLite"):
        SqlTable.of_location("/lake/orders")


def test_a_definition_loads_no_driver() -> None:
    code = (
        "import sys, tidemark as tm\n"
        "rows = tm.source('rows', tm.files('x', format='json', schema='k STRING'), watermarks=tm.ingestion_time())\n"
        "tm.Job('j', {'o': tm.sql_table(rows, database='mariadb', table='o', dsn_env='DSN')})\n"
        "print([name for name in ('pymysql', 'pyspark') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
