"""Tables that exist already, that get columns, that were lost; and what does not fit is refused with the fix."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.killed import kill_at
from tests.postgres.rig import LINEAGE, Rig, struct
from tests.postgres.server import NEEDS_POSTGRES, Server
from tests.postgres.test_publication import rows
from tidemark.errors import MissingEpochsError, SinkError
from tidemark.savepoints.delta.missing_records import Retained
from tidemark.state.encoding.codec import to_jsonable
from tidemark.state.log.records import SinkPosition

pytestmark = NEEDS_POSTGRES

ROWS = {"k": "string", "v": "long"}


def occupancy(rig: Rig) -> str:
    return rig.sink.occupancy


def test_a_table_of_its_own_gets_new_columns(server: Server, schema: str, tmp_path: Path) -> None:
    rig = Rig(tmp_path, schema)
    rig.publish(0, [{"k": "a", "v": 1}, {"k": "b", "v": 2}])
    rig.columns = {**ROWS, "at": "timestamp"}
    rig.sink.check(struct(rig.columns))
    assert "at" not in columns(server, schema)
    rig.publish(1, [{"k": "a", "v": 3, "at": None}])
    assert columns(server, schema)["at"] == "timestamp with time zone"
    rig.columns = {"k": "string", "n": "integer"}
    rig.sink.check(struct(rig.columns))
    rig.publish(2, [{"k": "c", "n": 5}])
    assert rows(server, schema, "k, v, n") == [("a", 3, None), ("b", 2, None), ("c", None, 5)]
    rig.columns = {"k": "string", "v": "string"}
    with pytest.raises(SinkError, match=r"column 'v' is text in the output and bigint in the table, whose types stay.*Fix: cast it"):
        rig.sink.check(struct(rig.columns))


@pytest.mark.crash
def test_a_column_comes_with_its_rows(server: Server, schema: str, tmp_path: Path) -> None:
    rig = Rig(tmp_path, schema)
    rig.publish(0, [{"k": "a", "v": 1}])
    rig.columns = {**ROWS, "n": "long"}
    record = rig.stage(1, [{"k": "a", "v": 1, "n": 2}])
    args = [str(tmp_path), schema, "1", json.dumps(to_jsonable(record))]
    kill_at("tests.postgres.rig:publish_staged", "database-applied", args)
    assert "n" not in columns(server, schema)
    rig.sink.publish(record, LINEAGE, 1)
    assert rows(server, schema, "k, v, n") == [("a", 1, 2)]


@pytest.mark.parametrize(
    "case",
    [
        ("k text, UNIQUE NULLS NOT DISTINCT (k)", "the table lacks column 'v' (bigint)", 'ADD COLUMN "v" bigint'),
        ("k text, v bigint", "no unique index on k", "NULLS NOT DISTINCT"),
        ("k text UNIQUE, v bigint", "no unique index on k that takes nulls as equal", "CREATE UNIQUE INDEX ON"),
        ("k text PRIMARY KEY, v integer", "column 'v' is bigint in the output and integer in the table", "change the table's column"),
        ('k text PRIMARY KEY, "V" bigint', "column 'v' is spelled 'V' in the table", "spell it 'V'"),
        ("k text PRIMARY KEY, v bigint, x text NOT NULL", "the output lacks column 'x', which is NOT NULL", "DROP NOT NULL"),
        ("k text PRIMARY KEY, v bigint GENERATED ALWAYS AS (1) STORED", "column 'v' of the table is computed", "leave it out"),
        ("k text PRIMARY KEY, v bigint GENERATED ALWAYS AS IDENTITY", "column 'v' of the table is computed", "leave it out"),
        ("k text, v bigint, n int, UNIQUE NULLS NOT DISTINCT (k, n)", "no unique index on k", "upsert by the table's key"),
    ],
)
def test_a_table_that_does_not_fit(server: Server, schema: str, tmp_path: Path, case: tuple[str, str, str]) -> None:
    table, what, fix = case
    server.query(f"CREATE TABLE {schema}.orders ({table})")
    with pytest.raises(SinkError) as raised:
        Rig(tmp_path, schema).sink.check(struct(ROWS))
    assert what in str(raised.value)
    assert fix in str(raised.value).partition("Fix: ")[2]
    assert f"the table at postgres://SHOP_DSN/{schema}.orders" in str(raised.value)


@pytest.mark.parametrize(
    "table",
    ["k text COLLATE {}, v bigint, PRIMARY KEY (k)", "k text PRIMARY KEY, v bigint); CREATE UNIQUE INDEX ON {1}.orders (k COLLATE {0}"],
)
def test_a_key_that_takes_texts_for_equal_that_differ(server: Server, schema: str, tmp_path: Path, table: str) -> None:
    collation = f"{schema}.without_case"
    server.query(f"CREATE COLLATION {collation} (provider=icu, locale='und-u-ks-level2', deterministic=false)")
    server.query(f"CREATE TABLE {schema}.orders ({table.format(collation, schema)})")
    with pytest.raises(SinkError, match="the unique index on k takes texts for equal that differ"):
        Rig(tmp_path, schema).sink.check(struct(ROWS))


def test_a_column_beside_a_key_may_have_any_collation(server: Server, schema: str, tmp_path: Path) -> None:
    server.query(f"CREATE COLLATION {schema}.without_case (provider=icu, locale='und-u-ks-level2', deterministic=false)")
    key = "UNIQUE NULLS NOT DISTINCT (k) INCLUDE (n)"
    server.query(f"CREATE TABLE {schema}.orders (k text, v bigint, n text COLLATE {schema}.without_case, {key})")
    Rig(tmp_path, schema).sink.check(struct(ROWS))


def test_the_fix_of_an_error_helps(server: Server, schema: str, tmp_path: Path) -> None:
    server.query(f"CREATE TABLE {schema}.orders (k text)")
    rig = Rig(tmp_path, schema)
    for _ in range(2):
        with pytest.raises(SinkError) as raised:
            rig.sink.check(struct(ROWS))
        fixes = str(raised.value).partition("Fix: ")[2]
        for statement in re.findall(r"(?:ALTER TABLE|CREATE UNIQUE INDEX)[^,·]*", fixes):
            server.query(statement)
        if "CREATE UNIQUE INDEX" in fixes:
            break
    rig.sink.check(struct(ROWS))
    rig.publish(0, [{"k": None, "v": 1}])
    rig.publish(1, [{"k": None, "v": 2}])
    assert rows(server, schema) == [(None, 2)]


def test_a_view_is_refused(server: Server, schema: str, tmp_path: Path) -> None:
    server.query(f"CREATE VIEW {schema}.orders AS SELECT 'a'::text AS k, 1::bigint AS v")
    with pytest.raises(SinkError, match=r"orders is no table.*Fix: name a table"):
        Rig(tmp_path, schema).sink.check(struct(ROWS))


def test_a_table_of_others_that_fits(server: Server, schema: str, tmp_path: Path) -> None:
    server.query(
        f"CREATE TABLE {schema}.orders (id bigserial, v numeric, k varchar PRIMARY KEY, made timestamptz NOT NULL DEFAULT now(), note text)"
    )
    server.query(f"INSERT INTO {schema}.orders (k, v, note) VALUES ('a', 0.5, 'of another'), ('z', 1, 'of another')")
    rig = Rig(tmp_path, schema)
    rig.sink.check(struct(ROWS))
    rig.publish(0, [{"k": "a", "v": 1}, {"k": "b", "v": 2}])
    assert rows(server, schema, "k, v::int, note") == [("a", 1, "of another"), ("b", 2, None), ("z", 1, "of another")]
    assert occupancy(rig) == "taken"


def test_an_identity_that_takes_values_is_written(server: Server, schema: str, tmp_path: Path) -> None:
    server.query(f"CREATE TABLE {schema}.orders (k text PRIMARY KEY, v bigint GENERATED BY DEFAULT AS IDENTITY, n serial)")
    server.query(f"ALTER TABLE {schema}.orders ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY")
    rig = Rig(tmp_path, schema)
    rig.sink.check(struct(ROWS))
    rig.publish(0, [{"k": "a", "v": 7}])
    rig.publish(1, [{"k": "a", "v": 8}])
    assert rows(server, schema, "k, v, id") == [("a", 8, 1)]


def test_a_table_without_rows_gets_the_columns_of_changed_code(server: Server, schema: str, tmp_path: Path) -> None:
    rig = Rig(tmp_path, schema)
    assert occupancy(rig) == "missing"
    rig.sink.create(struct(ROWS))
    assert occupancy(rig) == "empty"
    rig.sink.create(struct({"k": "string", "v": "string"}))
    assert columns(server, schema) == {"k": "text", "v": "text"}
    rig.sink.check(struct({"k": "string", "w": "long"}))
    assert columns(server, schema) == {"k": "text", "w": "bigint"}
    server.query(f"INSERT INTO {schema}.orders VALUES ('by hand', 1)")
    assert occupancy(rig) == "taken"
    rig.sink.create(struct({"k": "string", "v": "string"}))
    assert columns(server, schema) == {"k": "text", "w": "bigint"}


def test_a_schema_that_does_not_exist(schema: str, tmp_path: Path) -> None:
    rig = Rig(tmp_path, f"{schema}_not")
    assert occupancy(rig) == "missing"
    with pytest.raises(SinkError, match=r"does not exist.*Fix: .*create the schema"):
        rig.sink.create(struct(ROWS))


def test_a_table_that_was_deleted(server: Server, schema: str, tmp_path: Path) -> None:
    rig = Rig(tmp_path, schema, "append")
    rig.publish(0, [{"k": "a", "v": 1}])
    known = rig.sink.position
    server.query(f"DROP TABLE {schema}.orders")
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
    assert rows(server, schema) == [("b", 2)]


def test_a_backup_that_lacks_epochs(server: Server, schema: str, tmp_path: Path) -> None:
    rig = Rig(tmp_path, schema, "append")
    for epoch in range(3):
        rig.publish(epoch, [{"k": "a", "v": epoch}])
    server.query(f"DELETE FROM {schema}.orders WHERE v > 0")
    server.query(f"DELETE FROM {schema}.tidemark_epochs WHERE epoch > 0")
    again = rig.open(before=SinkPosition("x", lineage=LINEAGE, epoch=1))
    with pytest.raises(MissingEpochsError, match="its newest epoch is 0"):
        again.require_whole()
    again.adopt()
    again.require_whole()
    position = again.position
    assert position is not None
    assert (position.lineage, position.epoch) == (LINEAGE, 0)


def columns(server: Server, schema: str) -> dict[str, str]:
    query = "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = %s AND table_name = 'orders'"
    return dict(server.query(query, schema))
