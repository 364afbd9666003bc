"""Compares the stored positions of sources with the sources that a job has now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tidemark.clock import format_ms
from tidemark.graph.job.job import Job
from tidemark.graph.model.nodes import SourceNode
from tidemark.savepoints.model.restore_words import LEAVE_BEHIND
from tidemark.savepoints.model.source_kinds import OF_FILES, kind_of_position, source_status
from tidemark.savepoints.model.verdict import Finding, SourceVerdict
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK
from tidemark.state.log.offset_log import positions
from tidemark.state.log.records import EpochRecord

_SHOWN: Final = {"files": "files", "delta": "a Delta table", "kafka": "Kafka", "postgres": "Postgres", "rate": "the rate source"}


def check_sources(record: EpochRecord, job: Job, *, allow: bool) -> tuple[SourceVerdict, ...]:
    """Return the verdict on each source of a job, and on stored positions that belong to none of them.

    Args:
        record: the epoch.
        job: the job that is to resume.
        allow: drop positions that belong to no source.
    """
    stored = positions(record.offsets)
    found = [_check_source(name, node, record, stored) for name, node in job.sources.items()]
    return (*found, *(_dropped(name, left=allow) for name in sorted(set(stored) - set(job.sources))))


def _check_source(name: str, node: SourceNode, record: EpochRecord, stored: Mapping[str, object]) -> SourceVerdict:
    if name not in stored and name not in record.sources:
        return SourceVerdict(name, "new", tuple(_of_new(record)))
    before, now = kind_of_position(stored.get(name)), _kind(node)
    if before is None or now is None or before == now:
        return SourceVerdict(name, "compatible")
    finding = Finding(
        f"it was read from {_SHOWN[before]} and is now from {_SHOWN[now]}",
        "incompatible",
        "its position, which has no meaning there",
        f"give the new source another name, and drop the old position: {LEAVE_BEHIND}; the new source is read from its beginning",
    )
    return SourceVerdict(name, "incompatible", (finding,))


def _kind(source: SourceNode) -> str | None:
    """Return the kind of a source as a position shows it, None for those whose positions do not show it."""
    kind = source_status(source).kind
    return "files" if kind in OF_FILES else kind if kind in _SHOWN else None


def _of_new(record: EpochRecord) -> Iterator[Finding]:
    yield Finding("it is new, and is read from its beginning", "compatible")
    reached = [state.watermark for state in record.operators.values() if MIN_WATERMARK < state.watermark < MAX_WATERMARK]
    if reached:
        at = format_ms(max(reached))
        yield Finding(f"its elements are late where restored watermarks have passed them: watermarks are up to {at}", "compatible")


def _dropped(name: str, *, left: bool) -> SourceVerdict:
    what, lost = "the job has no source of this name", "its position: under a new name all of its input would be read again"
    fix = f"give the source its old name back, or drop its position: {LEAVE_BEHIND}"
    finding = Finding(what, "compatible", lost) if left else Finding(what, "incompatible", lost, fix)
    return SourceVerdict(name, "dropped", (finding,), left=left)
