"""Files of an epoch that readers took away before the folder's note had it: somebody was killed in between, and nothing is lost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.engine.delta_rig import LINEAGE, Rig, row
from tests.killed import kill_at
from tidemark.errors import MissingEpochsError
from tidemark.savepoints.delta.folder_note import note_path, read_note
from tidemark.spark.sinks.parquet_sink import ParquetSink
from tidemark.spark.sinks.staging.missing import Expected
from tidemark.state.encoding.codec import from_jsonable, to_jsonable
from tidemark.state.log.records import OutputRecord, ParentRef

pytestmark = pytest.mark.crash


def sink_of(place: Path, *, readers_move_files: bool = True) -> ParquetSink:
    return ParquetSink("rows", str(place / "folder"), job="taxi", readers_move_files=readers_move_files)


def staged(place: Path, epochs: int) -> list[OutputRecord]:
    rig = Rig(place / "folder", None)
    return [replace(rig.stage(row(f"a{n}", n), row(f"b{n}", n), files=2), sink="parquet") for n in range(epochs)]


def publish_in_process(place: str, epoch: str) -> None:
    record = from_jsonable(OutputRecord, json.loads((Path(place) / "record.json").read_text()), path="record.json")
    sink = sink_of(Path(place))
    sink.expect(Expected(record.before))
    sink.publish(record, LINEAGE, int(epoch))


def taken(place: Path) -> list[str]:
    """Let readers take all files that they see."""
    files = sorted((place / "folder").glob("*.parquet"))
    for file in files:
        file.unlink()
    return [file.name for file in files]


@pytest.mark.parametrize("before", [0, 1], ids=["first", "later"])
@pytest.mark.parametrize(("point", "moved"), [("output-file-moved", 1), ("output-file-moved:2", 2)])
def test_files_that_readers_took_meanwhile_are_not_missed(tmp_path: Path, before: int, point: str, moved: int) -> None:
    records = staged(tmp_path, before + 2)
    sink = sink_of(tmp_path)
    sink.require_whole()
    for epoch in range(before):
        sink.publish(records[epoch], LINEAGE, epoch)
    taken(tmp_path)
    record = replace(records[before], before=sink.position)
    (tmp_path / "record.json").write_text(json.dumps(to_jsonable(record)))
    kill_at("tests.engine.test_moved_files:publish_in_process", point, [str(tmp_path), str(before)])
    assert len(taken(tmp_path)) == moved
    note = read_note(sink.staging, "taxi", "rows")
    assert note is not None
    assert (note.moving, note.count) == (ParentRef(LINEAGE, before), before)
    again = sink_of(tmp_path)
    again.expect(Expected(record.before))
    again.require_whole()
    again.publish(record, LINEAGE, before)
    assert len(taken(tmp_path)) == 2 - moved
    note = read_note(sink.staging, "taxi", "rows")
    assert note is not None
    assert (note.moving, note.count, note.epoch) == (None, before + 1, before)
    again.publish(replace(records[before + 1], before=again.position), LINEAGE, before + 1)
    assert len(taken(tmp_path)) == 2


def test_without_readers_that_move_files_they_are_missed(tmp_path: Path) -> None:
    (record, _) = staged(tmp_path, 2)
    sink = sink_of(tmp_path)
    sink.require_whole()
    record = replace(record, before=sink.position)
    (tmp_path / "record.json").write_text(json.dumps(to_jsonable(record)))
    kill_at("tests.engine.test_moved_files:publish_in_process", "output-file-moved:2", [str(tmp_path), "0"])
    taken(tmp_path)
    again = sink_of(tmp_path, readers_move_files=False)
    again.expect(Expected(record.before))
    with pytest.raises(MissingEpochsError, match=r"no longer holds any file of that epoch.*readers_move_files=True"):
        again.publish(record, LINEAGE, 0)


def test_staged_files_that_are_deleted_are_missed(tmp_path: Path) -> None:
    (record,) = staged(tmp_path, 1)
    sink = sink_of(tmp_path)
    sink.require_whole()
    for file in record.files:
        (tmp_path / "folder" / file.path).unlink()
    with pytest.raises(MissingEpochsError, match="the files that were staged for it are deleted"):
        sink.publish(replace(record, before=sink.position), LINEAGE, 0)
    assert not (tmp_path / "folder" / note_path("taxi", "rows")).exists()
