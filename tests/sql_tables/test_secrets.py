"""The password of a connection string is in no file of the job store, no log, no status, no error."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pymysql
import pytest
from click.testing import CliRunner

import tidemark as tm
from tests.database_server import HOST
from tests.postgres.rig import struct
from tests.sql_tables.place import MariadbPlace, Place
from tests.sql_tables.rig import LINEAGE, VARIABLE, SqlRig
from tests.sql_tables.server import NEEDS_MARIADB, SECRET, MariadbServer
from tidemark.cli.program.main import main
from tidemark.errors import PublishError, SetupError, SinkError, StoreError, TidemarkError
from tidemark.graph.connectors.sql_table.node import SqlTable
from tidemark.savepoints.database.session import DatabaseError
from tidemark.savepoints.sql_table.mariadb_session import transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = {"k": "string", "v": "long"}


def connection_strings(server: MariadbServer) -> dict[str, str]:
    """Return strings that have the password and do not lead to the server's database."""
    return {
        "another password": server.dsn("admin", password=f"wrong-{SECRET}"),
        "encoded": server.dsn("admin", password=f"%2B{SECRET}%2F"),
        "no such host": f"mariadb://writer:{SECRET}@nowhere.invalid/shop?connect_timeout=2",
        "a port where nobody listens": server.dsn("admin", port=1),
        "no such database": server.dsn(SECRET),
        "an unknown option": f"{server.dsn('admin')}&{SECRET}=1",
        "an option of another type": f"mariadb://writer:{SECRET}@{HOST}/shop?connect_timeout={SECRET}",
        "a port that is none": f"mariadb://writer:{SECRET}@{HOST}:{SECRET}/shop",
        "a flag that is none": f"{server.dsn('admin')}&ssl_verify_identity={SECRET}",
        "a certificate that is not there": f"{server.dsn('admin')}&ssl_ca=/nowhere",
        "no database": f"mariadb://writer:{SECRET}@{HOST}",
        "another scheme": f"postgresql://writer:{SECRET}@{HOST}/shop",
        "no address": SECRET,
    }


@NEEDS_MARIADB
@pytest.mark.parametrize("which", sorted(connection_strings(MariadbServer(Path(), 0))))
def test_no_error_shows_it(mariadb: MariadbPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    rig = SqlRig(tmp_path, "mariadb", "append")
    record = rig.stage(0, [{"k": "a", "v": 1}])
    monkeypatch.setenv(VARIABLE, connection_strings(mariadb.server)[which])
    all_refuse(rig, [lambda: rig.sink.publish(record, LINEAGE, 0)])


@pytest.mark.parametrize("text", [SECRET, f"sqlite://{SECRET}.db", f"sqlite:///{SECRET}.db?mode=ro", f"sqlite:////nowhere/{SECRET}.db"])
def test_no_error_shows_the_name_of_a_file(sqlite: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    assert sqlite.query("SELECT 1") == [(1,)]
    monkeypatch.setenv(VARIABLE, text)
    all_refuse(SqlRig(tmp_path, "sqlite", "append"), [])


def all_refuse(rig: SqlRig, more: list[Callable[[], object]]) -> None:
    calls: list[Callable[[], object]] = [
        rig.sink.require_whole,
        lambda: rig.sink.check(struct(ROWS)),
        lambda: rig.sink.occupancy,
        lambda: rig.sink.create(struct(ROWS)),
        lambda: rig.sink.newest(LINEAGE),
        *more,
    ]
    for call in calls:
        with pytest.raises((SinkError, StoreError, PublishError)) as raised:
            call()
        assert "Fix: " in str(raised.value)
        assert SECRET not in "".join(traceback.format_exception(raised.value))
        assert SECRET not in repr(raised.value.__dict__)


def test_a_variable_that_is_not_set(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(SinkError, match=r"environment variable SHOP_DSN.* is not set.*Fix: set SHOP_DSN where this process runs"):
        SqlRig(tmp_path, place.database).sink.require_whole()


def test_without_pymysql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "mariadb://u:p@127.0.0.1/shop")
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(SetupError, match=r"pymysql is not installed.*Fix: run pip install -e '.\[mariadb\]'"):
        SqlRig(tmp_path, "mariadb").sink.require_whole()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"Duplicate entry '{SECRET}\n{SECRET}' for key 'k'", "Duplicate entry for key 'k'"),
        (f"Truncated incorrect INTEGER value: '{SECRET}'", "Truncated incorrect INTEGER value:"),
        (f"Incorrect date value: '{SECRET}' for column 'd'", "Incorrect date value: for column 'd'"),
    ],
)
def test_no_error_of_a_server_shows_a_value(monkeypatch: pytest.MonkeyPatch, text: str, shown: str) -> None:
    def connect(**_: object) -> None:
        raise pymysql.err.DataError(1292, text)

    monkeypatch.setattr(pymysql, "connect", connect)
    monkeypatch.setenv(VARIABLE, "mariadb://u:p4ssw0rd@127.0.0.1/shop")
    with pytest.raises(DatabaseError) as raised, transaction(SqlTable(VARIABLE, "", "orders", "mariadb"), ""):
        pass
    assert raised.value.what == shown


@NEEDS_MARIADB
@pytest.mark.spark
def test_nothing_that_a_job_leaves_shows_it(
    spark: SparkSession, mariadb: MariadbPlace, tmp_path: Path, *, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    rows = tm.source(
        "rows", tm.from_elements(epochs=[[{"v": 1, "t": 1}]] * 3, schema="v INT, t BIGINT"), watermarks=tm.ascending(timestamp="t")
    )
    output = tm.sql_table(rows, database="mariadb", table="seen", dsn_env=VARIABLE)
    job = tm.Job("secretive", {"rows": output}, store=str(tmp_path / "store"))
    tm.run(job, spark=spark, max_epochs=2)
    tm.savepoints_of(job).take("kept")
    monkeypatch.setenv(VARIABLE, mariadb.server.dsn(mariadb.name, password=f"wrong-{SECRET}"))
    with pytest.raises(TidemarkError) as raised:
        tm.run(job, spark=spark)
    said = ["".join(traceback.format_exception(raised.value)), caplog.text, job.explain(), repr(job)]
    for words in (["status", "secretive"], ["status", "secretive", "--json"], ["history", "secretive"], ["savepoint", "list", "secretive"]):
        shown = CliRunner().invoke(main, [*words, "--store", str(tmp_path / "store")])
        assert shown.exit_code in (0, 1), shown.output
        said.append(shown.output)
    assert any(f"mariadb://{VARIABLE}/seen" in text for text in said)
    assert all(SECRET not in text for text in said)
    files = [Path(folder, name) for folder, _, names in os.walk(tmp_path) for name in names]
    assert any(path.name == "status.json" for path in files)
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
