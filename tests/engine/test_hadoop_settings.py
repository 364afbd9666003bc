"""A session on this machine has all settings of Hadoop but YARN's defaults, which nobody reads there."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidemark.spark.env.hadoop_settings import leave_out_yarn
from tidemark.spark.env.session import build_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

THEIRS = ("yarn.acl.enable", "yarn.of.a.user")


def settings_of(spark: SparkSession) -> Any:
    return spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001


def sources(spark: SparkSession) -> set[str]:
    """Return where the settings are from."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    found = jvm.java.io.StringWriter()
    jvm.org.apache.hadoop.conf.Configuration.dumpConfiguration(settings_of(spark), found)
    return {setting["resource"] for setting in json.loads(found.toString())["properties"]}


def test_jobs_carry_no_defaults_of_yarn(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.parquet(str(tmp_path / "table"))
    assert spark.read.parquet(str(tmp_path / "table")).count() == 3
    there = sources(spark)
    assert {"core-default.xml", "mapred-default.xml"} <= there
    assert "yarn-default.xml" not in there


def test_what_users_set_stays(spark: SparkSession) -> None:
    settings = settings_of(spark)
    try:
        for name in THEIRS:
            settings.set(name, "true")
        leave_out_yarn(spark)
        assert [settings.get(name) for name in THEIRS] == ["true", "true"]
    finally:
        for name in THEIRS:
            settings.unset(name)


def test_defaults_that_users_refer_to_stay(spark: SparkSession) -> None:
    settings = settings_of(spark)
    given = {
        "address.of.a.user": "http://${yarn.resourcemanager.hostname}:1",
        "retry.of.a.user": "${mapreduce.reduce.shuffle.fetch.retry.enabled}",
        "user.of.a.user": "${user.name} ${env.NOBODY} ${of.nothing} ${retry.of.a.user",
    }
    settings.reloadConfiguration()
    try:
        for name, value in given.items():
            settings.set(name, value)
        leave_out_yarn(spark)
        assert settings.get("address.of.a.user") == "http://0.0.0.0:1"
        # Mapred's default refers to one of YARN's.
        assert settings.get("retry.of.a.user") == "false"
        assert "yarn-default.xml" in sources(spark)
        assert settings.get("yarn.resourcemanager.webapp.address") is None
    finally:
        for name in given:
            settings.unset(name)
        leave_out_yarn(spark)
    assert "yarn-default.xml" not in sources(spark)


def test_a_session_that_is_there_already_keeps_them(spark: SparkSession) -> None:
    settings_of(spark).reloadConfiguration()
    try:
        with ThreadPoolExecutor(1) as pool:
            # In a thread of its own no session is active, and Spark gives the one there is.
            again = pool.submit(build_session).result()
        assert again.sparkContext is spark.sparkContext
        assert "yarn-default.xml" in sources(spark)
    finally:
        leave_out_yarn(spark)


def test_defaults_that_hadoop_reads_again_are_left_out_again(spark: SparkSession) -> None:
    settings_of(spark).reloadConfiguration()
    assert "yarn-default.xml" in sources(spark)
    leave_out_yarn(spark)
    assert "yarn-default.xml" not in sources(spark)
