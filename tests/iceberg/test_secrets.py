"""What is secret in a catalog's configuration is in no file of the job store, no log, no status, no error."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.iceberg.rig import LINEAGE, Lake, Rig, struct
from tidemark.errors import PublishError, SetupError, SinkError, StoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = "s3cr3t-marker"  # noqa: S105 - made up
ROWS = {"k": "string", "v": "long"}
CATALOGS = {
    "a database that nobody listens for": {"TYPE": "sql", "URI": f"postgresql+psycopg2://writer:{SECRET}@127.0.0.1:1/catalog"},
    "no address": {"TYPE": "sql", "URI": f"nothing at all {SECRET}", "TOKEN": SECRET},
    "a server that nobody listens for": {"TYPE": "rest", "URI": "http://127.0.0.1:1", "CREDENTIAL": f"me:{SECRET}", "TOKEN": SECRET},
    "a server with a password": {"TYPE": "rest", "URI": f"http://me:{SECRET}@127.0.0.1:1/?token={SECRET}"},
    "no kind of catalog": {"TYPE": SECRET, "S3__SECRET_ACCESS_KEY": SECRET},
}


@pytest.mark.parametrize("which", sorted(CATALOGS))
def test_no_error_shows_it(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    rig = Rig(tmp_path)
    record = rig.stage(0, [{"k": "a", "v": 1}])
    for name in lake.variables:
        monkeypatch.delenv(name)
    for name, value in CATALOGS[which].items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name}", value)
    sink = rig.open()
    calls: list[Callable[[], object]] = [
        sink.require_whole,
        lambda: sink.check(struct(ROWS)),
        lambda: sink.create(struct(ROWS)),
        lambda: sink.newest(LINEAGE),
        lambda: sink.publish(record, LINEAGE, 0),
    ]
    for call in calls:
        with pytest.raises((SinkError, StoreError, PublishError)) as raised:
            call()
        assert "Fix: " in str(raised.value)
        assert SECRET not in "".join(traceback.format_exception(raised.value))
        assert SECRET not in repr(raised.value.__dict__)


def test_settings_that_a_file_nests(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in lake.variables:
        monkeypatch.delenv(name)
    lines = [
        "catalog:",
        "  lake:",
        "    type: rest",
        f"    uri: http://127.0.0.1:1/{SECRET}",
        "    auth:",
        "      type: basic",
        "      basic:",
        "        username: me",
        f"        password: {SECRET}",
    ]
    (tmp_path / ".pyiceberg.yaml").write_text("\n".join(lines))
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    with pytest.raises(StoreError, match="Connection") as raised:
        Rig(tmp_path).sink.require_whole()
    assert SECRET not in "".join(traceback.format_exception(raised.value))


def test_a_catalog_that_is_not_configured(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in lake.variables:
        monkeypatch.delenv(name)
    with pytest.raises(SinkError, match=r"has no catalog 'lake'.*Fix: set PYICEBERG_CATALOG__LAKE__TYPE"):
        Rig(tmp_path).sink.require_whole()


def test_without_pyiceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg.utils.config", None)
    with pytest.raises(SetupError, match=r"pyiceberg is not installed.*Fix: run pip install -e '\.\[iceberg\]' in the checkout"):
        Rig(tmp_path).sink.require_whole()


@pytest.mark.spark
def test_nothing_that_a_job_leaves_shows_it(
    spark: SparkSession, lake: Lake, tmp_path: Path, *, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("TOKEN", "S3__SECRET_ACCESS_KEY", "CREDENTIAL"):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name}", f"{name}:{SECRET}")
    rows = tm.source(
        "rows", tm.from_elements(epochs=[[{"v": 1, "t": 1}]] * 2, schema="v INT, t BIGINT"), watermarks=tm.ascending(timestamp="t")
    )
    job = tm.Job("secretive", {"rows": tm.iceberg(rows, table="shop.rows", catalog="lake")}, store=str(tmp_path / "store"))
    tm.run(job, spark=spark, max_epochs=1)
    tm.savepoints_of(job).take("kept")
    tm.run(job, spark=spark)
    assert lake.rows("rows", ["v"]) == [(1,), (1,)]
    said = [caplog.text, job.explain(), repr(job)]
    assert "iceberg shop.rows in catalog lake, exactly once" in job.explain()
    assert all(SECRET not in text for text in said)
    files = [Path(folder, name) for folder, _, names in os.walk(tmp_path) for name in names]
    assert any(path.name == "status.json" for path in files)
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
