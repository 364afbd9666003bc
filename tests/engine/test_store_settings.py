"""What sessions are given for object stores: settings from variables, secrets within the JVM only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidemark.spark.env import connector_jars
from tidemark.spark.env.connector_jars import CLASS_PATHS, S3, Jar, connector_settings
from tidemark.spark.env.store_settings import azure_settings, google_settings, hand_over, s3_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = "marker-77af-of-a-key"  # noqa: S105 - what must be in no setting of a session
HOST = "lake.dfs.core.windows.net"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, {"endpoint.region": "us-east-1"}),
        ({"AWS_DEFAULT_REGION": "eu-west-1"}, {"endpoint.region": "eu-west-1"}),
        (
            {"AWS_ENDPOINT_URL": "http://minio:9000", "AWS_REGION": "r"},
            {"endpoint.region": "r", "endpoint": "http://minio:9000", "path.style.access": "true"},
        ),
        (
            {"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_S3": "https://b", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"},
            {"endpoint.region": "us-east-1", "endpoint": "https://b", "path.style.access": "false"},
        ),
    ],
)
def test_s3(given: dict[str, str], wanted: dict[str, str]) -> None:
    secrets = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"), SECRET)
    # Hadoop's connector reads them from the variables itself.
    assert s3_settings({**given, **secrets}) == {f"spark.hadoop.fs.s3a.{name}": value for name, value in wanted.items()}


def test_azure() -> None:
    key = {"AZURE_STORAGE_ACCOUNT_KEY": SECRET}
    token = {"AZURE_STORAGE_SAS_TOKEN": f"?{SECRET}"}
    client = {"AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": SECRET, "AZURE_TENANT_ID": "t"}
    assert azure_settings({**key, **token, **client}, "lake") == {
        f"fs.azure.account.auth.type.{HOST}": "SharedKey",
        f"fs.azure.account.key.{HOST}": SECRET,
    }
    assert azure_settings({**token, **client}, "lake") == {
        f"fs.azure.account.auth.type.{HOST}": "SAS",
        f"fs.azure.sas.fixed.token.{HOST}": SECRET,
    }
    found = azure_settings(client, "lake")
    assert found[f"fs.azure.account.auth.type.{HOST}"] == "OAuth"
    assert found[f"fs.azure.account.oauth2.client.secret.{HOST}"] == SECRET
    assert found[f"fs.azure.account.oauth2.client.endpoint.{HOST}"] == "https://login.microsoftonline.com/t/oauth2/token"
    assert azure_settings({"AZURE_CLIENT_ID": "c"}, "lake") == {}


def test_google() -> None:
    assert google_settings({"GOOGLE_SERVICE_ACCOUNT": "/a.json", "GOOGLE_APPLICATION_CREDENTIALS": "/b.json"}) == {
        "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
        "fs.gs.auth.service.account.json.keyfile": "/a.json",
    }
    assert google_settings({}) == {}


def test_an_installed_connector_for_s3_is_on_the_class_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_CONNECTORS", str(tmp_path))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setattr(connector_jars, "CONNECTORS", {S3: (Jar("g", "aws", "1", "0" * 64), Jar("g", "sdk", "1", "0" * 64))})
    assert connector_settings({}) == {}
    (tmp_path / S3).mkdir()
    files = [tmp_path / S3 / name for name in ("aws-1.jar", "sdk-1.jar")]
    for file in files:
        file.touch()
    found = connector_settings({})
    assert {found[name] for name in CLASS_PATHS} == {":".join(map(str, files))}
    assert found["spark.hadoop.fs.s3a.committer.name"] == "magic"
    assert SECRET not in repr(found)
    assert connector_settings({"spark.driver.extraClassPath": "mine"}) == {}


@pytest.mark.spark
def test_credentials_are_handed_over_within_the_jvm(spark: SparkSession) -> None:
    conf = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    hand_over(spark, azure_settings({"AZURE_STORAGE_ACCOUNT_KEY": SECRET}, "lake"))
    try:
        assert conf.get(f"fs.azure.account.key.{HOST}") == SECRET
        hand_over(spark, azure_settings({"AZURE_STORAGE_ACCOUNT_KEY": "another"}, "lake"))
        assert conf.get(f"fs.azure.account.key.{HOST}") == SECRET
        assert SECRET not in repr(spark.sparkContext.getConf().getAll())
    finally:
        for name in azure_settings({"AZURE_STORAGE_ACCOUNT_KEY": SECRET}, "lake"):
            conf.unset(name)
