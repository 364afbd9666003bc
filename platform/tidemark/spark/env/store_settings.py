"""What Spark's connectors of object stores need, from the variables by which Tidemark itself reaches them.

Secrets are handed over in the JVM only, after its start: settings of a session are arguments of its process, which all users of a machine
can list, and are on Spark's pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_REGION: Final = "us-east-1"

MAGIC_COMMITTER: Final[Mapping[str, str]] = {
    "spark.sql.sources.commitProtocolClass": "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol",
    "spark.sql.parquet.output.committer.class": "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter",
    "spark.hadoop.fs.s3a.committer.name": "magic",
}
"""Tasks upload parts of an object where it belongs, and the end of the job completes it. Spark's default renames, by which S3 copies."""

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

    >>> sorted(azure_settings({"AZURE_STORAGE_ACCOUNT_KEY": "x"}, "lake"))
    ['fs.azure.account.auth.type.lake.dfs.core.windows.net', 'fs.azure.account.key.lake.dfs.core.windows.net']
    """
    host = f"{account}.dfs.core.windows.net"
    if key := _first(environment, _KEY):
        return {f"{_AZURE}.auth.type.{host}": "SharedKey", f"{_AZURE}.key.{host}": key}
    if token := _first(environment, _SAS):
        return {f"{_AZURE}.auth.type.{host}": "SAS", f"fs.azure.sas.fixed.token.{host}": token.removeprefix("?")}
    client, secret, tenant = (_first(environment, names) for names in (_CLIENT, _CLIENT_SECRET, _TENANT))
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

    >>> google_settings({"GOOGLE_APPLICATION_CREDENTIALS": "/keys/lake.json"})["fs.gs.auth.service.account.json.keyfile"]
    '/keys/lake.json'
    """
    file = _first(environment, _GOOGLE)
    if not file:
        return {}
    return {"fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE", "fs.gs.auth.service.account.json.keyfile": file}


def hand_over(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Give a session Hadoop's settings, unless it has them; they go to the tasks with each of its jobs, and into no text.

    Args:
        spark: the session.
        settings: by name, without ``spark.hadoop.``.
    """
    conf = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    for name, value in settings.items():
        conf.setIfUnset(name, value)


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((value for name in names if (value := environment.get(name, "").strip())), "")
