"""What the user may not do is said before an epoch is committed; a table without rows is no table with rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres.rig import VARIABLE, Rig, struct
from tests.postgres.server import NEEDS_POSTGRES, Server
from tests.postgres.test_publication import rows
from tidemark.errors import SinkError
from tidemark.savepoints.postgres.dialect import POSTGRES
from tidemark.savepoints.postgres.session import transaction

pytestmark = NEEDS_POSTGRES

COLUMNS = {"k": "string", "v": "long"}


@pytest.fixture
def limited(server: Server, schema: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A user who sees the schema, and may do nothing in it; the variable that sinks read has its connection string."""
    role = f"{schema}_w"
    server.query(f"CREATE ROLE {role} LOGIN PASSWORD 'writes-only'")
    server.query(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    server.query("REVOKE TEMPORARY ON DATABASE postgres FROM PUBLIC")
    monkeypatch.setenv(VARIABLE, server.dsn(password="writes-only").replace("//writer:", f"//{role}:"))  # noqa: S106
    try:
        yield role
    finally:
        server.query("GRANT TEMPORARY ON DATABASE postgres TO PUBLIC")


def lacks(rig: Rig) -> set[str]:
    """Return what the user is said to lack."""
    with pytest.raises(SinkError, match=r"the user of SHOP_DSN lacks what output 'orders' needs: .*Fix: GRANT") as raised:
        rig.open().check(struct(COLUMNS))
    return set(raised.value.what.split("needs: ")[1].replace(", to create", " to create").split(", "))


def test_what_an_upsert_needs(server: Server, schema: str, tmp_path: Path, limited: str) -> None:
    rig, table, epochs = Rig(tmp_path, schema), f"{schema}.orders", f"{schema}.tidemark_epochs"
    creates = f"CREATE on the schema {schema} to create"
    assert lacks(rig) == {"TEMPORARY on the database", f"{creates} {table} and {epochs}"}
    server.query(f"GRANT TEMPORARY ON DATABASE postgres TO {limited}")
    server.query(f"CREATE TABLE {table} (k text PRIMARY KEY, v bigint, note text)")
    on_table = {f"{each} on the table {table}" for each in ("INSERT", "SELECT", "UPDATE")}
    assert lacks(rig) == {f"{creates} {epochs}", *on_table}
    server.query(
        f"CREATE TABLE {epochs} (job text, lineage text, output text, epoch bigint, table_name text, mode text, term bigint, rows bigint, "
        "kept bigint, published_at timestamptz DEFAULT now(), PRIMARY KEY (job, lineage, output, epoch))"
    )
    # Not readable, so it is not known whether the table is the output's own.
    with pytest.raises(SinkError, match=r"permission denied for table tidemark_epochs.*Fix: give the user"):
        rig.open().check(struct(COLUMNS))
    server.query(f"GRANT SELECT ON {epochs} TO {limited}")
    assert lacks(rig) == {*(f"{each} on the table {epochs}" for each in ("INSERT", "UPDATE", "DELETE")), *on_table}
    server.query(f"GRANT ALL ON {epochs} TO {limited}")
    server.query(f"GRANT INSERT (k, v), SELECT (k, v), UPDATE (v) ON {table} TO {limited}")
    rig.open().check(struct(COLUMNS))
    rig.publish(0, [{"k": "a", "v": 1}])
    rig.publish(1, [{"k": "a", "v": 2}])
    assert rows(server, schema) == [("a", 2)]
    with transaction(rig.table) as session:
        assert [each.grant for each in POSTGRES.may_delete(session, rig.table)] == [f"GRANT DELETE ON {table} TO ..."]


def test_a_table_of_others_without_rows(server: Server, schema: str, tmp_path: Path, limited: str) -> None:
    rig, table = Rig(tmp_path, schema), f"{schema}.orders"
    server.query(f"CREATE TABLE {table} (k text PRIMARY KEY, v bigint)")
    for grant in ("", f"GRANT SELECT ON {table} TO {limited}"):
        if grant:
            server.query(grant)
        assert rig.open().occupancy == "empty"
    server.query(f"INSERT INTO {table} VALUES ('a', 1)")
    assert rig.open().occupancy == "taken"
    server.query(f"REVOKE SELECT ON {table} FROM {limited}")
    assert rig.open().occupancy == "taken"
