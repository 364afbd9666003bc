"""What waits to be read, as far as sources tell: Kafka and Delta in Spark's progress, a local folder by looking at it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tidemark.graph.model.nodes import PATTERN_CHARACTERS, FilesSpec, SourceNode
from tidemark.state.status.driver_load import Backlog

MAX_ENTRIES: Final = 20_000
"""A folder of more files is not looked through every few seconds only to show a figure."""

_LEFT_OUT: Final = frozenset({"maxfileage", "pathglobfilter", "modifiedafter", "modifiedbefore"})
"""Options by which Spark passes over files that lie in a folder."""


class FilesRead:
    """The files that a job has read of its local folders: those of earlier runs by Spark's own logs, then those of each epoch.

    Epochs come in the thread of a query, questions in another. What was deleted from a folder is forgotten.

    Args:
        sources: of the job; other sources than folders that can be looked through are left out.
        logged: returns the addresses of all files that Spark's log of a source names.
    """

    def __init__(self, sources: Iterable[SourceNode] = (), logged: Callable[[str], Iterable[str]] = lambda _: ()) -> None:
        self._lock = threading.Lock()
        local = [source.name for source in sources if isinstance(source.spec, FilesSpec) and _local_folder(source.spec) is not None]
        self._read = {name: set(map(_path_of, logged(name))) for name in local}

    def add(self, files: Mapping[str, Sequence[str]]) -> None:
        """Take in the files of an epoch, by source and by their addresses in Spark's log."""
        with self._lock:
            for source in self._read.keys() & files.keys():
                self._read[source].update(map(_path_of, files[source]))

    def unread(self, source: str, there: Mapping[Path, os.DirEntry[str]]) -> list[os.DirEntry[str]]:
        """Return those of the files in a source's folder that were not read."""
        with self._lock:
            read = self._read.get(source, set()) & there.keys()
            self._read[source] = set(read)
        return [entry for path, entry in there.items() if path not in read]


def backlog_of_sources(sources: Sequence[SourceNode], files: FilesRead, progress: Mapping[str, object] | None) -> dict[str, Backlog]:
    """Return what waits of the sources that tell.

    Args:
        sources: of the job, in the order of its query.
        files: that the job has read.
        progress: Spark's of the last batch, None before the first.
    """
    found = {}
    for source, metrics in zip(sources, _reported(progress, len(sources)), strict=True):
        known = count_unread_files(source.name, source.spec, files) if isinstance(source.spec, FilesSpec) else by_metrics(metrics)
        if known is not None:
            found[source.name] = known
    return found


def rows_or_files_read(
    sources: Sequence[SourceNode], files: Mapping[str, Sequence[str]], progress: Mapping[str, object] | None
) -> dict[str, int]:
    """Return how much the last batch read of each source, in the unit that ``backlog_of_sources`` counts it in: files, or rows.

    Args:
        sources: of the job, in the order of its query.
        files: that the last epoch with any read, by source.
        progress: Spark's of the last batch.
    """
    found = {}
    for source, metrics in zip(sources, _reported(progress, len(sources)), strict=True):
        rows = _number(metrics.get("numInputRows"))
        if isinstance(source.spec, FilesSpec):
            found[source.name] = len(files.get(source.name, ()))
        elif rows is not None and (known := by_metrics(metrics)) is not None and known.rows is not None:
            found[source.name] = round(rows)
    return found


def by_metrics(source: Mapping[str, object]) -> Backlog | None:
    """Return what Spark's progress of one source says, None where it says nothing of it."""
    metrics = source.get("metrics")
    if not isinstance(metrics, Mapping):
        return None
    behind = _number(metrics.get("avgOffsetsBehindLatest"))
    if behind is not None:
        return Backlog(rows=round(behind * _partitions(source.get("endOffset"))))
    files, size = _number(metrics.get("numFilesOutstanding")), _number(metrics.get("numBytesOutstanding"))
    if files is None and size is None:
        return None
    return Backlog(files=None if files is None else round(files), bytes=None if size is None else round(size))


def count_unread_files(source: str, spec: FilesSpec, read: FilesRead) -> Backlog | None:
    """Return how many files of a local folder were not read; None where that is not easily known."""
    folder = _local_folder(spec)
    if folder is None:
        return None
    try:
        there = {Path(entry.path): entry for entry in _entries(folder)}
        if len(there) > MAX_ENTRIES:
            return None
        sizes = [entry.stat().st_size for entry in read.unread(source, there)]
    except OSError:
        return None
    return Backlog(files=len(sizes), bytes=sum(sizes))


def _local_folder(spec: FilesSpec) -> str | None:
    """Return the folder that Spark reads all files of; None where it is not on a local disk, or Spark may pass over some."""
    folder = spec.path.removeprefix("file://")
    odd = "://" in folder or any(character in folder for character in PATTERN_CHARACTERS)
    # Spark's log has absolute addresses, of a folder that is given relative to this process's, too.
    return None if odd or _LEFT_OUT & {*map(str.lower, spec.options)} else os.path.abspath(folder)  # noqa: PTH100 - resolve() would follow links


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yield the files that Spark sees in a folder, up to one more than are looked at."""
    seen, folders = 0, [folder]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.startswith((".", "_")) or entry.name.endswith("._COPYING_"):
                    continue
                if entry.is_dir():
                    folders.append(entry.path)
                    continue
                yield entry
                seen += 1
                if seen > MAX_ENTRIES:
                    return


def _path_of(address: str) -> Path:
    return Path("/" + address.removeprefix("file:").lstrip("/"))


def _reported(progress: Mapping[str, object] | None, count: int) -> Sequence[Mapping[str, object]]:
    sources = progress.get("sources") if progress is not None else None
    # Sources are told apart by their order only; with another number of them, none can be.
    return sources if isinstance(sources, list) and len(sources) == count else [{}] * count


def _number(value: object) -> float | None:
    try:
        return float(str(value)) if value is not None else None
    except ValueError:
        return None


def _partitions(offsets: object) -> int:
    try:
        topics = json.loads(str(offsets))
        return sum(len(partitions) for partitions in topics.values())
    except (ValueError, TypeError, AttributeError):
        return 1
