"""A Delta table that loses epochs under its sink: refused before anything is written, whatever came over it; no Spark runs here."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from logging import LogRecord
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.engine.delta_rig import LINEAGE, WINDOWS, Rig, as_table, in_numbers, row
from tests.engine.table_losses import LOSSES, log_entries_deleted, newest_epochs_files, removed, restored
from tests.killed import kill_at
from tidemark.errors import MissingEpochsError
from tidemark.savepoints.delta.folder_note import KIND, FolderNote
from tidemark.savepoints.delta.missing_records import Retained
from tidemark.spark.sinks.delta.delta_upsert import Upsert
from tidemark.spark.sinks.parquet_sink import ParquetSink
from tidemark.spark.sinks.staging.missing import Expected
from tidemark.state.delta.delta_tags import REPUBLISHED
from tidemark.state.encoding.codec import from_jsonable, to_jsonable
from tidemark.state.encoding.envelope import decode_envelope, encode_envelope
from tidemark.state.log.progress import EpochProgress
from tidemark.state.log.records import EpochRecord, OutputRecord

MODES: dict[str, Upsert | None] = {"append": None, "upsert": WINDOWS}


def four_epochs(folder: Path, mode: str) -> Rig:
    rig = Rig(folder, MODES[mode])
    for number in range(4):
        rig.run(row(f"k{number}", number * 10, number))
    return rig


def state_of(table: Path) -> object:
    return (DeltaTable(str(table)).version(), sorted(table.rglob("*.parquet"))) if (table / "_delta_log").exists() else None


@pytest.mark.parametrize("while_it_runs", [False, True], ids=["between", "while"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_it_is_refused(tmp_path: Path, loss: Callable[[Path], None], mode: str, while_it_runs: bool) -> None:  # noqa: FBT001
    rig = four_epochs(tmp_path / "table", mode)
    position = rig.sink.position
    assert position is not None
    loss(rig.folder)
    there = state_of(rig.folder)
    if not while_it_runs:
        rig.restart()
        rig.sink.expect(Expected(position))
    with pytest.raises(
        MissingEpochsError,
        match=r"up to epoch 3(, or later)?, at version \d+, and (its place is at version \d+|no longer holds any of that)",
    ):
        rig.sink.require_whole()
    if loss is not removed:
        # At the latest where the next epoch is published.
        with pytest.raises(MissingEpochsError):
            rig.run(row("k4", 40, 4))
        assert DeltaTable(str(rig.folder)).version() == there[0]  # type: ignore[index]
    assert state_of(rig.folder) is None or loss is not removed


def retained(folder: Path) -> Retained:
    """Return the epochs of a rig, as the job's log would have them."""
    outputs = [from_jsonable(OutputRecord, plain, path="") for plain in json.loads((folder / "records.json").read_text())]
    progress = EpochProgress("", LINEAGE, 0, 0, 0, 0, 0)
    records = (EpochRecord("taxi", LINEAGE, None, 1, n, 0, "", progress, outputs={"rows": output}) for n, output in enumerate(outputs))
    return Retained(tuple(records), complete=True)


def republish_in_process(folder: str, mode: str) -> None:
    """Publish again what is missing; called in a process of its own, which is killed on the way."""
    Rig(Path(folder) / "table", MODES[mode]).sink.republish(retained(Path(folder)))


def republish_files_in_process(folder: str) -> None:
    """The same to a folder of Parquet files."""
    files_sink(Path(folder)).republish(retained(Path(folder)))


def files_sink(folder: Path) -> ParquetSink:
    return ParquetSink("rows", str(folder / "folder"), job="taxi")


@pytest.mark.crash
@pytest.mark.parametrize(
    ("mode", "point", "done"),
    [
        ("append", "output-republished", 1),
        ("upsert", "output-republished", 1),
        ("upsert", "output-staged", 0),
        ("upsert", "output-staged:2", 1),
    ],
)
def test_killed_while_epochs_are_published_again(tmp_path: Path, mode: str, point: str, done: int) -> None:
    rig, records = Rig(tmp_path / "table", MODES[mode]), []
    for number in range(4):
        # Each replaces what the one before said of a window.
        rows = [row(f"k{number}", number * 10, number), *([row("same", 0, number, pane=number)] if mode == "upsert" else [])]
        records.append(rig.stage(*rows))
        rig.publish(records[-1])
    (tmp_path / "records.json").write_text(json.dumps(to_jsonable(records)))
    position = rig.sink.position
    DeltaTable(str(rig.folder)).restore(1)
    shown = {item["k"] for item in rig.rows} - {"same"}
    assert 0 < len(shown) < 3
    kill_at("tests.engine.test_lost_tables:republish_in_process", point, [str(tmp_path), mode])
    assert len({item["k"] for item in rig.rows} - {"same"}) == len(shown) + done
    rig.restart()
    rig.sink.expect(Expected(position))
    # What was published before the kill is there already.
    assert len([commit for commit in rig.table.history() if REPUBLISHED in commit]) == done
    assert rig.sink.republish(retained(tmp_path)) == tuple(range(4))[len(shown) :]
    assert len([commit for commit in rig.table.history() if REPUBLISHED in commit]) == 4 - len(shown)
    assert rig.rows == rig.expected
    rig.run(row("k4", 40, 4))
    assert rig.rows == rig.expected


@pytest.mark.crash
@pytest.mark.parametrize(("point", "files"), [("output-file-moved", 3), ("output-file-moved:2", 4), ("output-republished", 4)])
def test_killed_while_files_are_published_again(tmp_path: Path, point: str, files: int) -> None:
    """An older copy of the folder came back, with the staged files of two epochs that it does not show."""
    rig, sink = Rig(tmp_path / "folder", None), files_sink(tmp_path)
    staged = [rig.stage(row(f"a{number}", number), row(f"b{number}", number), files=2) for number in range(3)]
    records = [replace(record, sink="parquet") for record in staged]
    backup = tmp_path / "backup"
    for number, record in enumerate(records):
        sink.require_whole()
        sink.publish(record, LINEAGE, number)
        if number == 0:
            shutil.copytree(tmp_path / "folder", backup)
    position = sink.position
    assert position is not None
    (tmp_path / "records.json").write_text(json.dumps(to_jsonable(records)))
    shutil.rmtree(tmp_path / "folder")
    shutil.copytree(backup, tmp_path / "folder")
    kill_at("tests.engine.test_lost_tables:republish_files_in_process", point, [str(tmp_path)])
    assert len(list((tmp_path / "folder").glob("part-*.parquet"))) == files
    again = files_sink(tmp_path)
    again.expect(Expected(position))
    with pytest.raises(MissingEpochsError, match="an older copy of it was restored"):
        again.require_whole()
    assert again.republish(retained(tmp_path)) == ((2,) if point == "output-republished" else (1, 2))
    again.require_whole()
    found = pq.ParquetDataset(str(tmp_path / "folder")).read()["k"].to_pylist()
    assert sorted(found) == sorted(f"{letter}{number}" for letter in "ab" for number in range(3))


@pytest.mark.parametrize("mode", MODES)
def test_what_others_may_do_goes_on(tmp_path: Path, mode: str, caplog: pytest.LogCaptureFixture) -> None:
    rig = four_epochs(tmp_path / "table", mode)
    place = str(rig.folder)
    DeltaTable(place).delete("k = 'k1'")
    rig.run(row("k4", 40, 4))
    assert [text for text in map(LogRecord.getMessage, caplog.records) if "is a DELETE" in text]
    caplog.clear()
    DeltaTable(place).update(predicate="k = 'k2'", updates={"n": "77"})
    write_deltalake(place, as_table([row("foreign", 1)]), mode="append")
    DeltaTable(place).optimize.compact()
    version = DeltaTable(place).version()
    write_deltalake(place, as_table([row("mistake", 1)]), mode="append")
    DeltaTable(place).restore(version)
    DeltaTable(place).vacuum(dry_run=False)
    rig.sink.require_whole()
    rig.sink.require_whole()
    assert len([text for text in map(LogRecord.getMessage, caplog.records) if "is an UPDATE" in text]) == 1
    position = rig.sink.position
    rig.restart()
    rig.sink.expect(Expected(position))
    rig.run(row("k5", 50, 5))
    found = {(item["k"], item["n"]) for item in rig.rows}
    assert found == {("k0", 0), ("k2", 77), ("k3", 3), ("k4", 4), ("k5", 5), ("foreign", 0)}


@pytest.mark.parametrize("mode", MODES)
def test_entries_that_expired_say_nothing_against_it(tmp_path: Path, mode: str) -> None:
    rig = four_epochs(tmp_path / "table", mode)
    position = rig.sink.position
    write_deltalake(str(rig.folder), as_table([row("foreign", 1)]), mode="append")
    table = DeltaTable(str(rig.folder))
    table.create_checkpoint()
    for entry in sorted((rig.folder / "_delta_log").glob("*.json"))[:-1]:
        entry.unlink()
    write_deltalake(str(rig.folder), as_table([row("foreign", 1)]), mode="append")
    rig.restart()
    rig.sink.expect(Expected(position))
    rig.run(row("k4", 40, 4))
    assert len(rig.rows) == 7


@pytest.mark.parametrize("mode", MODES)
def test_data_files_that_are_deleted_under_the_log(tmp_path: Path, mode: str) -> None:
    """Of the newest epoch that is seen before the next is published, of any at a start; accepted, they leave a table that can be read."""
    rig = four_epochs(tmp_path / "table", mode)
    position = rig.sink.position
    whole = {path: (rig.folder / path).read_bytes() for path in rig.live}
    for path in newest_epochs_files(rig.folder):
        (rig.folder / path).unlink()
    record, version = rig.stage(row("k4", 40, 4)), rig.table.version()
    with pytest.raises(MissingEpochsError, match=r"deleted, though version \d+ of its table shows.*tidemark-.*--missing-epochs accept"):
        rig.publish(record)
    rig.restart()
    rig.sink.expect(Expected(position))
    with pytest.raises(MissingEpochsError, match="--missing-epochs accept"):
        rig.sink.require_whole()
    assert rig.table.version() == version
    # Who puts the files back has lost nothing.
    for path, data in whole.items():
        (rig.folder / path).write_bytes(data)
    rig.publish(record)
    assert rig.rows == rig.expected

    position, oldest = rig.sink.position, min(rig.live, key=lambda path: (rig.folder / path).stat().st_mtime_ns)
    lost = {item["k"] for item in in_numbers(pq.read_table(rig.folder / oldest))}
    (rig.folder / oldest).unlink()
    rig.restart()
    rig.sink.expect(Expected(position))
    with pytest.raises(MissingEpochsError, match=oldest):
        rig.sink.require_whole()
    with pytest.raises(MissingEpochsError, match="cannot be published again: 1 of the files that its table shows are deleted"):
        rig.sink.require_republishable(Retained((), complete=True))
    rig.sink.adopt()
    assert rig.sink.position is not None
    for _ in range(2):
        assert {item["k"] for item in rig.rows} == {item["k"] for item in rig.expected} - lost
        rig.sink.require_whole()
        rig.restart()
        rig.sink.expect(Expected(position))
    rig.run(row("k5", 50, 5))
    assert {item["k"] for item in rig.rows} == {item["k"] for item in rig.expected} - lost


def test_of_files_that_were_rewritten_none_is_missed(tmp_path: Path) -> None:
    rig = four_epochs(tmp_path / "table", "append")
    files = list(rig.live)
    DeltaTable(str(rig.folder)).optimize.compact()
    for path in files:
        (rig.folder / path).unlink()
    rig.run(row("k4", 40, 4))
    position = rig.sink.position
    rig.restart()
    rig.sink.expect(Expected(position))
    rig.run(row("k5", 50, 5))
    assert rig.rows == rig.expected


def test_a_mistake_that_is_undone_is_none(tmp_path: Path) -> None:
    rig = four_epochs(tmp_path / "table", "append")
    version = DeltaTable(str(rig.folder)).version()
    restored(rig.folder)
    with pytest.raises(MissingEpochsError):
        rig.sink.require_whole()
    DeltaTable(str(rig.folder)).restore(version)
    rig.run(row("k4", 40, 4))
    assert rig.rows == rig.expected


def test_of_a_job_of_an_earlier_build_the_transaction_tells(tmp_path: Path) -> None:
    rig = four_epochs(tmp_path / "table", "append")
    rig.restart()
    rig.sink.expect(Expected(newest=(LINEAGE, 3)))
    rig.sink.require_whole()
    log_entries_deleted(rig.folder)
    for newest, refused in (((LINEAGE, 3), True), ((LINEAGE, 1), False)):
        rig.restart()
        rig.sink.expect(Expected(newest=newest))
        if refused:
            with pytest.raises(MissingEpochsError, match="its newest transaction is of epoch 1"):
                rig.sink.require_whole()
        else:
            rig.sink.require_whole()
    removed(rig.folder)
    rig.restart()
    rig.sink.expect(Expected(newest=(LINEAGE, 3)))
    with pytest.raises(MissingEpochsError, match="there is no table any more"):
        rig.sink.require_whole()


def test_the_first_rows_are_lost_with_the_table(tmp_path: Path) -> None:
    """The newest epoch is the only one, so that no record tells of a position with rows."""
    rig = Rig(tmp_path / "table", None)
    rig.sink.require_whole()
    position, record = rig.sink.position, rig.stage(row("k0", 0))
    rig.publish(record)
    for loss, what in ((lambda table: DeltaTable(str(table)).restore(0), "RESTORE to version 0"), (removed, "staged for it are deleted")):
        loss(rig.folder)
        rig.restart()
        rig.sink.expect(Expected(position))
        with pytest.raises(MissingEpochsError, match=what):
            rig.publish(record)
        assert not (rig.folder / "_delta_log").exists() or rig.table.version() == 2


def test_another_table_that_was_there_before_is_taken_as_it_is(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "table"), as_table([row("before", 1)]))
    rig = Rig(tmp_path / "table", None)
    rig.sink.require_whole()
    DeltaTable(str(rig.folder)).delete()
    rig.run(row("k0", 0))
    assert [item["k"] for item in rig.rows] == ["k0"]


def folder_emptied(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def folder_replaced(folder: Path) -> None:
    folder_emptied(folder)
    pq.write_table(as_table([row("k", 1)]), folder / "part-0.parquet")


def test_a_folder_of_files(tmp_path: Path) -> None:
    """One that is restored, emptied, removed or replaced is refused; files that readers move are not missed where the job says so."""

    def sink(*, readers_move_files: bool = False) -> ParquetSink:
        return ParquetSink("rows", str(tmp_path / "folder"), job="taxi", readers_move_files=readers_move_files)

    rig = Rig(tmp_path / "folder", None)
    first = sink()
    backup = tmp_path / "backup"
    records = [rig.stage(row("k", number)) for number in range(3)]
    for number, record in enumerate(records):
        first.require_whole()
        first.publish(record, LINEAGE, number)
        if number == 1:
            shutil.copytree(tmp_path / "folder", backup)
    position = first.position
    assert position is not None
    assert (position.epoch, position.version) == (2, 3)
    for file in (tmp_path / "folder").glob("*.parquet"):
        file.unlink()
    moving = sink(readers_move_files=True)
    for looking in (moving, first):
        looking.expect(Expected(position))
    moving.require_whole()
    with pytest.raises(MissingEpochsError, match="no longer holds any file of that epoch"):
        first.require_whole()

    def restore(folder: Path) -> None:
        shutil.rmtree(folder)
        shutil.copytree(backup, folder)

    for loss, what in (
        (folder_emptied, "no longer holds any of that"),
        (shutil.rmtree, "no longer holds any of that"),
        (folder_replaced, "no longer holds any of that"),
        (restore, "is at version 2"),
    ):
        loss(tmp_path / "folder")
        again = sink()
        again.expect(Expected(position))
        for looking in (first, again):
            with pytest.raises(MissingEpochsError, match=what):
                looking.require_whole()
            with pytest.raises(MissingEpochsError, match=what):
                looking.publish(records[-1], LINEAGE, 3)


def test_a_folders_note_is_written_and_read_as_ever() -> None:
    frozen = (Path(__file__).parent / "golden" / "published-1.json").read_bytes()
    note = FolderNote("f00d", 3, "a1", 7)
    assert encode_envelope(KIND, to_jsonable(note)) == frozen
    assert from_jsonable(FolderNote, decode_envelope(frozen, kind=KIND, path="p")[1], path="p") == note
