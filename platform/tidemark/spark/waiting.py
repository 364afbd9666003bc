"""What waits to be read, as far as sources tell: Kafka and Delta in Spark's progress, a local folder by looking at it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tidemark.graph.nodes import PATTERN_CHARACTERS, FilesSpec, SourceNode
from tidemark.state.load import Waiting

MOST_ENTRIES: Final = 20_000
"""A folder of more files is not looked through every few seconds only to show a figure."""


def waiting(sources: Sequence[SourceNode], files: Mapping[str, Sequence[str]], progress: Mapping[str, object] | None) -> dict[str, Waiting]:
    """Return what waits of the sources that tell.

    Args:
        sources: of the job, in the order of its query.
        files: addresses of the files that the last epoch read, by source.
        progress: Spark's of the last batch, None before the first.
    """
    found = {}
    reported = _reported(progress, len(sources))
    for source, metrics in zip(sources, reported, strict=True):
        known = waiting_files(source.spec, files.get(source.name, ())) if isinstance(source.spec, FilesSpec) else by_metrics(metrics)
        if known is not None:
            found[source.name] = known
    return found


def by_metrics(source: Mapping[str, object]) -> Waiting | None:
    """Return what Spark's progress of one source says, None where it says nothing of it."""
    metrics = source.get("metrics")
    if not isinstance(metrics, Mapping):
        return None
    behind = _number(metrics.get("avgOffsetsBehindLatest"))
    if behind is not None:
        return Waiting(rows=round(behind * _partitions(source.get("endOffset"))))
    files, size = _number(metrics.get("numFilesOutstanding")), _number(metrics.get("numBytesOutstanding"))
    if files is None and size is None:
        return None
    return Waiting(files=None if files is None else round(files), bytes=None if size is None else round(size))


def waiting_files(spec: FilesSpec, read: Sequence[str]) -> Waiting | None:
    """Return how many files of a local folder are younger than those that were read last; None where that is not easily known.

    An epoch takes the oldest files first, so what is younger has not been read.
    """
    folder = spec.path.removeprefix("file://")
    if "://" in folder or any(character in folder for character in PATTERN_CHARACTERS) or not read:
        return None
    taken = {Path("/" + address.removeprefix("file:").lstrip("/")) for address in read}
    try:
        newest = max(path.stat().st_mtime_ns for path in taken)
        entries = list(_entries(Path(folder)))
    except OSError:
        return None
    if len(entries) > MOST_ENTRIES:
        return None
    sizes = [stat.st_size for path, stat in entries if stat.st_mtime_ns >= newest and path not in taken]
    return Waiting(files=len(sizes), bytes=sum(sizes))


def _entries(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the files that Spark sees in a folder, up to one more than are looked at."""
    seen = 0
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        for name in names:
            if not name.startswith((".", "_")):
                path = Path(place, name)
                yield path, path.stat()
                seen += 1
                if seen > MOST_ENTRIES:
                    return


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
