"""What a driver says of a store on S3 where its Spark session has no connector, as none has that nobody gave one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tidemark.errors import SetupError
from tidemark.spark.env.file_systems import readable, require_file_systems
from tidemark.spark.loop.run import run
from tidemark.state.log.joblog import JobLog
from tidemark.state.status.status import read_status
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def make_job(folder: Path, *, source: str = "", table: str = "") -> tm.Job:
    spec = tm.files(source or str(folder), format="json", schema="zone INT, at TIMESTAMP")
    trips = tm.source("trips", spec, watermarks=tm.bounded_out_of_orderness("5 minutes", timestamp="at"))
    return tm.Job("trips", outputs={"all": tm.delta(trips, table or str(folder / "table"))})


def test_a_session_without_a_connector_is_told_so_before_anything_is_read(tmp_path: Path, root: JobStore, spark: SparkSession) -> None:
    with pytest.raises(SetupError, match=r"Spark has no file system for s3a://.* nor write s3a://lake-") as caught:
        run(make_job(tmp_path), store=root.uri, spark=spark)
    version = spark.sparkContext._jvm.org.apache.hadoop.util.VersionInfo.getVersion()  # type: ignore[union-attr]  # noqa: SLF001
    assert f"org.apache.hadoop:hadoop-aws:{version}" in caught.value.fix
    status = read_status(root, "trips")
    assert status is not None
    assert (status.state, status.error_code) == ("failed", "TM600")
    assert not JobLog(root.at("trips"), "trips").is_driven()


@pytest.mark.parametrize("given", [{"source": "s3://lake/in/*.json"}, {"table": "s3://lake/table"}])
def test_places_of_sources_and_outputs_are_looked_at_too(tmp_path: Path, spark: SparkSession, given: dict[str, str]) -> None:
    local = JobStore.open(str(tmp_path / "store")).location
    with pytest.raises(SetupError, match="Spark has no file system for s3a://"):
        require_file_systems(spark, make_job(tmp_path, **given), local)
    require_file_systems(spark, make_job(tmp_path), local)


def test_a_source_is_read_by_the_name_that_the_session_knows(spark: SparkSession) -> None:
    assert readable(spark, "s3://lake/in/*.json") == "s3a://lake/in/*.json"
    assert [readable(spark, path) for path in ("/in", "file:///in", "s3a://lake/in")] == ["/in", "file:///in", "s3a://lake/in"]
    conf = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    conf.set("fs.s3.impl", "org.apache.hadoop.fs.LocalFileSystem")
    try:
        assert readable(spark, "s3://lake/in") == "s3://lake/in"
    finally:
        conf.unset("fs.s3.impl")
