"""The password of a connection string is in no file of the job store, no log, no status, no error."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import tidemark as tm
from tests.database_server import HOST
from tests.postgres.rig import LINEAGE, VARIABLE, Rig, struct
from tests.postgres.server import NEEDS_POSTGRES, SECRET, Server
from tidemark.cli.program.main import main
from tidemark.errors import PublishError, SetupError, SinkError, StoreError, TidemarkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = NEEDS_POSTGRES

ROWS = {"k": "string", "v": "long"}


def connection_strings(server: Server) -> dict[str, str]:
    """Return strings that have the password and do not lead to the server."""
    return {
        "another password": server.dsn(password=f"wrong-{SECRET}"),
        "no such host": f"postgresql://writer:{SECRET}@nowhere.invalid/shop?connect_timeout=2",
        "a port where nobody listens": f"postgresql://writer:{SECRET}@{HOST}:1/shop?connect_timeout=2",
        "no such database": server.dsn().replace("/postgres?", f"/{SECRET}?"),
        "an unknown option": f"{server.dsn()}&{SECRET}=1",
        "no value": f"host={HOST} {SECRET}",
        "a quote left open": f"host={HOST} password='{SECRET}",
        "no string of Postgres": SECRET,
        "a file as certificate": f"{server.dsn()}&sslmode=verify-full&sslpassword={SECRET}&sslrootcert=/nowhere",
        "encoded": server.dsn(password=f"%2B{SECRET}%2F"),
    }


@pytest.mark.parametrize("which", sorted(connection_strings(Server(Path(), 0))))
def test_no_error_shows_it(server: Server, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    rig = Rig(tmp_path, schema, "append")
    record = rig.stage(0, [{"k": "a", "v": 1}])
    monkeypatch.setenv(VARIABLE, connection_strings(server)[which])
    calls: list[Callable[[], object]] = [
        rig.sink.require_whole,
        lambda: rig.sink.check(struct(ROWS)),
        lambda: rig.sink.occupancy,
        lambda: rig.sink.create(struct(ROWS)),
        lambda: rig.sink.newest(LINEAGE),
        lambda: rig.sink.publish(record, LINEAGE, 0),
    ]
    for call in calls:
        with pytest.raises((SinkError, StoreError, PublishError)) as raised:
            call()
        assert "Fix: " in str(raised.value)
        assert SECRET not in "".join(traceback.format_exception(raised.value))
        assert SECRET not in repr(raised.value.__dict__)


def test_a_variable_that_is_not_set(schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(SinkError, match=r"environment variable SHOP_DSN.* is not set.*Fix: set SHOP_DSN where this process runs"):
        Rig(tmp_path, schema).sink.require_whole()


def test_without_psycopg(schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(SetupError, match=r"psycopg is not installed.*Fix: run pip install -e '.\[postgres\]'"):
        Rig(tmp_path, schema).sink.require_whole()


@pytest.mark.spark
def test_nothing_that_a_job_leaves_shows_it(
    spark: SparkSession, server: Server, schema: str, tmp_path: Path, *, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    rows = tm.source(
        "rows", tm.from_elements(epochs=[[{"v": 1, "t": 1}]] * 3, schema="v INT, t BIGINT"), watermarks=tm.ascending(timestamp="t")
    )
    output = tm.postgres(rows, table=f"{schema}.rows", dsn_env=VARIABLE)
    job = tm.Job("secretive", {"rows": output}, store=str(tmp_path / "store"))
    tm.run(job, spark=spark, max_epochs=2)
    tm.savepoints_of(job).take("kept")
    monkeypatch.setenv(VARIABLE, server.dsn(password=f"wrong-{SECRET}"))
    with pytest.raises(TidemarkError) as raised:
        tm.run(job, spark=spark)
    said = ["".join(traceback.format_exception(raised.value)), caplog.text, job.explain(), repr(job)]
    for words in (["status", "secretive"], ["status", "secretive", "--json"], ["history", "secretive"], ["savepoint", "list", "secretive"]):
        shown = CliRunner().invoke(main, [*words, "--store", str(tmp_path / "store")])
        assert shown.exit_code in (0, 1), shown.output
        said.append(shown.output)
    assert any(f"postgres://{VARIABLE}/{schema}.rows" in text for text in said)
    assert all(SECRET not in text for text in said)
    files = [Path(folder, name) for folder, _, names in os.walk(tmp_path) for name in names]
    assert any(path.name == "status.json" for path in files)
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
