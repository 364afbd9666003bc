"""What Spark's connectors of object stores need, from the variables by which Tidemark itself reaches them.

Secrets are handed over in the JVM only, after its start: settings of a session are arguments of its process, which all users of a machine
can list, and are on Spark's pages.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidemark.errors import SetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_REGION: Final = "us-east-1"

MAGIC_COMMITTER: Final[Mapping[str, str]] = {
    "spark.sql.sources.commitProtocolClass": "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol",
    "spark.sql.parquet.output.committer.class": "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter",
    "spark.hadoop.fs.s3a.committer.name": "magic",
}
"""Tasks upload parts of an object where it belongs, and the end of the job completes it. Spark's default renames, by which S3 copies."""

AZURE_HOST: Final = "dfs.core.windows.net"
_AZURE: Final = "fs.azure.account"
_AZURE_LOGIN: Final = "https://login.microsoftonline.com"
_KEY: Final = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY")
_SAS: Final = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
_CLIENT: Final = ("AZURE_STORAGE_CLIENT_ID", "AZURE_CLIENT_ID")
_CLIENT_SECRET: Final = ("AZURE_STORAGE_CLIENT_SECRET", "AZURE_CLIENT_SECRET")
_TENANT: Final = ("AZURE_STORAGE_TENANT_ID", "AZURE_TENANT_ID")
_GOOGLE: Final = ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "GOOGLE_APPLICATION_CREDENTIALS")


def s3_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session by which Hadoop's connector reaches the S3 that ``AWS_…`` variables name; none is a secret.

    The connector reads the credentials from the same variables, or gets them from the machine's role.

    >>> s3_settings({"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"})["spark.hadoop.fs.s3a.path.style.access"]
    'true'
    """
    endpoint = _first(environment, ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"))
    region = _first(environment, ("AWS_REGION", "AWS_DEFAULT_REGION")) or DEFAULT_REGION
    found = {"spark.hadoop.fs.s3a.endpoint.region": region}
    if endpoint:
        virtual = environment.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "").lower() == "true"
        found["spark.hadoop.fs.s3a.endpoint"] = endpoint
        found["spark.hadoop.fs.s3a.path.style.access"] = "false" if virtual else "true"
    return found


def azure_settings(environment: Mapping[str, str], account: str) -> dict[str, str]:
    """Return Hadoop's settings for a storage account, by the first of: its key, a signature, a client of Entra; some are secrets.

    Args:
        environment: variables as obstore reads them.
        account: the storage account's name.

    Raises:
        SetupError: a key is not in base64, or a client has a secret, and no id or tenant.

    >>> sorted(azure_settings({"AZURE_STORAGE_ACCOUNT_KEY": "a2V5"}, "lake"))
    ['fs.azure.account.auth.type.lake.dfs.core.windows.net', 'fs.azure.account.key.lake.dfs.core.windows.net']
    """
    host = f"{account}.{AZURE_HOST}"
    if key := _first(environment, _KEY):
        _require_base64(key, _name_of(environment, _KEY))
        return {f"{_AZURE}.auth.type.{host}": "SharedKey", f"{_AZURE}.key.{host}": key}
    if token := _first(environment, _SAS):
        return {f"{_AZURE}.auth.type.{host}": "SAS", f"fs.azure.sas.fixed.token.{host}": token.removeprefix("?")}
    client, secret, tenant = (_first(environment, names) for names in (_CLIENT, _CLIENT_SECRET, _TENANT))
    if secret and not (client and tenant):
        missing = _CLIENT[-1] if not client else _TENANT[-1]
        raise SetupError(
            f"{_name_of(environment, _CLIENT_SECRET)} has the secret of a client, and {missing} is not set: Spark cannot reach the storage "
            f"account {account!r} with it",
            fix=f"set {missing} where the driver runs, or unset the secret",
        )
    if client and secret and tenant:
        return {
            f"{_AZURE}.auth.type.{host}": "OAuth",
            f"{_AZURE}.oauth.provider.type.{host}": "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider",
            f"{_AZURE}.oauth2.client.id.{host}": client,
            f"{_AZURE}.oauth2.client.secret.{host}": secret,
            f"{_AZURE}.oauth2.client.endpoint.{host}": f"{_AZURE_LOGIN}/{tenant}/oauth2/token",
        }
    return {}


def google_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return Hadoop's settings for Google Cloud Storage, where a variable names the file of a service account's key.

    Raises:
        SetupError: the file is not there, or has no such key.

    >>> google_settings({})
    {}
    """
    file = _first(environment, _GOOGLE)
    if not file:
        return {}
    _require_service_account(file, _name_of(environment, _GOOGLE))
    return {"fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE", "fs.gs.auth.service.account.json.keyfile": file}


def hand_over(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Give a session Hadoop's settings, unless it was given others; they go to the tasks with each of its jobs, and into no text.

    Args:
        spark: the session.
        settings: by name, without ``spark.hadoop.``.
    """
    conf = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    for name, value in settings.items():
        if not was_given(spark, name):
            conf.set(name, value)


def was_given(spark: SparkSession, name: str) -> bool:
    """Return whether a session was given a setting of Hadoop's, by itself or by a file; Hadoop's own defaults count as not given.

    Args:
        spark: the session.
        name: the setting's, without ``spark.hadoop.``.
    """
    conf = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    # The sources of a setting stay when it is removed.
    return conf.get(name) is not None and any(not source.endswith("-default.xml") for source in conf.getPropertySources(name))


def _require_base64(key: str, variable: str) -> None:
    try:
        base64.b64decode(key, validate=True)
    # One that is not in ASCII has another error than binascii's.
    except ValueError:
        raise SetupError(
            f"{variable} is no key of a storage account: it is not in base64",
            fix="copy the key as the portal shows it, without quotes around it",
        ) from None


def _require_service_account(file: str, variable: str) -> None:
    """Check the file of a key; Hadoop's connector would do so when a task first reads or writes, and takes no other credentials."""
    try:
        found = json.loads(Path(file).read_bytes())
    except OSError as error:
        what = f"which cannot be read: {error.strerror}"
    except ValueError:
        what = "which is no JSON"
    else:
        kind = found.get("type") if isinstance(found, dict) else None
        if kind == "service_account" and found.get("private_key"):
            return
        what = "which is no key of a service account" + (f": its type is {kind}" if isinstance(kind, str) and kind.isidentifier() else "")
    raise SetupError(
        f"{variable} names {file}, {what}",
        fix="name the JSON file of a service account's key, which the driver and all executors have at that path, or unset the variable "
        "and give the session fs.gs.auth.type and its settings",
    )


def _name_of(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next(name for name in names if environment.get(name, "").strip())


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((value for name in names if (value := environment.get(name, "").strip())), "")
