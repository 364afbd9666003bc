"""The backlog of sources, as far as it is known: of Kafka and Delta from Spark's progress, of a local folder by listing it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tidemark.graph.job.local_folders import local_folder
from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.source_specs import FilesSpec
from tidemark.spark.sources.files.folder_columns import reads_all_folders
from tidemark.state.status.driver_load import Backlog

MAX_ENTRIES: Final = 20_000
"""A folder with more files is not listed every few seconds only to show a number."""

_LEFT_OUT: Final = frozenset({"maxfileage", "pathglobfilter", "modifiedafter", "modifiedbefore"})
"""Options with which Spark skips files in a folder."""


class FilesRead:
    """The files that a job has read from its local folders: those of earlier runs from Spark's logs, then those of each epoch.

    Epochs are added in the thread of a query, the backlog is asked for in another. Files deleted from a folder are dropped.

    Args:
        sources: of the job; only local folders that can be listed count.
        logged: returns the addresses of all files that Spark's log of a source names.
    """

    def __init__(self, sources: Iterable[SourceNode] = (), logged: Callable[[str], Iterable[str]] = lambda _: ()) -> None:
        self._lock = threading.Lock()
        local = [source.name for source in sources if isinstance(source.spec, FilesSpec) and _local_folder(source.spec) is not None]
        self._read = {name: set(map(_path_of, logged(name))) for name in local}

    def add(self, files: Mapping[str, Sequence[str]]) -> None:
        """Add the files of an epoch, by source, with their addresses in Spark's log."""
        with self._lock:
            for source in self._read.keys() & files.keys():
                self._read[source].update(map(_path_of, files[source]))

    def unread(self, source: str, there: Mapping[Path, os.DirEntry[str]]) -> list[os.DirEntry[str]]:
        """Return the files in a source's folder that were not read."""
        with self._lock:
            read = self._read.get(source, set()) & there.keys()
            self._read[source] = set(read)
        return [entry for path, entry in there.items() if path not in read]


def backlog_of_sources(sources: Sequence[SourceNode], files: FilesRead, progress: Mapping[str, object] | None) -> dict[str, Backlog]:
    """Return the backlogs of the sources that have a known one, by name.

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
    """Return the backlog in Spark's progress of one source, None where it has none."""
    metrics = source.get("metrics")
    if not isinstance(metrics, Mapping):
        return None
    behind = _number(metrics.get("avgOffsetsBehindLatest"))
    if behind is not None:
        splits = _behind(source.get("endOffset"), source.get("latestOffset"))
        return Backlog(rows=sum(splits.values()) if splits else round(behind * _partitions(source.get("endOffset"))), splits=splits)
    files, size = _number(metrics.get("numFilesOutstanding")), _number(metrics.get("numBytesOutstanding"))
    if files is None and size is None:
        return None
    return Backlog(files=None if files is None else round(files), bytes=None if size is None else round(size))


def count_unread_files(source: str, spec: FilesSpec, read: FilesRead) -> Backlog | None:
    """Return the number of unread files in a local folder; None where counting is too expensive or not possible."""
    folder = _local_folder(spec)
    if folder is None:
        return None
    try:
        there = {Path(entry.path): entry for entry in _entries(folder, all_folders=reads_all_folders(spec))}
        if len(there) > MAX_ENTRIES:
            return None
        sizes = [entry.stat().st_size for entry in read.unread(source, there)]
    except OSError:
        return None
    return Backlog(files=len(sizes), bytes=sum(sizes))


def _local_folder(spec: FilesSpec) -> str | None:
    """Return the folder of which Spark reads all files; None where it is not on a local disk, or Spark may skip some."""
    # Spark's log has absolute addresses.
    return None if _LEFT_OUT & {*map(str.lower, spec.options)} else local_folder(spec.path)


def _entries(folder: str, *, all_folders: bool) -> Iterator[os.DirEntry[str]]:
    """Yield the files that Spark sees in a folder, up to one more than the limit; those of folders that name no value it passes over."""
    seen, folders = 0, [(folder, all_folders)]
    while folders:
        path, is_read_whole = folders.pop()
        with os.scandir(path) as entries:
            for entry in entries:
                if _is_hidden(entry.name):
                    continue
                if entry.is_dir():
                    if is_read_whole or "=" in entry.name:
                        folders.append((entry.path, True))
                    continue
                yield entry
                seen += 1
                if seen > MAX_ENTRIES:
                    return


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def _path_of(address: str) -> Path:
    return Path("/" + address.removeprefix("file:").lstrip("/"))


def _reported(progress: Mapping[str, object] | None, count: int) -> Sequence[Mapping[str, object]]:
    sources = progress.get("sources") if progress is not None else None
    # Sources are identified by their order only, so not if their number differs.
    return sources if isinstance(sources, list) and len(sources) == count else [{}] * count


def _number(value: object) -> float | None:
    try:
        return float(str(value)) if value is not None else None
    except ValueError:
        return None


def _behind(read: object, newest: object) -> dict[str, int]:
    """Return the unread records of each partition of Kafka's; empty where the newest offsets are not known."""
    try:
        before, now = (each if isinstance(each, Mapping) else json.loads(str(each)) for each in (read, newest))
        return {
            f"{topic}-{number}": max(0, offset - before.get(topic, {}).get(number, 0))
            for topic, partitions in sorted(now.items())
            for number, offset in sorted(partitions.items(), key=lambda each: int(each[0]))
        }
    except (ValueError, TypeError, AttributeError):
        return {}


def _partitions(offsets: object) -> int:
    try:
        topics = json.loads(str(offsets))
        return sum(len(partitions) for partitions in topics.values())
    except (ValueError, TypeError, AttributeError):
        return 1
