"""The upkeep of a table, without Spark: few files, a short log, nothing lost, and nothing done that others would notice."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path
from unittest import mock

import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from tests.engine.delta_rig import COLUMNS, LINEAGE, WINDOWS, Rig, as_table, row
from tests.seeds import PROFILE, only_long
from tidemark.spark.sinks.delta import delta_maintenance
from tidemark.spark.sinks.delta.delta_files import LiveFile
from tidemark.spark.sinks.delta.delta_maintenance import CHECK_EVERY, MIN_FILES, NEW_TABLE, due
from tidemark.spark.sinks.delta.delta_rewrite import in_groups
from tidemark.spark.sinks.delta.delta_upsert import Upsert
from tidemark.spark.sinks.sinks import BoundSink, require_not_ahead
from tidemark.state.delta.delta_tags import CREATED

MANY = 2 * MIN_FILES + CHECK_EVERY
FEW, OFTEN = MIN_FILES // 4, CHECK_EVERY // 4
"""So few files are merged, and looked at so often, in tests of what happens around a merge; commits take most of their time."""


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture(params=[None, WINDOWS], ids=["append", "upsert"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    return Rig(tmp_path / "table", request.param)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have few files merged, and looked at often."""
    monkeypatch.setattr(delta_maintenance, "MIN_FILES", FEW)
    monkeypatch.setattr(delta_maintenance, "CHECK_EVERY", OFTEN)


def fill(rig: Rig, epochs: int) -> None:
    for _ in range(epochs):
        start = (rig.epoch + 1) * 10
        rig.run(row("a", start, rig.epoch), row("b", start, rig.epoch))


def always_looking() -> AbstractContextManager[object]:
    """Have files looked at behind every publication."""
    return mock.patch.object(delta_maintenance, "CHECK_EVERY", 1)


def maintained(table: DeltaTable) -> list[str]:
    """Return what was done for the table since it was made, oldest first."""
    done = [str(commit["tidemark.maintenance"]) for commit in reversed(table.history()) if "tidemark.maintenance" in commit]
    return [what for what in done if what != CREATED]


def test_small_files_are_merged(rig: Rig) -> None:
    fill(rig, MANY)
    assert maintained(rig.table) == ["compact"]
    assert len(rig.live) < MANY - MIN_FILES
    assert rig.rows == rig.expected
    require_not_ahead({"rows": BoundSink("rows", rig.sink)}, LINEAGE, rig.epoch)
    # What was merged is still there for those who read an older version.
    assert DeltaTable(str(rig.folder), version=MIN_FILES).to_pyarrow_table().num_rows == 2 * MIN_FILES
    # Streams that read the table see no change.
    changed = [action for commit in log_of(rig) for action in commit if commit[0]["commitInfo"].get("tidemark.maintenance") == "compact"]
    assert [action[kind]["dataChange"] for action in changed for kind in ("add", "remove") if kind in action].count(True) == 0


def log_of(rig: Rig) -> list[list[dict[str, dict[str, object]]]]:
    files = sorted((rig.folder / "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("step", ["crash_point", "rewrite"])
def test_killed_while_files_are_merged(rig: Rig, step: str) -> None:
    fill(rig, 2 * FEW)
    with mock.patch.object(delta_maintenance, step, side_effect=Killed), pytest.raises(Killed):
        fill(rig, OFTEN)
    assert rig.rows == rig.expected
    assert [path for path in rig.files_there() if "/compacted-" in path] != []
    epoch = rig.epoch
    rig.restart()
    fill(rig, 1)
    assert rig.epoch == epoch + 1
    assert rig.rows == rig.expected
    assert maintained(rig.table) == ["compact"]


@pytest.mark.usefixtures("few")
def test_a_merge_that_was_killed_is_swept_by_the_next_start(rig: Rig) -> None:
    fill(rig, 2 * FEW)
    record = rig.stage(row("a", 10_000))
    with always_looking(), mock.patch.object(delta_maintenance, "rewrite", side_effect=Killed), pytest.raises(Killed):
        rig.publish(record)
    (left,) = [path for path in rig.files_there() if "/compacted-" in path]
    rig.restart()
    rig.publish(record)
    assert maintained(rig.table) == ["compact"]
    assert left not in rig.files_there()
    assert rig.rows == rig.expected
    assert set(rig.live) <= rig.files_there()


@pytest.mark.usefixtures("few")
def test_another_commit_before_a_merge_puts_it_off(rig: Rig) -> None:
    fill(rig, 2 * FEW - 1)
    merged = rig.rewriter.merged

    def meanwhile(*arguments: object) -> object:
        rig.table.delete("k = 'b' AND n < 5")
        return merged(*arguments)  # type: ignore[arg-type]

    with mock.patch.object(rig.rewriter, "merged", meanwhile), always_looking():
        fill(rig, 1)
    assert maintained(rig.table) == []
    rig.model = {key: found for key, found in rig.model.items() if found["k"] != "b" or found["n"] >= 5}
    assert rig.rows == rig.expected
    assert [path for path in rig.files_there() if "/compacted-" in path] == []


@pytest.mark.usefixtures("few")
def test_upkeep_that_fails_is_put_off(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    fill(rig, 2 * FEW - 1)
    with (
        mock.patch.object(rig.rewriter, "merged", side_effect=OSError("no space left")),
        always_looking(),
    ):
        fill(rig, 1)
    assert "maintenance of its table is postponed: no space left" in caplog.text
    assert rig.rows == rig.expected
    fill(rig, OFTEN)
    assert maintained(rig.table) == ["compact"]


@pytest.mark.usefixtures("few")
def test_rows_that_a_merge_would_lose_keep_it_from_the_table(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    fill(rig, 2 * FEW - 1)
    with mock.patch.object(rig.rewriter, "merged", return_value=[]), always_looking():
        fill(rig, 1)
    assert f"[TM500] {4 * FEW} rows of the table were to be put into fewer files and 0 were written" in caplog.text
    assert rig.rows == rig.expected


@pytest.mark.usefixtures("few")
def test_files_of_others_are_theirs(tmp_path: Path) -> None:
    path = tmp_path / "table"
    for number in range(2 * FEW):
        write_deltalake(str(path), as_table([row("x", number)]), mode="append")
    theirs = set(map(str, DeltaTable(str(path)).get_add_actions()["path"].to_pylist()))
    rig = Rig(path, None)
    fill(rig, 2 * FEW + OFTEN)
    assert theirs < set(rig.live)
    assert len(rig.live) < len(theirs) + FEW + OFTEN


def file_of(size: int, number: int = 0) -> LiveFile:
    return LiveFile(f"tidemark-{number}/{size}.parquet", 1, size, number, {})


def test_what_is_due() -> None:
    large = 64 * 2**20
    small = [file_of(1000, number) for number in range(2 * MIN_FILES)]
    medium = [file_of(10**6, number) for number in range(MIN_FILES)]
    assert due(small[1:] + medium[1:], large) == []
    assert due(small + medium[1:], large) == [small]
    assert due(small[1:] + medium, large) == [medium]
    assert due([file_of(large // 2, number) for number in range(500)], large) == [], "large files are left alone"


def test_neighbours_are_put_together() -> None:
    files = [file_of(size, number) for number, size in enumerate([3, 4, 4, 20, 1, 9, 1])]
    assert [[file.bytes for file in group] for group in in_groups(files, 10)] == [[3, 4, 4], [20], [1, 9], [1]]
    assert in_groups(files, 42) == [files]
    assert in_groups([], 10) == []


def test_a_vacuum_keeps_to_the_table_s_own_settings(tmp_path: Path) -> None:
    kept, given_up = made(tmp_path / "kept"), made(tmp_path / "given_up", deletedFileRetentionDuration="interval 0 seconds")
    for rig in (kept, given_up):
        rig.run(row("a", 0, 1))
        rig.run(row("a", 0, 2))
        assert len(rig.files_there()) == 2
        rig.restart()
        rig.run(row("a", 10, 3))
        assert rig.rows == rig.expected
    assert len(kept.files_there()) == 3
    assert maintained(kept.table) == []
    assert given_up.files_there() == set(given_up.live)
    assert maintained(given_up.table) == []
    assert len(list(given_up.folder.glob("tidemark-*"))) == 2, "emptied folders go"


def test_settings_of_new_tables(rig: Rig) -> None:
    rig.run(row("a", 0))
    assert rig.table.metadata().configuration == NEW_TABLE


def made(path: Path, **settings: str) -> Rig:
    """Return a rig on a table that was made with other settings than Tidemark's."""
    configuration: dict[str, str | None] = {f"delta.{key}": value for key, value in settings.items()}
    DeltaTable.create(str(path), Schema.from_arrow(COLUMNS), configuration=configuration)
    return Rig(path, WINDOWS)


COMMITS, SCALE = (10_000, 1) if PROFILE == "long" else (100, 4)
"""So many commits that files and logs would pass the bounds below by far if nothing were merged or given up.

Where somebody waits, all bounds and intervals are so many times smaller.
"""


@pytest.mark.slow
@pytest.mark.parametrize("upsert", [pytest.param(None, id="append"), pytest.param(WINDOWS, id="upsert", marks=only_long)])
def test_many_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upsert: Upsert | None) -> None:
    """Each epoch has a new window and, upserting, a newer pane of the one before; logs are given up at once."""
    for interval in ("MIN_FILES", "CHECK_EVERY", "LOG_EVERY"):
        monkeypatch.setattr(delta_maintenance, interval, getattr(delta_maintenance, interval) // SCALE)
    made(
        tmp_path / "table",
        logRetentionDuration="interval 0 seconds",
        deletedFileRetentionDuration="interval 0 seconds",
        checkpointInterval=str(100 // SCALE),
    )
    rig = Rig(tmp_path / "table", upsert)
    live, logs = [], []
    for _ in range(COMMITS):
        start = (rig.epoch + 1) * 10
        again = [row("a", start - 10, pane=1)] if upsert and start else []
        rig.publish(rig.stage(row("a", start), row("b", start), *again))
        if rig.epoch % (20 // SCALE) == 0:
            live.append(len(rig.sink.visible_files()))
            logs.append(len(list((rig.folder / "_delta_log").iterdir())))
    assert rig.rows == rig.expected
    assert max(live) < 150 // SCALE
    assert max(logs) < 300 // SCALE
