"""What sessions are given for object stores: settings from variables, secrets within the JVM only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tidemark.errors import SetupError
from tidemark.locations import Location
from tidemark.spark.env import connector_jars
from tidemark.spark.env.connector_jars import CLASS_PATHS, S3, Jar, connector_settings
from tidemark.spark.env.file_systems import require_file_systems
from tidemark.spark.env.store_settings import azure_settings, google_settings, hand_over, s3_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = "marker77afOfAKey"  # noqa: S105 - what must be in no setting of a session
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


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"AZURE_STORAGE_ACCOUNT_KEY": f"{SECRET}!"}, "AZURE_STORAGE_ACCOUNT_KEY is no key of a storage account: it is not in base64"),
        ({"AZURE_STORAGE_ACCOUNT_KEY": f"{SECRET}ä"}, "AZURE_STORAGE_ACCOUNT_KEY is no key of a storage account: it is not in base64"),
        ({"AZURE_STORAGE_ACCESS_KEY": f"'{SECRET}'"}, "AZURE_STORAGE_ACCESS_KEY is no key of a storage account"),
        ({"AZURE_CLIENT_SECRET": SECRET, "AZURE_TENANT_ID": "t"}, "AZURE_CLIENT_SECRET has the secret.*AZURE_CLIENT_ID is not set.*'lake'"),
        ({"AZURE_CLIENT_SECRET": SECRET, "AZURE_CLIENT_ID": "c"}, "AZURE_TENANT_ID is not set"),
    ],
)
def test_credentials_of_azure_that_cannot_be_used_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(SetupError, match=said) as raised:
        azure_settings(given, "lake")
    assert SECRET not in str(raised.value)


def key_file(folder: Path, **fields: str) -> Path:
    """Write a file as Google gives it."""
    path = folder / "key.json"
    path.write_text(json.dumps({"type": "service_account", "client_email": "a@b", "private_key": SECRET, **fields}))
    return path


def test_google(tmp_path: Path) -> None:
    file = key_file(tmp_path)
    assert google_settings({"GOOGLE_SERVICE_ACCOUNT": str(file), "GOOGLE_APPLICATION_CREDENTIALS": "/b.json"}) == {
        "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
        "fs.gs.auth.service.account.json.keyfile": str(file),
    }
    assert google_settings({}) == {}


def test_credentials_of_google_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    other, broken, empty = (tmp_path / name for name in ("other", "broken", "empty"))
    for folder in (other, broken, empty):
        folder.mkdir()
    (broken / "key.json").write_text(f"-----BEGIN PRIVATE KEY-----{SECRET}")
    for file, said in (
        (tmp_path / "nothing.json", "which cannot be read: No such file or directory"),
        (broken / "key.json", "which is no JSON"),
        (key_file(other, type="authorized_user"), "which is no key of a service account: its type is authorized_user"),
        (key_file(empty, private_key=""), "which is no key of a service account"),
    ):
        with pytest.raises(SetupError, match=rf"GOOGLE_APPLICATION_CREDENTIALS names {file}, {said}") as raised:
            google_settings({"GOOGLE_APPLICATION_CREDENTIALS": str(file)})
        assert SECRET not in str(raised.value)


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
        hand_over(spark, azure_settings({"AZURE_STORAGE_ACCOUNT_KEY": "YW5vdGhlcg=="}, "lake"))
        assert conf.get(f"fs.azure.account.key.{HOST}") == SECRET
        assert SECRET not in repr(spark.sparkContext.getConf().getAll())
    finally:
        for name in azure_settings({"AZURE_STORAGE_ACCOUNT_KEY": SECRET}, "lake"):
            conf.unset(name)


@pytest.mark.spark
def test_a_job_hands_over_what_each_of_its_places_needs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two accounts of Azure and a bucket of Google, in a session that has a file system for these, though not the clouds' own."""
    conf = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    file = key_file(tmp_path)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "store")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", SECRET)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    rows = tm.source(
        "rows",
        tm.files("abfss://in@landing.dfs.core.windows.net/rows", format="json", schema="at TIMESTAMP"),
        watermarks=tm.ascending(timestamp="at"),
    )
    job = tm.Job("clouds", {"rows": tm.delta(rows, "gs://lake/rows")})
    wanted = {f"fs.azure.account.key.{account}.dfs.core.windows.net": SECRET for account in ("store", "landing")}
    wanted["fs.gs.auth.service.account.json.keyfile"] = str(file)
    kinds = {f"fs.{scheme}.impl": "org.apache.hadoop.fs.LocalFileSystem" for scheme in ("abfss", "gs")}
    types = {name.replace(".key.", ".auth.type.") for name in wanted} | {"fs.gs.auth.type"}
    try:
        for name, value in kinds.items():
            conf.set(name, value)
        # Hadoop has a default for it, which says nothing of what the user wants.
        conf.set("fs.gs.auth.type", "COMPUTE_ENGINE", "core-default.xml")
        require_file_systems(spark, job, Location.parse("az://jobs/store"))
        assert conf.get("fs.gs.auth.type") == "SERVICE_ACCOUNT_JSON_KEYFILE"
        assert {name: conf.get(name) for name in wanted} == wanted
        assert SECRET not in repr(spark.sparkContext.getConf().getAll())
        assert SECRET not in job.explain() + repr(job)
        file.unlink()
        # What the session has already is not looked at again; nor is what its own settings say.
        require_file_systems(spark, job, Location.parse("az://jobs/store"))
        conf.unset("fs.gs.auth.type")
        with pytest.raises(SetupError, match=r"GOOGLE_APPLICATION_CREDENTIALS names .* which cannot be read"):
            require_file_systems(spark, job, Location.parse("az://jobs/store"))
        conf.set("fs.gs.auth.type", "APPLICATION_DEFAULT")
        require_file_systems(spark, job, Location.parse("az://jobs/store"))
    finally:
        for name in {*wanted, *kinds, *types}:
            conf.unset(name)


@pytest.mark.spark
@pytest.mark.parametrize("setting", ["fs.azure.account.auth.type", f"fs.azure.account.key.{HOST}"])
def test_settings_of_the_session_go_before_variables(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    conf = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "lake")
    # Of a client of another program: its id is not here.
    monkeypatch.setenv("AZURE_CLIENT_SECRET", SECRET)
    rows = tm.source("rows", tm.files("/landing", format="json", schema="at TIMESTAMP"), watermarks=tm.ascending(timestamp="at"))
    job = tm.Job("clouds", {"rows": tm.delta(rows, "/rows")})
    kind = "fs.abfss.impl"
    try:
        conf.set(kind, "org.apache.hadoop.fs.LocalFileSystem")
        with pytest.raises(SetupError, match="AZURE_CLIENT_ID is not set"):
            require_file_systems(spark, job, Location.parse("az://jobs/store"))
        conf.set(setting, "given")
        require_file_systems(spark, job, Location.parse("az://jobs/store"))
    finally:
        conf.unset(kind)
        conf.unset(setting)
