"""Epoch records as small JSON: lists of files become differences against immutable segments.

An operator's files are written as ``{segment, added, dropped}``: everything added and dropped *since that segment*, so a record and
its segment alone give the full list. When the difference outgrows its bound, a new segment is written before the record. The
staged files of an output go to a separate segment when they are many. So a record stays under ``RECORD_LIMIT`` bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypedDict, TypeVar

from tidemark.errors import RecordTooLargeError
from tidemark.semantics.watermarks.watermarks import decode_source, encode_source
from tidemark.state.encoding.codec import from_jsonable, to_jsonable
from tidemark.state.encoding.envelope import canonical, damaged, decode_envelope, encode_envelope, sha256
from tidemark.state.log.records import EpochRecord, OperatorState, OutputRecord, StagedFile, StateFile

RECORD_LIMIT: Final = 256 * 1024
OPERATOR_BOUND: Final = 16 * 1024
OUTPUT_BOUND: Final = 16 * 1024
KIND: Final = "epoch"
SEGMENT_KIND: Final = "segment"

F = TypeVar("F", StateFile, StagedFile)


@dataclass(frozen=True)
class SegmentRef:
    """Where a segment lies in the job's folder, and the SHA-256 of its bytes."""

    path: str
    sha256: str


@dataclass(frozen=True)
class Segment:
    """A segment in memory: the state files it lists, by path."""

    ref: SegmentRef
    files: Mapping[str, StateFile]


@dataclass(frozen=True)
class DecodedEpoch:
    """A record with the segments it builds on, by uid (for the next record), and every segment it refers to (for the sweep)."""

    record: EpochRecord
    bases: Mapping[str, Segment] = field(default_factory=dict)
    segments: frozenset[SegmentRef] = frozenset()

    @property
    def known(self) -> KnownSegments:
        """The decoded segments, so that an epoch that builds on the same ones does not decode them again."""
        return {segment.ref: segment for segment in self.bases.values()}


KnownSegments = Mapping[SegmentRef, Segment]
"""Segments that are decoded already."""

NO_SEGMENTS: Final[KnownSegments] = {}

WriteSegment = Callable[[bytes], SegmentRef]
"""Stores a segment's bytes under a path that has never held anything else."""

ReadSegment = Callable[[SegmentRef], bytes]
"""Returns a segment's bytes; raises CorruptStoreError when there are none."""


class _Difference(TypedDict):
    segment: SegmentRef | None
    added: tuple[StateFile, ...]
    dropped: tuple[str, ...]


class _Staged(TypedDict):
    segment: SegmentRef | None
    inline: tuple[StagedFile, ...]


def encode_epoch(record: EpochRecord, bases: Mapping[str, Segment], write_segment: WriteSegment) -> tuple[bytes, DecodedEpoch]:
    """Return a record's bytes, and the result of decoding them.

    Args:
        record: the epoch, with full lists of files.
        bases: segments of the epoch before, by uid; empty at first.
        write_segment: called for each new segment, before this returns.

    Raises:
        RecordTooLargeError: the record exceeds ``RECORD_LIMIT`` although all its lists are in segments.
    """
    body = to_jsonable(record)
    body["sources"] = {name: encode_source(state) for name, state in record.sources.items()}
    refs: set[SegmentRef] = set()
    after: dict[str, Segment] = {}
    for uid, state in record.operators.items():
        difference = _difference(state.files, bases.get(uid))
        if len(canonical(difference)) > OPERATOR_BOUND:
            after[uid] = _write_state_segment(state.files, write_segment)
            difference = _difference(state.files, after[uid])
        elif uid in bases:
            after[uid] = bases[uid]
        body["operators"][uid]["files"] = difference
    refs.update(segment.ref for segment in after.values())
    for name, output in record.outputs.items():
        staged = to_jsonable(output.files)
        ref = None
        if len(canonical(staged)) > OUTPUT_BOUND:
            ref = write_segment(encode_envelope(SEGMENT_KIND, {"files": staged}))
            refs.add(ref)
        body["outputs"][name]["files"] = {"segment": to_jsonable(ref), "inline": [] if ref else staged}
    data = encode_envelope(KIND, body)
    if len(data) > RECORD_LIMIT:
        raise RecordTooLargeError(
            f"the record of this epoch has {len(data)} bytes, more than the {RECORD_LIMIT} that one commit may have",
            fix="split the job: fewer sources, splits, operators or outputs in one job keep its record small",
            job=record.job,
            epoch=record.epoch,
        )
    return data, DecodedEpoch(record, after, frozenset(refs))


def decode_epoch(data: bytes, *, path: str, read_segment: ReadSegment, known: KnownSegments = NO_SEGMENTS) -> DecodedEpoch:
    """Return a record from its bytes.

    Args:
        data: the bytes as stored.
        path: where they were stored, for errors.
        read_segment: called for each segment the record refers to, except those known.
        known: decoded segments, such as those of the epoch after this one.

    Raises:
        FormatError: a newer release wrote it.
        CorruptStoreError: the record or one of its segments is damaged or missing.
    """
    _, body = decode_envelope(data, kind=KIND, path=path)
    return read_body(body, path=path, read_segment=read_segment, known=known)


def read_body(body: Mapping[str, object], *, path: str, read_segment: ReadSegment, known: KnownSegments = NO_SEGMENTS) -> DecodedEpoch:
    """Return a record from its unsealed body, as ``decode_epoch`` does."""
    bases: dict[str, Segment] = {}
    refs: set[SegmentRef] = set()
    operators: dict[str, OperatorState] = {}
    for uid, state in _entries(body, "operators", path).items():
        difference = from_jsonable(_Difference, state.get("files"), path=path)
        base = difference["segment"]
        if base is not None:
            found = known.get(base)
            bases[uid] = found or Segment(base, {file.path: file for file in _segment_files(base, StateFile, read_segment)})
            refs.add(base)
        files = _apply(difference, bases.get(uid), uid, path)
        operators[uid] = replace(from_jsonable(OperatorState, {**state, "files": []}, path=path), files=files)
    outputs: dict[str, OutputRecord] = {}
    for name, output in _entries(body, "outputs", path).items():
        staged = from_jsonable(_Staged, output.get("files"), path=path)
        spilled = staged["segment"]
        if spilled is not None:
            refs.add(spilled)
        listed = staged["inline"] if spilled is None else _segment_files(spilled, StagedFile, read_segment)
        outputs[name] = replace(from_jsonable(OutputRecord, {**output, "files": []}, path=path), files=listed)
    sources = {name: decode_source(state, place=path) for name, state in _entries(body, "sources", path).items()}
    record = from_jsonable(EpochRecord, {**body, "sources": {}, "operators": {}, "outputs": {}}, path=path)
    return DecodedEpoch(replace(record, sources=sources, operators=operators, outputs=outputs), bases, frozenset(refs))


def _entries(body: Mapping[str, object], key: str, path: str) -> Mapping[str, Mapping[str, object]]:
    found = body.get(key)
    if not isinstance(found, dict) or not all(isinstance(item, dict) for item in found.values()):
        raise damaged(f"is not readable: {key} is not a table", path)
    return found


def _difference(files: tuple[StateFile, ...], base: Segment | None) -> object:
    known = base.files if base is not None else {}
    live = {file.path for file in files}
    return to_jsonable(
        _Difference(
            segment=base.ref if base is not None else None,
            added=tuple(file for file in files if known.get(file.path) != file),
            dropped=tuple(path for path in sorted(known) if path not in live),
        )
    )


def _apply(difference: _Difference, base: Segment | None, uid: str, path: str) -> tuple[StateFile, ...]:
    live = dict(base.files) if base is not None else {}
    for dropped in difference["dropped"]:
        if live.pop(dropped, None) is None:
            raise damaged(f"drops {dropped}, which {uid!r} does not have", path)
    live.update((file.path, file) for file in difference["added"])
    return tuple(live.values())


def _write_state_segment(files: tuple[StateFile, ...], write_segment: WriteSegment) -> Segment:
    ref = write_segment(encode_envelope(SEGMENT_KIND, {"files": to_jsonable(files)}))
    return Segment(ref, {file.path: file for file in files})


def _segment_files(ref: SegmentRef, kind: type[F], read_segment: ReadSegment) -> tuple[F, ...]:
    data = read_segment(ref)
    if sha256(data) != ref.sha256:
        raise damaged("does not match the checksum that a record states", ref.path)
    _, body = decode_envelope(data, kind=SEGMENT_KIND, path=ref.path)
    listed = body.get("files")
    if not isinstance(listed, list):
        raise damaged("is not a list of files", ref.path)
    return tuple(from_jsonable(kind, item, path=ref.path) for item in listed)
