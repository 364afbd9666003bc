from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.errors import CorruptStoreError, FormatError, RecordTooLargeError
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK
from tidemark.state.encoding.codec import from_jsonable, to_jsonable
from tidemark.state.encoding.envelope import canonical, decode_envelope, encode_envelope, sha256
from tidemark.state.log.epoch_codec import (
    OPERATOR_BOUND,
    RECORD_LIMIT,
    DecodedEpoch,
    Segment,
    SegmentRef,
    decode_epoch,
    encode_epoch,
)
from tidemark.state.log.heartbeat import Heartbeat
from tidemark.state.log.progress import EpochProgress, OutputRepair
from tidemark.state.log.records import (
    EpochRecord,
    OperatorState,
    OutputRecord,
    OwnerInfo,
    ParentRef,
    SinkPosition,
    StagedFile,
    StateFile,
    TermRecord,
)

GOLDEN = Path(__file__).parent / "golden"
MakeRecord = Callable[..., EpochRecord]
MakeFile = Callable[..., StateFile]


class Shelf:
    """Segments in memory."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}

    def write(self, data: bytes) -> SegmentRef:
        ref = SegmentRef(f"segments/{sha256(data)}.json", sha256(data))
        self.held[ref.path] = data
        return ref

    def read(self, ref: SegmentRef) -> bytes:
        return self.held[ref.path]

    def decode(self, data: bytes) -> DecodedEpoch:
        return decode_epoch(data, path="log/1.json", read_segment=self.read)


def golden_record(make_record: MakeRecord, make_file: MakeFile) -> EpochRecord:
    record = make_record(7, files=(make_file(1), make_file(2, epoch=3)))
    state = replace(record.operators["hourly"], watermark=MIN_WATERMARK)
    return replace(record, parent=ParentRef("a0", 6), operators={"hourly": state, "empty": OperatorState({}, (), MAX_WATERMARK)})


@pytest.mark.parametrize("name", ["epoch-1", "epoch-segment-1", "term-1", "heartbeat-1"])
def test_golden_files_are_written_and_read_as_ever(name: str, make_record: MakeRecord, make_file: MakeFile) -> None:
    frozen = (GOLDEN / f"{name}.json").read_bytes()
    owner = OwnerInfo("host-a", 4711, "boot:123", "run-1")
    if name.startswith("epoch"):
        shelf = Shelf()
        record = golden_record(make_record, make_file)
        base = {}
        if name == "epoch-segment-1":
            ref = shelf.write((GOLDEN / "segment-1.json").read_bytes())
            base = {"hourly": Segment(ref, {file.path: file for file in (make_file(0), make_file(1))})}
        assert shelf.decode(frozen).record == record
        assert encode_epoch(record, base, shelf.write)[0] == frozen
    elif name == "term-1":
        term = TermRecord(3, owner, 1_700_000_000_000, 2, "00ff")
        assert encode_envelope("term", to_jsonable(term)) == frozen
        assert from_jsonable(TermRecord, decode_envelope(frozen, kind="term", path="p")[1], path="p") == term
    else:
        beat = Heartbeat(3, owner, 1_700_000_000_000, 12)
        assert encode_envelope("heartbeat", to_jsonable(beat)) == frozen
        assert from_jsonable(Heartbeat, decode_envelope(frozen, kind="heartbeat", path="p")[1], path="p") == beat


def test_positions_of_sinks_have_a_golden_record(make_record: MakeRecord, make_file: MakeFile) -> None:
    record, repair = golden_record(make_record, make_file), OutputRepair("republished", 7, "version 5 is a RESTORE to version 2", (2, 3))
    before = SinkPosition("4b1c", 12, "ab" * 16, "a1", 6, 11)
    output = replace(record.outputs["tips"], before=before, repairs=(repair,))
    shown = replace(record.progress.outputs["tips"], repair=repair)
    record = replace(record, outputs={"tips": output}, progress=replace(record.progress, outputs={"tips": shown}))
    frozen = (GOLDEN / "epoch-positions-1.json").read_bytes()
    assert encode_epoch(record, {}, Shelf().write)[0] == frozen
    assert Shelf().decode(frozen).record == record


def test_ids_of_topics_have_a_golden_record(make_record: MakeRecord, make_file: MakeFile) -> None:
    record = replace(golden_record(make_record, make_file), topics={"fares": {"trips": "MkU3OEVBNTcwNTJENDM2Qg/Vw8Vfe0aQvCkxj0ZQ9lqbA"}})
    frozen = (GOLDEN / "epoch-topics-1.json").read_bytes()
    assert encode_epoch(record, {}, Shelf().write)[0] == frozen
    assert Shelf().decode(frozen).record == record


def test_the_golden_segment_is_written_as_ever(make_file: MakeFile) -> None:
    files = [to_jsonable(make_file(0)), to_jsonable(make_file(1))]
    assert encode_envelope("segment", {"files": files}) == (GOLDEN / "segment-1.json").read_bytes()


@st.composite
def file_histories(draw: st.DrawFn) -> list[list[int]]:
    """Numbers of the live files after each epoch: some are added, some dropped."""
    live: list[int] = []
    result, number = [], 0
    for _ in range(draw(st.integers(1, 8))):
        live = [item for item in live if draw(st.integers(0, 3))]
        added = draw(st.integers(0, 120))
        live += range(number, number + added)
        number += added
        result.append(list(live))
    return result


@given(history=file_histories())
def test_any_history_of_files_comes_back_and_stays_small(history: list[list[int]]) -> None:
    shelf = Shelf()
    bases: dict[str, Segment] = {}
    for epoch, live in enumerate(history):
        files = tuple(StateFile(f"state/u/{n:06d}.parquet", 1, n, n, n + 1, n // 50) for n in live)
        progress = EpochProgress("taxi", "a1", epoch, 1, 1, 0, 0)
        record = EpochRecord("taxi", "a1", None, 1, epoch, 1, "", progress, operators={"u": OperatorState({}, files)})
        data, encoded = encode_epoch(record, bases, shelf.write)
        decoded = shelf.decode(data)
        assert decoded.record == record
        assert decoded == encoded
        assert len(data) < OPERATOR_BOUND + 4096
        # A record and one segment give the full list, whatever came before.
        assert len(decoded.segments) <= 1
        bases = dict(decoded.bases)


def test_a_segment_is_written_only_when_the_difference_outgrew_its_bound(make_record: MakeRecord, make_file: MakeFile) -> None:
    shelf, data = Shelf(), b""
    bases: dict[str, Segment] = {}
    files: tuple[StateFile, ...] = ()
    for epoch in range(500):
        files = (*files, make_file(epoch, epoch=epoch))
        data, encoded = encode_epoch(make_record(epoch, files=files), bases, shelf.write)
        bases = dict(encoded.bases)
        assert len(data) < 2 * OPERATOR_BOUND
    assert shelf.decode(data).record.operators["hourly"].files == files
    assert 3 <= len(shelf.held) <= 10


def test_an_entry_that_changed_under_its_path_is_written_anew(make_record: MakeRecord, make_file: MakeFile) -> None:
    shelf, files = Shelf(), tuple(make_file(number) for number in range(300))
    _, encoded = encode_epoch(make_record(0, files=files), {}, shelf.write)
    changed = (replace(files[0], max_time=None), *files[1:])
    data, _ = encode_epoch(make_record(1, files=changed), encoded.bases, shelf.write)
    assert shelf.decode(data).record.operators["hourly"].files == changed
    assert len(shelf.held) == 1


def test_many_staged_files_go_to_a_segment(make_record: MakeRecord) -> None:
    shelf = Shelf()
    staged = tuple(StagedFile(f"part-{n:05d}.parquet", n, n, {"numRecords": n, "minValues": {"x": n}}) for n in range(5000))
    record = replace(make_record(1), outputs={"tips": OutputRecord("delta", "/lake", None, staged, 5000)})
    data, encoded = encode_epoch(record, {}, shelf.write)
    assert len(data) < 16 * 1024
    assert shelf.decode(data).record == record
    assert encoded.segments == {SegmentRef(path, sha256(held)) for path, held in shelf.held.items()}


def test_a_record_beyond_its_limit_is_an_error(make_record: MakeRecord) -> None:
    with pytest.raises(RecordTooLargeError, match=r"epoch 3.*Fix: split the job"):
        encode_epoch(replace(make_record(3), offsets="x" * RECORD_LIMIT), {}, Shelf().write)


def test_files_have_one_order(make_file: MakeFile) -> None:
    new, old = make_file(0, epoch=5), make_file(9, epoch=1)
    assert OperatorState({}, (new, old)).files == OperatorState({}, (old, new)).files == (old, new)


def resealed(data: bytes, **changes: object) -> bytes:
    _, body = decode_envelope(data, kind="epoch", path="p")
    return encode_envelope("epoch", {**body, **changes})


def with_format(data: bytes, version: object) -> bytes:
    return canonical({**json.loads(data), "format": version})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda _: b"", "is empty"),
        (lambda data: data[:-1], "is not whole JSON"),
        (lambda data: data[: len(data) // 2], "is not whole JSON"),
        (lambda data: b"\x00" * len(data), "is not whole JSON"),
        (lambda _: b"\xff\xfe", "is not whole JSON"),
        (lambda _: b"[" * 100_000, "is not whole JSON"),
        (lambda _: b"[]", "is not a record"),
        (lambda _: b"{}", "is not a record"),
        (lambda data: data.replace(b'"rows":10', b'"rows":11', 1), "does not match its checksum"),
        (lambda data: data.replace(b'"kind":"epoch"', b'"kind":"term"'), "does not match its checksum"),
        (lambda data: with_format(data, 0), "does not match its checksum"),
        (lambda data: with_format(data, None), "does not match its checksum"),
        (lambda data: data.replace(b'"epoch":7', b'"epoch":1e999', 1), "does not match its checksum"),
        (lambda data: re.sub(rb'"sha256":"\w+"', b'"sha256":[7]', data), "does not match its checksum"),
        (lambda _: encode_envelope("pin", {}), "is of kind 'pin'"),
        (lambda data: resealed(data, epoch="seven"), "EpochRecord.epoch is 'seven'"),
        (lambda data: resealed(data, epoch=True), "EpochRecord.epoch is True"),
        (lambda data: resealed(data, later=1), "unknown later"),
        (lambda data: resealed(data, operators=[]), "operators is not a table"),
        (lambda data: resealed(data, operators={"u": {}}), "_Difference is None"),
        (lambda _: encode_envelope("epoch", {"job": "taxi"}), "sources is not a table|operators is not a table"),
    ],
)
def test_damage_is_refused_and_named(damage: Callable[[bytes], bytes], message: str, make_record: MakeRecord, make_file: MakeFile) -> None:
    data, _ = encode_epoch(make_record(7, files=(make_file(1),)), {}, Shelf().write)
    with pytest.raises(CorruptStoreError, match=message) as caught:
        Shelf().decode(damage(data))
    assert "log/1.json" in str(caught.value)


@given(where=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_no_flipped_bit_goes_unseen(where: int, bit: int) -> None:
    frozen = (GOLDEN / "epoch-1.json").read_bytes()
    damaged = bytearray(frozen)
    damaged[where % len(frozen)] ^= 1 << bit
    # A bit in the format's digit may make it a newer format: refused as well.
    with pytest.raises((CorruptStoreError, FormatError)):
        Shelf().decode(bytes(damaged))


def test_what_is_written_otherwise_has_the_same_checksum() -> None:
    frozen = (GOLDEN / "heartbeat-1.json").read_bytes()
    content = json.loads(frozen)
    found = decode_envelope(frozen, kind="heartbeat", path="p")
    assert canonical(content) == frozen == encode_envelope(content["kind"], content["body"])
    for other in (json.dumps(content, indent=2), json.dumps(dict(reversed(content.items())))):
        assert decode_envelope(other.encode(), kind="heartbeat", path="p") == found


def test_a_newer_format_is_refused_whatever_else_is_in_it(make_record: MakeRecord) -> None:
    data, _ = encode_epoch(make_record(7), {}, Shelf().write)
    for newer in (with_format(data, 2), b'{"format":9,"new":"envelope"}'):
        with pytest.raises(FormatError, match="Fix: run the job with the release that wrote it"):
            Shelf().decode(newer)


def test_a_damaged_segment_is_refused(make_record: MakeRecord, make_file: MakeFile) -> None:
    shelf = Shelf()
    files = tuple(make_file(number) for number in range(500))
    data, _ = encode_epoch(make_record(7, files=files), {}, shelf.write)
    path, held = next(iter(shelf.held.items()))
    for broken in (b"", held[:-2], held.replace(b'"rows":10', b'"rows":11', 1), encode_envelope("segment", {"files": []})):
        shelf.held[path] = broken
        with pytest.raises(CorruptStoreError, match="segments/"):
            shelf.decode(data)


def test_a_difference_that_drops_what_is_not_there_is_refused(make_record: MakeRecord) -> None:
    data, _ = encode_epoch(make_record(7), {}, Shelf().write)
    _, body = decode_envelope(data, kind="epoch", path="p")
    operators = dict(body["operators"])  # type: ignore[call-overload]
    operators["hourly"] = {**operators["hourly"], "files": {"segment": None, "added": [], "dropped": ["state/x"]}}
    with pytest.raises(CorruptStoreError, match="drops state/x"):
        Shelf().decode(encode_envelope("epoch", {**body, "operators": operators}))


@given(st.text(st.characters(codec=None, categories=None)))
def test_any_text_survives(text: str) -> None:
    assert decode_envelope(encode_envelope("x", {"text": text}), kind="x", path="p")[1] == {"text": text}
