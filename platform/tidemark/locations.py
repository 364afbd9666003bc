"""Maps a location as users write it to its URI for obstore and for Spark."""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tidemark.errors import DefinitionError

Scheme = Literal["file", "s3", "gs", "az"]

_SCHEMES: dict[str, Scheme] = {
    "file": "file",
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "abfs": "az",
    "abfss": "az",
}
_GLOB = re.compile(r"[*?\[\]{}]")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_FIX = "use a local path, or file:///…, s3://bucket/…, gs://bucket/…, az://container/…"


@dataclass(frozen=True)
class Location:
    """A folder or object on a file system or object store.

    ``bucket`` is the bucket or container (empty for local files); ``path`` is absolute for local files and has no slash at either
    end for objects; ``account`` is Azure's storage account where the location names it.
    """

    scheme: Scheme
    bucket: str
    path: str
    account: str | None = None

    @classmethod
    def parse(cls, text: str, *, relative_to: Path | None = None) -> Location:
        """Read a location.

        Args:
            text: a local path (``~`` is expanded), or a URI of a kind named above; ``s3a``, ``gcs`` and ``abfss`` are known too.
            relative_to: folder that a relative local path starts from; the working directory by default.

        Raises:
            DefinitionError: empty, of an unknown kind, without a bucket, with credentials in it, or with a character that
                Spark would read as a pattern. The message never repeats the credentials.

        >>> Location.parse("s3://lake/warehouse/hourly").spark_uri
        's3a://lake/warehouse/hourly'
        """
        if not text.strip():
            raise DefinitionError("a location is empty", fix=_FIX)
        name, separator, rest = text.partition("://")
        if not separator:
            return _local(text, relative_to)
        scheme = _SCHEMES.get(name.lower())
        if scheme is None:
            raise DefinitionError(f"a location of kind {name!r} cannot be used", fix=_FIX)
        if scheme == "file":
            return _local(rest.removeprefix("localhost"), relative_to)
        return _remote(scheme, name.lower(), rest)

    @property
    def real_parts(self) -> tuple[str, ...]:
        """Scheme, bucket and folders, without symbolic links: of one place these are equal, however it is written."""
        path = os.path.realpath(self.path) if self.scheme == "file" else self.path
        return (self.scheme, self.bucket, *filter(None, path.split("/")))

    def joined(self, path: str) -> Location:
        """Return the location of a path inside this one; ``""`` is the location itself."""
        extra = path.strip("/")
        if not extra:
            return self
        inner = f"{self.path.rstrip('/')}/{extra}"
        return replace(self, path=inner if self.scheme == "file" else inner.lstrip("/"))

    @property
    def uri(self) -> str:
        """The address that obstore and deltalake read; local paths are percent-encoded, as URIs are."""
        if self.scheme == "file":
            return Path(self.path).as_uri()
        return f"{self.scheme}://{self.bucket}/{self.path}".rstrip("/")

    @property
    def spark_uri(self) -> str:
        """The address that Spark reads; Hadoop takes paths as they are, so nothing is percent-encoded."""
        if self.scheme == "file":
            return f"file://{self.path}"
        if self.scheme == "az":
            return f"abfss://{self.bucket}@{self._azure_account()}.dfs.core.windows.net/{self.path}".rstrip("/")
        scheme = "s3a" if self.scheme == "s3" else self.scheme
        return f"{scheme}://{self.bucket}/{self.path}".rstrip("/")

    @property
    def address(self) -> str:
        """The address that ``parse`` reads as this location: with Azure's account if one is named, and a local path as it is."""
        return self.spark_uri if self.scheme == "file" or self.account else self.uri

    def __str__(self) -> str:
        """Return it as users write it: a plain path for local files."""
        return self.path if self.scheme == "file" else self.uri

    def _azure_account(self) -> str:
        account = self.account or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
        if not account:
            raise DefinitionError(
                f"the storage account of {self.uri} is not known",
                fix="set AZURE_STORAGE_ACCOUNT_NAME, or write abfss://container@account.dfs.core.windows.net/…",
            )
        return account


def absolute_path(path: str) -> str:
    """Return a local path or pattern as an absolute one, from the working directory of this process; an address as it is.

    >>> absolute_path("s3://lake/landing"), absolute_path("/landing/../trips/*.json")
    ('s3://lake/landing', '/trips/*.json')
    """
    return path if _ADDRESS.match(path) else os.path.abspath(Path(path).expanduser())  # noqa: PTH100 - resolve() would follow links


def stays_within(path: str) -> bool:
    """Return whether a path that is relative to a folder stays inside it.

    >>> stays_within("log/1.json"), stays_within("../other/1.json"), stays_within("/log/1.json"), stays_within("file:///log/1.json")
    (True, False, False, False)
    """
    return all(part not in ("", ".", "..") for part in path.split("/"))


def _local(text: str, relative_to: Path | None) -> Location:
    _refuse_patterns(text)
    path = Path(text).expanduser()
    # Not resolve(): a symbolic link whose target changes later has to be followed.
    return Location("file", "", os.path.abspath((relative_to or Path.cwd()) / path))  # noqa: PTH100


def _remote(scheme: Scheme, written: str, rest: str) -> Location:
    bucket, _, path = rest.partition("/")
    account: str | None = None
    if written in {"abfs", "abfss"} and "@" in bucket:
        bucket, _, host = bucket.partition("@")
        account = host.partition(".")[0]
    if "@" in bucket or ":" in bucket or "?" in rest or "#" in rest:
        raise DefinitionError(
            f"a location of kind {scheme!r} holds more than bucket and path",
            fix="give credentials through the environment (AWS_…, GOOGLE_…, AZURE_…), never in a location",
        )
    if not bucket:
        raise DefinitionError(f"a location of kind {scheme!r} names no bucket", fix=_FIX)
    _refuse_patterns(path)
    # As Spark reads it, and as obstore does where it reads it at all: of `//` it finds no object.
    return Location(scheme, bucket, posixpath.normpath(f"/{path}").strip("/"), account)


def _refuse_patterns(path: str) -> None:
    if _GLOB.search(path):
        raise DefinitionError(
            f"location {path!r} holds one of * ? [ ] {{ }}, which Spark reads as a pattern",
            fix="use a folder without these characters",
        )
