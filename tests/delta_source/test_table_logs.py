"""Tables whose logs are not as their readers expect: replaced, reset, cleaned up, or written by other writers; without Spark."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.delta_source.tables import append, entry, plan, planner_of, rides, source_of, version_of
from tidemark.errors import SourceError
from tidemark.savepoints.delta.delta_log_damage import damaged_entry
from tidemark.savepoints.delta.table_entries import entry_of
from tidemark.spark.sources.delta_tables.logged_versions import DataFile, logged_version
from tidemark.spark.sources.delta_tables.positions import TablePosition, UnreadVersion, is_in_snapshot, take
from tidemark.spark.sources.delta_tables.table_reader import TableReader


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three versions: 3 rows, 2 rows, 4 rows."""
    path = tmp_path / "rides"
    for first, count in ((0, 3), (3, 2), (5, 4)):
        append(path, rides(first, count))
    return path


def versions(epochs: Sequence[tuple[list[DataFile], dict[str, Any]]]) -> list[list[int]]:
    return [[file.version for file in files] for files, _ in epochs]


def rewrite(path: Path, version: int, **changed: Any) -> None:
    """Change fields of the actions of an entry; a field is removed where it is None."""
    lines = [json.loads(line) for line in entry(path, version).read_text(encoding="utf-8").split("\n") if line]
    for name, fields in changed.items():
        for action in (line[name] for line in lines if name in line):
            action.update(fields)
            for field in [field for field, value in fields.items() if value is None]:
                del action[field]
    entry(path, version).write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")


def recreate(path: Path, versions: int, **options: Any) -> None:
    """Put another table in a table's place."""
    shutil.rmtree(path)
    for number in range(versions):
        append(path, rides(100 + number, 1), **options)


def test_characters_that_end_lines_elsewhere_do_not_end_actions() -> None:
    odd = "a\u2028b\u2029c\u0085d\u000be"
    info = {"timestamp": 7, "operation": "WRITE", "userMetadata": odd}
    added = {"path": "x", "size": 1, "dataChange": True, "partitionValues": {"zone": odd}, "stats": '{"numRecords":1}'}
    data = "\n".join(json.dumps(each, ensure_ascii=False) for each in ({"commitInfo": info}, {"add": added})).encode()
    assert logged_version(1, data).added[0].partition == {"zone": odd}
    assert entry_of(1, data).added == ("x",)


def test_such_an_entry_is_not_damaged(table: Path) -> None:
    rewrite(table, 2, commitInfo={"userMetadata": "x"})
    text = entry(table, 2).read_text(encoding="utf-8")
    entry(table, 2).write_text(text.replace('"x"', '"a\u2028b\u0085c"'), encoding="utf-8")
    assert damaged_entry(str(table)) is None


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_table_that_is_created_again_during_a_run(table: Path, count: int) -> None:
    source = source_of(table)
    planner = planner_of(source)
    list(plan(planner, source))
    recreate(table, count)
    # The entry that made the new table has another id, which later ones do not repeat.
    refused = r"is another one than the job has read|is not the one that the job has read|older state"
    if count == 3:
        # Nothing follows yet, and the last version is there.
        planner.look()
        append(table, rides(200, 1))
    with pytest.raises(SourceError, match=refused):
        planner.look()


def test_a_table_that_is_replaced_by_a_backup(table: Path, tmp_path: Path) -> None:
    source = source_of(table)
    backup = tmp_path / "backup"
    shutil.copytree(table, backup)
    for first in (20, 21):
        append(table, rides(first, 1))
    planner = planner_of(source)
    ((_, position),) = plan(planner, source)
    assert position["reservoirVersion"] == 5
    sleeping = planner_of(source, position)
    shutil.rmtree(table)
    shutil.copytree(backup, table)
    for stopped in (planner.look, lambda: planner_of(source, position)):
        with pytest.raises(SourceError, match="was reset to an older state: its newest version is 2, and version 4 was read"):
            stopped()
    # It is written since, up to and past the position, with the same id.
    for number in range(4):
        append(table, rides(30 + number, 1))
        with pytest.raises(SourceError, match="older state" if number == 0 else "version 4 is another one, as after the table was created"):
            planner_of(source, position)
    with pytest.raises(SourceError, match="version 4 is another one"):
        sleeping.look()


def test_positions_without_a_checksum_resume(table: Path) -> None:
    source = source_of(table)
    ((_, position),) = plan(planner_of(source), source)
    del position["entryDigest"]
    append(table, rides(9, 1))
    assert versions(list(plan(planner_of(source, position), source))) == [[3]]


def test_a_log_that_is_cleaned_up_during_a_run(table: Path) -> None:
    source = source_of(table)
    planner = planner_of(source)
    list(plan(planner, source))
    for first in (10, 11, 12):
        append(table, rides(first, 1))
    DeltaTable(str(table)).create_checkpoint()
    for version in range(4):
        entry(table, version).unlink()
    with pytest.raises(SourceError, match="no longer has version 3, which comes next: its log was cleaned up"):
        planner.look()


def test_all_of_a_log_is_in_a_checkpoint(table: Path) -> None:
    source = source_of(table)
    planner = planner_of(source)
    list(plan(planner, source))
    DeltaTable(str(table)).create_checkpoint()
    for version in range(3):
        entry(table, version).unlink()
    planner.look()
    assert not planner.has_unread
    added = {"path": "next.parquet", "size": 1, "partitionValues": {}, "modificationTime": 1, "dataChange": True}
    entry(table, 3).write_text(json.dumps({"add": added}))
    (table / "next.parquet").touch()
    assert versions(list(plan(planner, source))) == [[3]]


def test_versions_without_a_time_have_that_of_their_entry(table: Path) -> None:
    for version, seconds in enumerate((100, 300, 200)):
        rewrite(table, version, commitInfo={"timestamp": None})
        os.utime(entry(table, version), (seconds, seconds))
    source = source_of(table, from_version=0)
    ((files, _),) = plan(planner_of(source), source)
    assert [file.at for file in files] == [100_000, 300_000, 200_000]
    ((files, _),) = plan(planner_of(source_of(table)), source_of(table))
    assert {file.at for file in files} == {200_000}
    source = source_of(table, from_timestamp="1970-01-01T00:04:00+00:00")
    assert versions(list(plan(planner_of(source), source))) == [[1, 2]]


def test_clocks_of_writers_that_disagree(table: Path) -> None:
    for version, at in enumerate((50, 100, 90)):
        rewrite(table, version, commitInfo={"timestamp": at})
    append(table, rides(9, 1))
    rewrite(table, 3, commitInfo={"timestamp": 110})
    for ms, first in ((40, 0), (51, 1), (95, 1), (100, 1), (101, 2), (102, 3), (111, None)):
        text = f"1970-01-01T00:00:00.{ms:03d}+00:00"
        source = source_of(table, from_timestamp=text, max_versions_per_epoch=9)
        expected = [] if first is None else [list(range(first, 4))]
        assert versions(list(plan(planner_of(source), source))) == expected, ms


def test_a_time_that_no_version_has_reached_yet(table: Path) -> None:
    """Versions before it are left out, whatever they do, and whenever they come."""
    source = source_of(table, from_timestamp="2100-01-01T00:00:00+00:00")
    at = 4_102_444_800_000
    planner = planner_of(source)
    DeltaTable(str(table)).delete("id = 1")
    append(table, rides(9, 1))
    assert list(plan(planner, source)) == []
    assert list(plan(planner_of(source), source)) == []
    append(table, rides(10, 1))
    rewrite(table, 5, commitInfo={"timestamp": at + 10})
    append(table, rides(11, 1))
    rewrite(table, 6, commitInfo={"timestamp": at - 10})
    for each in (planner, planner_of(source)):
        ((files, position),) = plan(each, source)
        assert [file.version for file in files] == [5, 6]
        assert position["reservoirVersion"] == 7


def test_the_schema_is_that_of_the_position(table: Path) -> None:
    """A column that is dropped later ends the source there, not before what came before it."""
    lost = rides(20, 1).drop_columns(["fare"])
    source = source_of(table, from_version=1, on_rewrite="skip", max_versions_per_epoch=1)
    write_deltalake(str(table), lost, mode="overwrite", schema_mode="overwrite")
    planner = planner_of(source)
    planner.look()
    for version in (1, 2):
        taken = planner.take(source, None)
        assert taken is not None
        if version == 1:
            resumed = planner_of(source, json.loads(json.dumps(taken.position)))
            resumed.look()
            assert resumed.has_unread
    with pytest.raises(SourceError, match="since version 3: column 'fare' is missing"):
        planner.look()
    with pytest.raises(SourceError, match="since version 3: column 'fare' is missing"):
        planner_of(source_of(table))


@pytest.mark.parametrize("values", [None, {}])
def test_removed_files_without_their_partitions(tmp_path: Path, values: dict[str, str] | None) -> None:
    path = tmp_path / "rides"
    zones = pa.table({"id": [1, 2, 3], "zone": ["a b", "b", None], "fare": [1.0, 2.0, 3.0]})
    append(path, zones, partition_by=["zone"])
    DeltaTable(str(path)).delete("id = 1 OR id = 3")
    rewrite(path, 1, remove={"partitionValues": values})
    source = source_of(path, changes=True, from_version=1)
    ((files, _),) = plan(planner_of(source), source)
    assert sorted((file.change, str((file.partition or {})["zone"])) for file in files) == [("delete", "None"), ("delete", "a b")]
    # Where what was before it is not known, the version is refused.
    DeltaTable(str(path)).create_checkpoint()
    entry(path, 0).unlink()
    with pytest.raises(SourceError, match=r"can no longer be read in version 0"):
        planner_of(source).look()
    rewrite(path, 1, remove={"path": "zone=b/other"})
    plain = tmp_path / "plain"
    append(plain, rides(0, 3))
    DeltaTable(str(plain)).delete("id = 1")
    rewrite(plain, 1, remove={"partitionValues": None})
    source = source_of(plain, changes=True, from_version=1)
    ((files, _),) = plan(planner_of(source), source)
    assert [(file.change, file.partition) for file in files] == [("delete", {}), ("insert", {})]


def test_partitions_of_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rides"
    parts = pa.table({"id": [1, 2], "hash": pa.array([b"a", b"\xff"], pa.binary())})
    append(path, parts.slice(0, 1), partition_by=["hash"])
    with pytest.raises(SourceError, match="partition column 'hash' of type BINARY since version 0"):
        planner_of(source_of(path, schema="id BIGINT, hash BINARY"))
    source = source_of(path, schema="id BIGINT")
    assert len(list(plan(planner_of(source), source))) == 1


def test_a_snapshot_with_files_outside_its_folder_is_refused(table: Path) -> None:
    rewrite(table, 2, add={"path": "file:///elsewhere/part.parquet"})
    with pytest.raises(SourceError, match="has files outside its folder"):
        planner_of(source_of(table))


def test_an_empty_snapshot_shares_no_epoch(tmp_path: Path) -> None:
    path = tmp_path / "rides"
    append(path, rides(0, 1))
    DeltaTable(str(path)).delete()
    source = source_of(path)
    planner = planner_of(source)
    append(path, rides(1, 1))
    epochs = list(plan(planner, source))
    assert versions(epochs) == [[], [2]]
    spec = source.spec
    reader = TableReader(source, spec)  # type: ignore[arg-type]
    ends = [reader.resumed(position) for _, position in epochs]
    reader.begin(ends[0])
    assert [file.version for file in reader.between(ends[0], ends[1])] == [2]
    assert list(reader.between(TablePosition(ends[0].table, ends[0].version - 1, snapshot=True), ends[0])) == []
    assert version_of(path) == 2


def test_positions_say_whether_a_snapshot_is_read() -> None:
    files = tuple(DataFile(f"{number}", 1, 4, 0) for number in range(3))
    first = TablePosition("t", 4, snapshot=True, digest="d")
    unread = (UnreadVersion(4, files, snapshot=True, digest="d"), UnreadVersion(5, files, digest="e"))
    found = []
    for _ in range(4):
        taken = take(unread, first, max_bytes=2, max_versions=None, whole_versions=False)
        first, unread = taken.after, taken.left  # type: ignore[assignment]
        assert TablePosition.parse(first.as_stored()) == first
        found.append((first.version, first.index, is_in_snapshot(first.as_stored()), first.digest))
    assert found == [(4, 1, True, "d"), (5, -1, False, "d"), (5, 1, False, "d"), (6, -1, False, "e")]
