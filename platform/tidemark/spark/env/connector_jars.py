"""Jars of Spark's connectors that PySpark does not contain: pinned by version and SHA-256, downloaded once for each user.

A session that starts here has the jars of all connectors that are installed, unless its settings name jars or packages themselves.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidemark.errors import DefinitionError, SetupError
from tidemark.spark.env.crash_reports import is_in_spark_defaults
from tidemark.spark.env.store_settings import MAGIC_COMMITTER, s3_settings

if TYPE_CHECKING:
    import obstore

REPOSITORY: Final = "https://repo1.maven.org/maven2"
"""Maven Central; ``$TIDEMARK_MAVEN_REPOSITORY`` names another repository of the same layout."""

_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Jar:
    """A file of a Maven repository."""

    group: str
    name: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        """The file's name."""
        return f"{self.name}-{self.version}.jar"

    @property
    def path(self) -> str:
        """Where a repository has it."""
        return f"{self.group.replace('.', '/')}/{self.name}/{self.version}/{self.file}"

    def __str__(self) -> str:
        """Return its coordinates, as ``spark.jars.packages`` takes them."""
        return f"{self.group}:{self.name}:{self.version}"


S3: Final = "s3"
"""Hadoop's connector for S3, with Amazon's whole SDK, and Spark's committers for it."""

CLASS_PATHS: Final = ("spark.driver.extraClassPath", "spark.executor.extraClassPath")

CONNECTORS: Final[Mapping[str, tuple[Jar, ...]]] = {
    "kafka": (
        Jar(
            "org.apache.spark",
            "spark-sql-kafka-0-10_2.13",
            "4.2.0",
            "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
        ),
        Jar(
            "org.apache.spark",
            "spark-token-provider-kafka-0-10_2.13",
            "4.0.0",
            "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
        ),
        Jar("org.apache.kafka", "kafka-clients", "3.9.2", "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8"),
        Jar("org.apache.commons", "commons-pool2", "2.13.1", "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f"),
    ),
    "avro": (Jar("org.apache.spark", "spark-avro_2.13", "4.2.0", "4c186cedc03cbe4ee356a94b32232b347ef48611c3209400b3a77e4fe4abff4f"),),
    "postgres": (Jar("org.postgresql", "postgresql", "42.7.4", "188976721ead8e8627eb6d8389d500dccc0c9bebd885268a3047180274a6031e"),),
    S3: (
        Jar("org.apache.hadoop", "hadoop-aws", "3.5.0", "66bd9eefb938b1a1657487324b63c13df2d8b17164a1dd24e0ef37b905bc5baa"),
        Jar("software.amazon.awssdk", "bundle", "2.35.4", "db4b55f24ad1b4e70f17eb1717a4de76a8dadc5a27d764be7c44ff67b2c1c677"),
        Jar(
            "software.amazon.s3.analyticsaccelerator",
            "analyticsaccelerator-s3",
            "1.3.1",
            "4959a9747cbb479c73c3ffbcd479bee5b014f8b2880994585a8693fb9d24675e",
        ),
        Jar("org.apache.spark", "spark-hadoop-cloud_2.13", "4.0.0", "5e333036e1cee2b328699f1f0bce76f33cc4115a06a50ad9b1057b602fee52bf"),
    ),
}
"""By name. The versions are those that the tests ran with."""


def connectors_folder() -> Path:
    """Return ``$TIDEMARK_CONNECTORS``, else the user's folder for data (``$XDG_DATA_HOME``, else ``~/.local/share``), absolute."""
    named, data = os.environ.get("TIDEMARK_CONNECTORS"), os.environ.get("XDG_DATA_HOME")
    return Path(named).absolute() if named else Path(data or Path.home() / ".local" / "share").absolute() / "tidemark" / "connectors"


def require_connector(name: str) -> tuple[Jar, ...]:
    """Return the jars of a connector.

    Raises:
        DefinitionError: there is none of that name.
    """
    if name not in CONNECTORS:
        raise DefinitionError(f"there is no connector {name!r}", fix=f"name one of {', '.join(CONNECTORS)}")
    return CONNECTORS[name]


def installed(name: str) -> tuple[Path, ...]:
    """Return the files of an installed connector; none where one is missing.

    Raises:
        DefinitionError: there is no connector of that name.
    """
    found = tuple(connectors_folder() / name / jar.file for jar in require_connector(name))
    return found if all(path.is_file() for path in found) else ()


def connector_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that give a session the jars of all installed connectors; none where its settings name jars themselves.

    Those for S3 are on the class path: Spark would copy the jars that it is given, 690 MB, for each session. On a cluster the executors
    need them at the same path.
    """
    if any(name in conf or is_in_spark_defaults(name) for name in ("spark.jars", "spark.jars.packages")):
        return {}
    jars = [str(path) for name in CONNECTORS if name != S3 for path in installed(name)]
    found = {"spark.jars": ",".join(jars)} if jars else {}
    on_path = installed(S3) if S3 in CONNECTORS else ()
    if on_path and not any(name in conf or is_in_spark_defaults(name) for name in CLASS_PATHS):
        found |= dict.fromkeys(CLASS_PATHS, os.pathsep.join(map(str, on_path)))
        found |= {**MAGIC_COMMITTER, **s3_settings(os.environ)}
    return found


def install(name: str, *, on_file: Callable[[Jar, bool], None] | None = None) -> tuple[Path, ...]:
    """Download the jars of a connector that are not there yet, and return all of its files; see ``download``.

    Raises:
        DefinitionError: there is no connector of that name.
        SetupError: as ``download``.
    """
    return download(require_connector(name), connectors_folder() / name, on_file=on_file)


def download(jars: Iterable[Jar], folder: Path, *, on_file: Callable[[Jar, bool], None] | None = None) -> tuple[Path, ...]:
    """Download jars that are not there yet, and return the files of all.

    A file appears under its name only when its checksum is right, so that an interrupted download leaves nothing that is used.

    Args:
        jars: to download.
        folder: where to.
        on_file: called for each jar, before it is downloaded, or with true where it is there already.

    Raises:
        SetupError: a file cannot be downloaded or stored, or is not the pinned one.
    """
    repository = os.environ.get("TIDEMARK_MAVEN_REPOSITORY") or REPOSITORY
    found = []
    for jar in jars:
        place = folder / jar.file
        there = place.is_file() and _sha256(place) == jar.sha256
        if on_file is not None:
            on_file(jar, there)
        if not there:
            _download(jar, place, repository)
        found.append(place)
    return tuple(found)


def _download(jar: Jar, place: Path, repository: str) -> None:
    fix = f"check the connection, or name a repository that has {jar} in TIDEMARK_MAVEN_REPOSITORY"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=".download-") as folder:
            part = Path(folder) / jar.file
            with part.open("wb") as file:
                file.writelines(_chunks(jar, repository, fix))
            digest = _sha256(part)
            if digest != jar.sha256:
                raise SetupError(f"{jar.file} of {repository} has the SHA-256 {digest}, not the pinned {jar.sha256}", fix=fix)
            part.replace(place)
    except OSError as error:
        raise SetupError(f"{jar.file} cannot be stored in {place.parent}: {error}", fix="name a folder in TIDEMARK_CONNECTORS") from error


def _chunks(jar: Jar, repository: str, fix: str) -> Iterator[obstore.Bytes]:
    """Yield a file of a repository; a mirror on this machine or in a private network may have no certificate."""
    # A start, which only looks for the files, does not wait for these to load.
    import obstore
    from obstore.exceptions import BaseError
    from obstore.store import HTTPStore

    from tidemark.state.store.object_stores import error_line

    try:
        store = HTTPStore.from_url(
            repository,
            client_options={"allow_http": repository.startswith("http://"), "connect_timeout": "20 seconds"},
            retry_config={"max_retries": 3},
        )
        yield from obstore.get(store, jar.path).stream(min_chunk_size=_CHUNK_BYTES)
    except (BaseError, FileNotFoundError) as error:
        raise SetupError(f"{jar.file} cannot be downloaded from {repository}: {error_line(error)}", fix=fix) from None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
