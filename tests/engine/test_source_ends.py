"""What an epoch took of a source tells whether there was more."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tidemark.graph.model.source_specs import FilesSpec, FormatSpec
from tidemark.semantics.watermarks.watermarks import SourceEnd
from tidemark.spark.sources.checkpoint import SparkCheckpoint
from tidemark.spark.sources.epoch_input import EpochInput, input_of_batch
from tidemark.spark.sources.source_ends import elements_end, files_end, format_end, may_have_unseen_rows
from tidemark.state.store.store import JobStore

ALL, PART, UNKNOWN = SourceEnd(caught_up=True), SourceEnd(caught_up=False), SourceEnd(caught_up=False, known=False)
BEFORE = {"rides": {"0": 10, "1": 20, "2": 30}}


def folder(*, most_files: int | None = None, most_bytes: int | None = None) -> FilesSpec:
    return FilesSpec("/in", "parquet", "k STRING", max_files_per_epoch=most_files, max_bytes_per_epoch=most_bytes)


def kafka(before: object, now: object, **options: str) -> SourceEnd:
    return format_end(FormatSpec("Kafka", {"subscribe": "rides", "kafka.max.poll.records": "1", **options}), before, now)


def moved(**offsets: int) -> Mapping[str, Mapping[str, int]]:
    return {"rides": {**BEFORE["rides"], **{name.removeprefix("p"): offset for name, offset in offsets.items()}}}


def test_elements_end_with_their_last_batch() -> None:
    assert [elements_end(3, taken).caught_up for taken in (0, 1, 2, 3)] == [False, False, False, True]
    assert elements_end(0, 1).caught_up


@pytest.mark.parametrize(
    ("spec", "files", "size", "end"),
    [
        (folder(most_files=3), 2, None, ALL),
        (folder(most_files=3), 3, None, PART),
        (folder(most_files=3), 0, None, ALL),
        (folder(most_bytes=100), 5, 50, ALL),
        (folder(most_bytes=100), 1, 51, PART),
        # One file may be larger than the bound.
        (folder(most_bytes=100), 1, 700, PART),
        (folder(most_bytes=100), 1, None, UNKNOWN),
        (folder(), 1000, 2**27, ALL),
        (folder(), 1, 2**27 + 1, PART),
    ],
)
def test_a_folder_is_read_to_its_end_unless_an_epoch_took_its_fill(spec: FilesSpec, files: int, size: int | None, end: SourceEnd) -> None:
    assert files_end(spec, files, size) == end


def test_kafka_without_a_bound_is_read_to_its_end() -> None:
    # Another option with "max" in its name is no bound.
    assert kafka(None, BEFORE) == ALL
    assert kafka(BEFORE, moved(p0=10**9)) == ALL


def test_kafka_with_a_bound_by_partition() -> None:
    most = {"maxOffsetsPerTrigger": "100"}
    assert kafka(BEFORE, moved(p0=107), **most) == ALL
    # Spark rounds each partition's part of the bound down: 33 of three partitions each are all that it takes of 100.
    assert not kafka(BEFORE, moved(p0=43, p1=53, p2=63), **most).caught_up
    full = kafka(BEFORE, moved(p0=109, p2=31), **most)
    assert not full.caught_up
    assert full.splits == {"rides-0": False, "rides-1": True, "rides-2": False}
    # A partition that was not there before began at 0, as far as is known.
    assert kafka(BEFORE, moved(p3=100), **most).splits["rides-3"] is False
    first = kafka(None, BEFORE, **most)
    assert (first.caught_up, first.known, set(first.splits.values())) == (False, False, {False})
    assert kafka(BEFORE, moved(p1=120), MAXOFFSETSPERTRIGGER="100") == SourceEnd(
        caught_up=False, splits={"rides-0": True, "rides-1": False, "rides-2": True}
    )


def test_kafka_that_waits_for_enough_records_may_have_some_unseen() -> None:
    assert kafka(BEFORE, BEFORE, minOffsetsPerTrigger="50") == UNKNOWN
    assert kafka(BEFORE, moved(p0=70), minOffsetsPerTrigger="50") == ALL
    assert may_have_unseen_rows(FormatSpec("kafka", {"minOffsetsPerTrigger": "50"}))
    assert not may_have_unseen_rows(FormatSpec("kafka", {"maxOffsetsPerTrigger": "50"}))
    assert not may_have_unseen_rows(FormatSpec("delta", {"minOffsetsPerTrigger": "50"}))


@pytest.mark.parametrize(
    ("spec", "end"),
    [
        (FormatSpec("json"), ALL),
        (FormatSpec("json", {"maxFilesPerTrigger": "5"}), UNKNOWN),
        (FormatSpec("json", {"maxColumns": "5", "maxRecordsPerBatch": "5"}), ALL),
        (FormatSpec("delta"), UNKNOWN),
        (FormatSpec("iceberg", {"streaming-max-rows-per-micro-batch": "5"}), UNKNOWN),
        (FormatSpec("rate-micro-batch", {"rowsPerBatch": "5"}), ALL),
        (FormatSpec("mine", {"maxFilesPerTrigger": "5"}), ALL),
    ],
)
def test_other_formats_with_a_bound_may_have_more_when_they_moved(spec: FormatSpec, end: SourceEnd) -> None:
    assert format_end(spec, {"v": 1}, {"v": 2}) == end
    assert format_end(spec, None, {"v": 2}) == end
    assert format_end(spec, {"v": 1}, {"v": 1}) == ALL
    assert format_end(spec, None, None) == ALL


def test_input_is_told_apart_by_what_it_reads(tmp_path: Path) -> None:
    def taken(**changes: object) -> EpochInput:
        settings: dict[str, object] = {"now": {"a": {"logOffset": 1}}, "files": {"a": ["1.json"]}, "batch": True, **changes}
        return EpochInput(**settings)  # type: ignore[arg-type]

    same = taken(offsets="v1 with another time in it", polled_at=7)
    assert same.digest(end_of_input=False) == taken().digest(end_of_input=False)
    others = [
        taken(now={"a": {"logOffset": 2}}),
        taken(files={"a": ["1.json", "2.json"]}),
        taken(batch=False),
    ]
    digests = {taken().digest(end_of_input=False), taken().digest(end_of_input=True), *(o.digest(end_of_input=False) for o in others)}
    assert len(digests) == 5
    checkpoint = SparkCheckpoint(JobStore.open(str(tmp_path)), 1)
    empty = input_of_batch(checkpoint, [], offsets='v2\n{}\na:{"logOffset":1}\nb:-', before="v2\n{}\na:-", polled_at=None)
    assert (empty.has_new_data("a"), empty.has_new_data("b"), empty.has_new_data("c")) == (True, False, False)
    checkpoint.close()
