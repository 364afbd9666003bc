"""The files in a source's folder, as Spark's own file source lists them: with its patterns, hidden files and options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidemark.errors import SourceError
from tidemark.graph.model.source_specs import FilesSpec

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import SparkSession

_STATUS: Final = re.compile(
    r"FileStatus\{path=(?P<path>.*?); isDirectory=false; length=(?P<size>\d+);.*?modification_time=(?P<modified>\d+)[;}]", re.DOTALL
)
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:=-]+")
"""Characters that a URI and a path write in the same way."""

_UNSUPPORTED: Final = frozenset({"latestfirst", "cleansource", "sourcearchivedir", "filenameonly", "maxfileage"})
"""Options of Spark's file source that choose files by more than their names and times."""


@dataclass(frozen=True)
class ListedFile:
    """A file: its address (``file:///data/a b.json``), the milliseconds since 1970 when it was changed, its bytes."""

    address: str
    modified_ms: int
    bytes: int


def is_listable(spec: FilesSpec) -> bool:
    """Whether a folder's options leave the choice of files to the listing."""
    return _UNSUPPORTED.isdisjoint(name.lower() for name in spec.options)


class FolderListing:
    """Lists a folder, or the folders of a pattern.

    Args:
        spark: the session.
        path: as Spark reads it.
        options: of Spark's reader.
    """

    def __init__(self, spark: SparkSession, path: str, options: Mapping[str, str]) -> None:
        # PySpark lists no files; these are the classes that Spark's file source uses.
        context = spark.sparkContext
        self._jvm = context._jvm  # noqa: SLF001
        self._session = spark._jsparkSession  # noqa: SLF001
        self._path = self._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]
        self._conf = context._jsc.hadoopConfiguration()  # noqa: SLF001
        self._options = self._jvm.PythonUtils.toScalaMap(dict(options))  # type: ignore[union-attr]

    @property
    def written_by_query(self) -> bool:
        """Whether a query of Spark writes the folder; its log then says which files are complete."""
        sinks = self._jvm.org.apache.spark.sql.execution.streaming.sinks  # type: ignore[union-attr]
        paths = self._jvm.PythonUtils.toSeq([self._path.toString()])  # type: ignore[union-attr]
        return bool(sinks.FileStreamSink.hasMetadata(paths, self._conf, self._session.sessionState().conf()))

    def files(self) -> list[ListedFile]:
        """Return all files, oldest first, and by name where they are equally old."""
        jvm = self._jvm
        if jvm is None:
            raise ValueError("the session has ended")
        system = self._path.getFileSystem(self._conf)
        roots = jvm.org.apache.spark.deploy.SparkHadoopUtil.get().globPathIfNecessary(system, system.makeQualified(self._path))
        sources = jvm.org.apache.spark.sql.execution.datasources
        no_cache = _object(sources, "NoopCache")
        none, schema = jvm.scala.Option.empty(), jvm.scala.Some(jvm.org.apache.spark.sql.types.StructType())
        index = sources.InMemoryFileIndex(self._session, roots, self._options, schema, no_cache, none, none)
        found = index.allFiles()
        # One call for all files, whose text each has its fields in.
        texts = _STATUS.finditer(found.mkString("\n"))
        files = [ListedFile(_as_logged(each["path"]), int(each["modified"]), int(each["size"])) for each in texts]
        if len(files) != found.size():
            raise SourceError(
                f"{found.size()} files are listed at {self._path}, and {len(files)} of them have a name and a time",
                fix="report this with the version of Spark and the connector of the file system",
            )
        return sorted(files, key=lambda file: (file.modified_ms, file.address))

    def encoded(self, address: str) -> str:
        """Return an address as Spark's log of a file source writes it."""
        if _PLAIN.fullmatch(address):
            return address
        return _as_logged(str(self._jvm.org.apache.hadoop.fs.Path(address).toUri().toString()))  # type: ignore[union-attr]


def _as_logged(address: str) -> str:
    """Return an address with the slashes that Spark's log gives one without an authority: ``file:///data``, not ``file:/data``."""
    return re.sub(r"^(\w+):/(?!/)", r"\1:///", address)


def _object(package: JavaObject, name: str) -> JavaObject:
    return getattr(getattr(package, f"{name}$"), "MODULE$")
