"""What epochs read of a Delta table, by its log; without Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import tidemark as tm
from tests.delta_source.tables import FEED, append, entry, plan, planner_of, rides, source_of, version_of
from tidemark.errors import ColumnError, DefinitionError, SourceError
from tidemark.savepoints.model.source_kinds import kind_of_position, source_status
from tidemark.state.status.status import SourceStatus


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three versions: 3 rows, 2 rows, 4 rows."""
    path = tmp_path / "rides"
    for first, count in ((0, 3), (3, 2), (5, 4)):
        append(path, rides(first, count))
    return path


def versions(epochs: list[tuple[list[Any], dict[str, Any]]]) -> list[list[int]]:
    return [[file.version for file in files] for files, _ in epochs]


def test_a_snapshot_then_versions(table: Path) -> None:
    source = source_of(table)
    planner = planner_of(source)
    ((files, position),) = plan(planner, source)
    assert sum(file.rows or 0 for file in files) == 9
    assert position == {**position, "reservoirVersion": 3, "index": -1, "isStartingVersion": False}
    append(table, rides(9, 1))
    append(table, rides(10, 1))
    ((files, position),) = plan(planner, source)
    assert [file.version for file in files] == [3, 4]
    assert position["reservoirVersion"] == 5
    assert list(plan(planner, source)) == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"from_version": 1}, [[1, 2]]),
        ({"from_version": 0, "max_versions_per_epoch": 1}, [[0], [1], [2]]),
        ({"from_version": 0, "max_bytes_per_epoch": 1}, [[0], [1], [2]]),
        ({"from_version": 3}, []),
        ({"start": "latest"}, [[]]),
        ({"max_bytes_per_epoch": 1}, [[2], [2], [2]]),
    ],
)
def test_where_it_begins_and_how_much_it_takes(table: Path, options: dict[str, Any], expected: list[list[int]]) -> None:
    source = source_of(table, **options)
    assert versions(list(plan(planner_of(source), source))) == expected


def test_the_latest_version_is_that_of_the_first_run(table: Path) -> None:
    source = source_of(table, start="latest")
    ((files, position),) = plan(planner_of(source), source)
    assert (files, position["reservoirVersion"]) == ([], 3)
    append(table, rides(9, 1))
    assert versions(list(plan(planner_of(source, position), source))) == [[3]]


def test_it_is_known_as_a_delta_table_to_savepoints(table: Path) -> None:
    source = source_of(table, start="latest")
    ((_, position),) = plan(planner_of(source), source)
    assert kind_of_position(position) == "delta"
    assert source_status(source) == SourceStatus("delta", str(table))


def test_each_position_resumes_without_gap_or_double(tmp_path: Path) -> None:
    path = tmp_path / "rides"
    for first in (0, 8):
        zones = pa.table({"id": range(first, first + 8), "zone": list("abcdabcd"), "fare": [1.0] * 8})
        append(path, zones, partition_by=["zone"])
    for options in ({}, {"from_version": 0}):
        source = source_of(path, max_bytes_per_epoch=1, **options)
        epochs = list(plan(planner_of(source), source))
        every = [file.path for files, _ in epochs for file in files]
        assert len(every) == len(set(every)) == len(epochs) == 8
        for number, (_, position) in enumerate(epochs, start=1):
            rest = [file.path for files, _ in plan(planner_of(source, position), source) for file in files]
            assert rest == every[number:]


def test_start_at_a_time(table: Path) -> None:
    for version, hour in enumerate((8, 9, 10)):
        lines = [json.loads(line) for line in entry(table, version).read_text().splitlines()]
        at = datetime(2026, 11, 26, hour, tzinfo=UTC)
        info = next(line["commitInfo"] for line in lines if "commitInfo" in line)
        info["timestamp"] = round(at.timestamp() * 1000)
        entry(table, version).write_text("\n".join(map(json.dumps, lines)))
    for text, expected in (("2026-11-26T09:00:00+00:00", [[1, 2]]), ("2026-11-26T09:30:00+00:00", [[2]]), ("2026-11-26T11:00:00Z", [])):
        source = source_of(table, from_timestamp=text)
        assert versions(list(plan(planner_of(source), source))) == expected
    source = source_of(table, from_timestamp="2020-01-01T00:00:00Z")
    assert versions(list(plan(planner_of(source), source))) == [[0, 1, 2]]
    DeltaTable(str(table)).create_checkpoint()
    entry(table, 0).rename(table / "gone")
    with pytest.raises(SourceError, match="has no log before version 1"):
        planner_of(source)


def test_rewritten_rows_are_refused_by_name_or_skipped(table: Path) -> None:
    source = source_of(table, from_version=2)
    planner = planner_of(source)
    DeltaTable(str(table)).delete("id = 1")
    append(table, rides(9, 1))
    # What came before is read.
    planner.look()
    taken = planner.take(source, None)
    assert taken is not None
    assert taken.caught_up is False
    refused = r"deletes or replaces rows in version 3 \(DELETE\).*on_rewrite='skip'"
    # A drain does not end as if there were no more.
    assert planner.has_unread
    with pytest.raises(SourceError, match=refused):
        planner.take(source, None)
    with pytest.raises(SourceError, match=refused):
        planner.look()
    skipping = source_of(table, on_rewrite="skip")
    assert versions(list(plan(planner_of(skipping, taken.position), skipping))) == [[4]]
    write_deltalake(str(table), rides(0, 1), mode="overwrite")
    with pytest.raises(SourceError, match=r"version 5 \(WRITE\)"):
        planner_of(source, {**dict(json.loads(json.dumps(taken.position))), "reservoirVersion": 5, "entryDigest": None}).look()


def test_compaction_is_no_change(table: Path) -> None:
    source = source_of(table, from_version=3)
    planner = planner_of(source)
    DeltaTable(str(table)).optimize.compact()
    planner.look()
    assert not planner.has_unread
    append(table, rides(9, 1))
    assert versions(list(plan(planner, source))) == [[4]]


def test_versions_that_are_gone(table: Path) -> None:
    source = source_of(table, from_version=0, max_versions_per_epoch=1)
    DeltaTable(str(table)).create_checkpoint()
    entry(table, 0).rename(table / "gone")
    with pytest.raises(SourceError, match="no longer has version 0, which comes next: its log was cleaned up"):
        planner_of(source).look()


def test_files_that_were_vacuumed(table: Path) -> None:
    source = source_of(table)
    planner = planner_of(source)
    planner.look()
    next(table.glob("*.parquet")).unlink()
    with pytest.raises(SourceError, match=r"no longer has file .* of version 2.*vacuumed"):
        planner.take(source, None)


def test_schema_changes(table: Path) -> None:
    source = source_of(table, start="latest")
    planner = planner_of(source)
    more = rides(9, 1).append_column("tip", pa.array([1.0]))
    append(table, more, schema_mode="merge")
    # The first epoch records where the source began.
    assert versions(list(plan(planner, source))) == [[], [3]]
    source = source_of(table, from_version=4)
    text = entry(table, 3).read_text()
    for wrong, what in (('\\"fare\\"', "column 'fare' is missing"), ('\\"type\\":\\"long\\"', "column 'id' is STRING, and BIGINT")):
        changed = text.replace(wrong, '\\"fares\\"' if "fare" in wrong else '\\"type\\":\\"string\\"')
        assert changed != text
        planner = planner_of(source)
        entry(table, 4).write_text(changed)
        with pytest.raises(SourceError, match=f"since version 4: {what}"):
            planner.look()
        with pytest.raises(SourceError, match="cannot be read with the schema"):
            planner_of(source)
        entry(table, 4).unlink()


@pytest.mark.parametrize(
    ("action", "what"),
    [
        ({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}}, "has deletion vectors"),
        ({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["catalogManaged"]}}, "needs catalogManaged"),
        ({"add": {"path": "x", "size": 1, "dataChange": True, "deletionVector": {"storageType": "u"}}}, "has deletion vectors"),
        ({"add": {"path": "s3://other/x", "size": 1, "dataChange": True}}, "files outside its folder"),
    ],
)
def test_what_cannot_be_read_is_named(table: Path, action: dict[str, Any], what: str) -> None:
    planner = planner_of(source_of(table, from_version=3))
    entry(table, 3).write_text(json.dumps(action))
    with pytest.raises(SourceError, match=what):
        planner.look()


def test_another_table_at_the_place(table: Path, tmp_path: Path) -> None:
    source = source_of(table)
    ((_, position),) = plan(planner_of(source), source)
    table.rename(tmp_path / "old")
    append(table, rides(0, 1))
    with pytest.raises(SourceError, match="is another one than the job has read"):
        planner_of(source, position)
    with pytest.raises(SourceError, match="does not exist"):
        planner_of(source_of(tmp_path / "none"))


def test_a_drain_ends_at_the_version_that_it_began_with(table: Path) -> None:
    source = source_of(table, from_version=0, max_versions_per_epoch=2)
    planner = planner_of(source)
    planner.fix_end()
    append(table, rides(9, 1))
    assert versions(list(plan(planner, source))) == [[0, 1], [2]]


def test_the_backlog_is_of_unread_files(table: Path) -> None:
    source = source_of(table, from_version=0, max_versions_per_epoch=1)
    planner = planner_of(source)
    planner.look()
    planner.take(source, None)
    metrics = planner.metrics()
    assert metrics["numInputRows"] == 3
    assert cast("dict[str, str]", metrics["metrics"])["numFilesOutstanding"] == "2"


def test_changes_are_those_of_the_feed_or_of_the_files(tmp_path: Path) -> None:
    kinds = {}
    for name, configuration in (("feed", FEED), ("files", {})):
        path = tmp_path / name
        append(path, rides(0, 3), configuration=configuration)
        DeltaTable(str(path)).update(updates={"fare": "fare + 1"}, predicate="id = 1")
        DeltaTable(str(path)).delete("id = 2")
        source = source_of(path, changes=True, from_version=0, max_bytes_per_epoch=1)
        epochs = list(plan(planner_of(source), source))
        # A version is never divided.
        assert [len({file.version for file in files}) for files, _ in epochs] == [1, 1, 1]
        kinds[name] = [[file.change for file in files] for files, _ in epochs]
    assert kinds == {"feed": [["insert"], ["feed"], ["feed"]], "files": [["insert"], ["delete", "insert"], ["delete", "insert"]]}


def test_versions_without_rows_move_the_position(table: Path) -> None:
    source = source_of(table, from_version=3)
    planner = planner_of(source)
    for version in range(3, 3 + 64):
        entry(table, version).write_text(json.dumps({"commitInfo": {"timestamp": 1, "operation": "OPTIMIZE"}}))
    ((files, position),) = plan(planner, source)
    assert (files, position["reservoirVersion"]) == ([], 67)
    assert version_of(table) == 66


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"start": "end"}, "neither 'snapshot' nor 'latest'"),
        ({"from_version": -1}, "whole number of 0 or more"),
        ({"from_version": 1, "start": "latest"}, "begins at one place"),
        ({"from_timestamp": "yesterday"}, "no time with an offset"),
        ({"from_timestamp": "2026-11-26T08:00:00"}, "no time with an offset"),
        ({"on_rewrite": "ignore"}, "neither 'fail' nor 'skip'"),
        ({"changes": True, "on_rewrite": "skip"}, "reads rewritten rows as changes"),
        ({"changes": True, "schema": "_change_type STRING"}, "adds '_change_type'"),
        ({"max_bytes_per_epoch": 0}, "whole number of 1 or more"),
        ({"schema": "id LONGS"}, "cannot be read"),
    ],
)
def test_mistakes(options: dict[str, Any], what: str) -> None:
    with pytest.raises(DefinitionError, match=what):
        tm.delta_source("/rides", **{"schema": "id BIGINT", **options})


def test_changes_need_a_source_of_changes_and_a_key_of_its() -> None:
    timed = tm.ingestion_time()
    with pytest.raises(DefinitionError, match="does not read changes"):
        tm.delta_changes("rides", tm.delta_source("/rides", schema="id BIGINT"), key=["id"], watermarks=timed)
    with pytest.raises(ColumnError, match="names 'ride'"):
        tm.delta_changes("rides", tm.delta_source("/rides", schema="id BIGINT", changes=True), key=["ride"], watermarks=timed)
