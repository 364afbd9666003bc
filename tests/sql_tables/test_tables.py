"""Tables that exist already, that get columns, that were lost; and what does not fit is refused with the fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.database_server import HOST
from tests.postgres.rig import struct
from tests.sql_tables.place import MariadbPlace, Place, columns
from tests.sql_tables.rig import LINEAGE, VARIABLE, SqlRig
from tests.sql_tables.server import NEEDS_MARIADB, SECRET
from tests.sql_tables.test_publication import rows
from tidemark.errors import MissingEpochsError, SinkError
from tidemark.savepoints.delta.missing_records import Retained
from tidemark.state.log.records import SinkPosition

ROWS = {"k": "string", "v": "long"}
KEY = "k varchar(255) COLLATE utf8mb4_nopad_bin"


def occupancy(rig: SqlRig) -> str:
    return rig.sink.occupancy


def test_a_table_of_its_own_gets_new_columns(place: Place, tmp_path: Path) -> None:
    rig = SqlRig(tmp_path, place.database)
    rig.publish(0, [{"k": "a", "v": 1}, {"k": "b", "v": 2}])
    rig.columns = {**ROWS, "at": "timestamp"}
    rig.sink.check(struct(rig.columns))
    assert "at" not in columns(place)
    rig.publish(1, [{"k": "a", "v": 3, "at": None}])
    assert columns(place)["at"] == {"mariadb": "datetime(6)", "sqlite": "TEXT"}[place.database]
    rig.columns = {"k": "string", "n": "integer"}
    rig.sink.check(struct(rig.columns))
    rig.publish(2, [{"k": "c", "n": 5}])
    assert rows(place, "k, v, n") == [("a", 3, None), ("b", 2, None), ("c", None, 5)]
    rig.columns = {"k": "string", "v": "string"}
    with pytest.raises(
        SinkError, match=r"column 'v' is (longtext|TEXT) in the output and \w+ in the table, whose types stay.*Fix: cast it"
    ):
        rig.sink.check(struct(rig.columns))


@NEEDS_MARIADB
@pytest.mark.parametrize(
    "case",
    [
        (f"{KEY} UNIQUE", "the table lacks column 'v' (bigint)", "ADD COLUMN `v` bigint"),
        (f"{KEY}, v bigint", "no unique index on k", "CREATE UNIQUE INDEX"),
        ("k varchar(255) COLLATE utf8mb4_general_ci UNIQUE, v bigint", "no unique index on k", "COLLATE utf8mb4_nopad_bin"),
        (f"{KEY} UNIQUE, v int", "column 'v' is bigint in the output and int in the table", "change the table's column"),
        (f"{KEY} UNIQUE, v bigint unsigned", "column 'v' is bigint in the output and bigint unsigned in the table", "change"),
        ("k varchar(255) CHARACTER SET latin1 COLLATE latin1_bin UNIQUE, v bigint", "varchar(255) of latin1 in the table", "change"),
        (f"{KEY} UNIQUE, V bigint", "column 'v' is spelled 'V' in the table", "spell it 'V'"),
        (f"{KEY} UNIQUE, v bigint, x text NOT NULL", "the output lacks column 'x', which is NOT NULL", "MODIFY `x` text NULL"),
        (f"{KEY} UNIQUE, v bigint GENERATED ALWAYS AS (1) STORED", "column 'v' of the table is computed", "leave it out"),
        (f"{KEY}, v bigint, n int, UNIQUE (k, n)", "no unique index on k", "upsert by the table's key"),
        (f"{KEY}, v bigint, UNIQUE (k(20))", "no unique index on k", "upsert by the table's key"),
        (f"{KEY} UNIQUE, v bigint) ENGINE = MyISAM -- ", "has the engine MyISAM, which has no transactions", "ENGINE = InnoDB"),
    ],
)
def test_a_table_of_mariadb_that_does_not_fit(mariadb: MariadbPlace, tmp_path: Path, case: tuple[str, str, str]) -> None:
    table, what, fix = case
    mariadb.query(f"CREATE TABLE orders ({table})" if "--" not in table else f"CREATE TABLE orders ({table}")
    refused(SqlRig(tmp_path, "mariadb"), what, fix)


@pytest.mark.parametrize(
    "case",
    [
        ("(k text UNIQUE)", "the table lacks column 'v' (INTEGER)", 'ADD COLUMN "v" INTEGER'),
        ("(k text, v bigint)", "no unique index on k", "CREATE UNIQUE INDEX"),
        ("(k text COLLATE NOCASE UNIQUE, v bigint)", "no unique index on k", "CREATE UNIQUE INDEX"),
        ("(k text UNIQUE, v text)", "column 'v' is INTEGER in the output and text in the table", "change the table's column"),
        ("(k numeric UNIQUE, v int)", "column 'k' is TEXT in the output and numeric in the table", "change the table's column"),
        ("(k text UNIQUE, V int)", "column 'v' is spelled 'V' in the table", "spell it 'V'"),
        ("(k text UNIQUE, v int, x text NOT NULL)", "the output lacks column 'x', which is NOT NULL", "a default"),
        ("(k text UNIQUE, v int GENERATED ALWAYS AS (1) STORED)", "column 'v' of the table is computed", "leave it out"),
        ("(k text PRIMARY KEY, v int) WITHOUT ROWID", "is a table WITHOUT ROWID", "make it without that"),
    ],
)
def test_a_table_of_sqlite_that_does_not_fit(sqlite: Place, tmp_path: Path, case: tuple[str, str, str]) -> None:
    table, what, fix = case
    sqlite.query(f"CREATE TABLE orders {table}")
    refused(SqlRig(tmp_path, "sqlite"), what, fix)


def refused(rig: SqlRig, what: str, fix: str) -> None:
    with pytest.raises(SinkError) as raised:
        rig.sink.check(struct(ROWS))
    # Of some releases of SQLite the names of types are in capital letters.
    assert what.lower() in str(raised.value).lower()
    assert fix in str(raised.value).partition("Fix: ")[2]
    assert f"the table at {rig.schema}://SHOP_DSN/orders" in str(raised.value)


def test_a_view_is_refused(place: Place, tmp_path: Path) -> None:
    place.query("CREATE VIEW orders AS SELECT 'a' AS k, 1 AS v")
    refused(SqlRig(tmp_path, place.database), "orders is no table", "name a table")


def test_a_table_of_others_that_fits(place: Place, tmp_path: Path) -> None:
    if place.database == "sqlite":
        place.query(
            "CREATE TABLE orders (id integer PRIMARY KEY, v numeric, k varchar(9) UNIQUE, made text NOT NULL DEFAULT 'now', note text)"
        )
    else:
        number = "id bigint AUTO_INCREMENT PRIMARY KEY"
        place.query(f"CREATE TABLE orders ({number}, v decimal(30, 1), {KEY} UNIQUE, made text NOT NULL DEFAULT 'now', note text)")
    place.query("INSERT INTO orders (k, v, note) VALUES ('a', 0.5, 'of another'), ('z', 1, 'of another')")
    rig = SqlRig(tmp_path, place.database)
    rig.sink.check(struct(ROWS))
    rig.publish(0, [{"k": "a", "v": 1}, {"k": "b", "v": 2}])
    found = [(k, int(v), note) for k, v, note in rows(place, "k, v, note")]
    assert found == [("a", 1, "of another"), ("b", 2, None), ("z", 1, "of another")]
    assert occupancy(rig) == "taken"


def test_a_table_without_rows_gets_the_columns_of_changed_code(place: Place, tmp_path: Path) -> None:
    rig = SqlRig(tmp_path, place.database)
    assert occupancy(rig) == "missing"
    rig.sink.create(struct(ROWS))
    assert occupancy(rig) == "empty"
    rig.sink.create(struct({"k": "string", "v": "string"}))
    assert columns(place)["v"] in ("longtext", "TEXT")
    rig.sink.check(struct({"k": "string", "w": "long"}))
    assert list(columns(place)) == ["k", "w"]
    place.query("INSERT INTO orders VALUES ('by hand', 1)")
    assert occupancy(rig) == "taken"
    rig.sink.create(struct({"k": "string", "v": "string"}))
    assert list(columns(place)) == ["k", "w"]


def test_a_table_that_was_deleted(place: Place, tmp_path: Path) -> None:
    rig = SqlRig(tmp_path, place.database, "append")
    rig.publish(0, [{"k": "a", "v": 1}])
    known = rig.sink.position
    place.query("DROP TABLE orders")
    record = rig.stage(1, [{"k": "b", "v": 2}])
    for sink in (rig.sink, rig.open(before=known)):
        with pytest.raises(MissingEpochsError, match="there is no table any more"):
            sink.require_whole()
        with pytest.raises(MissingEpochsError, match="there is no table any more"):
            sink.publish(record, LINEAGE, 1)
    with pytest.raises(MissingEpochsError, match="staged files were deleted after publication"):
        rig.sink.require_republishable(Retained((), complete=True))
    rig.sink.adopt()
    rig.sink.require_whole()
    rig.sink.publish(record, LINEAGE, 1)
    assert rows(place) == [("b", 2)]


def test_a_backup_that_lacks_epochs(place: Place, tmp_path: Path) -> None:
    rig = SqlRig(tmp_path, place.database, "append")
    for epoch in range(3):
        rig.publish(epoch, [{"k": "a", "v": epoch}])
    place.query("DELETE FROM orders WHERE v > 0")
    place.query("DELETE FROM tidemark_epochs WHERE epoch > 0")
    again = rig.open(before=SinkPosition("x", lineage=LINEAGE, epoch=1))
    with pytest.raises(MissingEpochsError, match="its newest epoch is 0"):
        again.require_whole()
    again.adopt()
    again.require_whole()
    position = again.position
    assert position is not None
    assert (position.lineage, position.epoch) == (LINEAGE, 0)


@NEEDS_MARIADB
@pytest.mark.parametrize("lacks", ["INSERT ON orders", "UPDATE ON orders", "DELETE ON tidemark_epochs", "CREATE TEMPORARY TABLES ON *"])
def test_what_the_user_of_mariadb_may_not_do_stops_the_job_before_the_commit(
    mariadb: MariadbPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    SqlRig(tmp_path, "mariadb").publish(0, [{"k": "a", "v": 1}])
    every = [f"{right} ON {table}" for table in ("orders", "tidemark_epochs") for right in ("SELECT", "INSERT", "UPDATE", "DELETE")]
    user = f"'few'@'{HOST}'"
    mariadb.query(f"CREATE OR REPLACE USER {user} IDENTIFIED BY '{SECRET}'")
    for grant in {*every, "CREATE TEMPORARY TABLES ON *"} - {lacks}:
        mariadb.query(f"GRANT {grant} TO {user}")
    monkeypatch.setenv(VARIABLE, mariadb.server.dsn(mariadb.name, user="few", password=SECRET))
    with pytest.raises(SinkError, match=r"denied.*Fix: give the user of the connection string the permissions"):
        SqlRig(tmp_path, "mariadb").sink.check(struct(ROWS))
    mariadb.query(f"GRANT {lacks} TO {user}")
    rig = SqlRig(tmp_path, "mariadb")
    rig.sink.check(struct(ROWS))
    rig.publish(1, [{"k": "a", "v": 2}], [{"k": "b", "v": 0}])
    assert rows(mariadb) == [("a", 2)]


@NEEDS_MARIADB
def test_a_server_that_is_not_the_declared_one(mariadb: MariadbPlace, tmp_path: Path) -> None:
    assert mariadb.query("SELECT 1") == [(1,)]
    with pytest.raises(SinkError, match=r"is MariaDB 10\.\S+, and the output is declared for MySQL 8.0.17 or later.*database='mariadb'"):
        SqlRig(tmp_path, "mysql").sink.check(struct(ROWS))


def test_keys_are_compared_as_the_unique_index_does_and_not_as_the_column(sqlite: Place, tmp_path: Path) -> None:
    sqlite.query("CREATE TABLE orders (k TEXT COLLATE NOCASE, v INTEGER)")
    sqlite.query("CREATE UNIQUE INDEX orders_key ON orders (k COLLATE BINARY)")
    rig = SqlRig(tmp_path, "sqlite")
    rig.sink.check(struct({"k": "string", "v": "long"}))
    rig.publish(0, [{"k": "A", "v": 1}])
    rig.publish(1, [{"k": "a", "v": 2}])
    assert sorted(sqlite.query("SELECT k, v FROM orders")) == [("A", 1), ("a", 2)]
