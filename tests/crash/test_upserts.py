"""Killed between any two steps of an upsert, also while another writer is at the table, a job leaves what an undisturbed one leaves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

import tidemark as tm
from tests.crash import fares, upserts
from tests.killed import kill_at
from tests.seeds import only_long
from tidemark import crashpoints
from tidemark.cli.program.main import main
from tidemark.savepoints.rewind.rewinding import preview_rewind
from tidemark.spark.loop import late_publication
from tidemark.spark.sinks.delta import delta_merge
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.records import EpochRecord
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.slow]

UPSERTED = {"newest": ("zone", "window_start"), "last": ("zone",)}
Row = dict[str, Any]


@dataclass(frozen=True)
class Undisturbed:
    """What the job leaves when nobody kills it, and the times at which ``output-staged`` meant rewritten files."""

    tables: Mapping[str, list[Row]]
    rewritings: tuple[int, ...]


@pytest.fixture(scope="module")
def undisturbed(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = upserts.write_landing(tmp_path_factory.mktemp("undisturbed"))
    rewritings: list[int] = []

    def reached(point: str) -> None:
        crashpoints.crash_point(point)
        rewritings.append(crashpoints.reached()[point] - before)

    with pytest.MonkeyPatch.context() as patch, mock.patch.object(delta_merge, "crash_point", reached):
        patch.setenv("TIDEMARK_CRASH_AT", "-")
        before = crashpoints.reached().get("output-staged", 0)
        recover(folder, session, 0)
    found = tables(folder)
    best: dict[tuple[object, ...], Row] = {}
    for pane in found["panes"]:
        key = tuple(pane[name] for name in UPSERTED["newest"])
        best[key] = max(best.get(key, pane), pane, key=lambda row: row["pane_index"])
    assert found["newest"] == in_order(best.values())
    assert len(found["panes"]) > len(found["newest"])
    assert {row["zone"]: row["fare"] for row in found["last"]} == {"a": 13, "b": 23, None: 32, "c": 43, "d": 51}
    return Undisturbed(found, tuple(rewritings))


def recover(folder: Path, session: SparkSession, attempt: int) -> None:
    fares.run(upserts.make_job(folder), session, fares.clock_of(attempt), end_of_input=True)


def kill(folder: Path, point: str, jvm: Mapping[str, str], attempt: int = 0) -> None:
    """Drive the job in a process of its own until it dies, and look at what readers see then."""
    kill_at("tests.crash.upserts:drive", point, [str(folder), str(attempt)], environment=jvm)
    for name, keys in UPSERTED.items():
        rows = tables(folder)[name]
        assert len({tuple(row[key] for key in keys) for row in rows}) == len(rows), f"{name} shows two rows of one key"


def in_order(rows: Any) -> list[Row]:
    return sorted(rows, key=str)


def tables(folder: Path) -> dict[str, list[Row]]:
    """Return the tables' rows as a reader finds them."""
    found = {}
    for name in ("panes", *UPSERTED):
        path = str(folder / name)
        found[name] = in_order(DeltaTable(path).to_pyarrow_table().to_pylist()) if DeltaTable.is_deltatable(path) else []
    return found


def head_of(folder: Path) -> EpochRecord:
    head = JobLog(JobStore.open(str(folder / "store")).at("upserts"), "upserts").load().epoch
    assert head is not None
    return head


def check(folder: Path, undisturbed: Undisturbed) -> None:
    """Compare the tables, and look for files that nobody refers to in what the newest epochs staged."""
    assert tables(folder) == undisturbed.tables
    head = head_of(folder)
    assert dict(head.totals["outputs"])["newest"] == dict(head.totals["outputs"])["panes"] == len(undisturbed.tables["panes"])
    for name in UPSERTED:
        table = DeltaTable(str(folder / name))
        epochs = [int(commit["tidemark.epoch"]) for commit in table.history() if "tidemark.epoch" in commit]
        assert len(epochs) == len(set(epochs)), f"{name} was committed to twice for an epoch"
        shown = {str(path) for version in range(table.version() + 1) for path in files_of(folder / name, version)}
        staged = {str(path.relative_to(folder / name)) for path in (folder / name).rglob("merged-*/*.parquet")}
        assert staged <= shown, f"{name} has rewritten files that no version ever had"


def files_of(table: Path, version: int) -> list[object]:
    return list(DeltaTable(str(table), version=version).get_add_actions()["path"].to_pylist())


@pytest.mark.parametrize("which", [pytest.param(0, id="first"), pytest.param(-1, id="last", marks=only_long)])
def test_killed_behind_the_rewriting(
    which: int, undisturbed: Undisturbed, jvm: Mapping[str, str], session: SparkSession, tmp_path: Path
) -> None:
    assert len(undisturbed.rewritings) >= 2, "hardly anything is rewritten"
    kill(upserts.write_landing(tmp_path), f"output-staged:{undisturbed.rewritings[which]}", jvm)
    # Again in the next process: publishing what the first left rewrites before anything else is staged.
    kill(tmp_path, "output-staged:1", jvm, 1)
    kill(tmp_path, "output-published:2", jvm, 2)
    recover(tmp_path, session, 3)
    check(tmp_path, undisturbed)


@only_long
@pytest.mark.parametrize("point", ["table-created:2", "after-commit:4", "output-published:8"])
def test_killed_around_a_publication(
    point: str, undisturbed: Undisturbed, jvm: Mapping[str, str], session: SparkSession, tmp_path: Path
) -> None:
    kill(upserts.write_landing(tmp_path), point, jvm)
    recover(tmp_path, session, 1)
    check(tmp_path, undisturbed)


def test_another_writer_comes_between_the_commit_and_the_publication(
    undisturbed: Undisturbed, jvm: Mapping[str, str], session: SparkSession, tmp_path: Path
) -> None:
    """It puts the files together that the upsert would have exchanged, and takes a row away; the tables are made by two drivers."""
    kill(upserts.write_landing(tmp_path), "table-created:2", jvm)
    kill(tmp_path, "after-commit:4", jvm, 1)
    DeltaTable(str(tmp_path / "newest")).optimize.compact()
    DeltaTable(str(tmp_path / "last")).delete("zone = 'd'")
    recover(tmp_path, session, 2)
    check(tmp_path, undisturbed)


@contextmanager
def started_for_itself(session: SparkSession) -> Iterator[mock.Mock]:
    """Have what publishes late find no session, and start this one; yields what ends it."""
    from pyspark.errors import PySparkRuntimeError

    nobody = PySparkRuntimeError(errorClass="NO_ACTIVE_OR_DEFAULT_SESSION", messageParameters={})
    with (
        mock.patch("pyspark.sql.SparkSession.active", side_effect=nobody),
        mock.patch.object(late_publication, "build_session", return_value=session),
        mock.patch.object(session, "stop") as ended,
    ):
        yield ended


@pytest.mark.parametrize(("point", "by_command"), [("after-commit:4", True), pytest.param("output-published:14", False, marks=only_long)])
def test_a_rewind_publishes_first_what_a_killed_driver_had_committed(
    point: str, undisturbed: Undisturbed, jvm: Mapping[str, str], session: SparkSession, tmp_path: Path, *, by_command: bool
) -> None:
    """One that is only added to and two that are upserted; the command starts a session of its own for these."""
    twin, killed = (upserts.write_landing(tmp_path / name) for name in ("twin", "killed"))
    with mock.patch.object(upserts, "open_session", return_value=session):
        upserts.drive_behind_a_savepoint(str(twin), "2")
    kill_at("tests.crash.upserts:drive_behind_a_savepoint", point, [str(killed)], environment=jvm)
    ended = tables(twin)
    assert tables(killed) != ended
    assert preview_rewind(JobStore.open(str(killed / "store")), "upserts", "good").refusals == ()
    said: list[str] = []
    if by_command:
        with started_for_itself(session) as stopped:
            done = CliRunner().invoke(main, ["rewind", "upserts", "--store", str(killed / "store"), "--to", "good"])
        assert done.exit_code == 0, (done.output, done.exception)
        stopped.assert_called_once_with()
        said += done.stdout.splitlines()
    else:
        tm.rewind("upserts", "good", store=str(killed / "store"), on_progress=said.append)
    tm.rewind("upserts", "good", store=str(twin / "store"))
    assert [line for line in said if "is published first" in line] == [
        f"epoch 3, which is committed, is published first: {'last, newest, panes' if by_command else 'newest'}"
    ]
    assert tables(killed) == tables(twin) != ended
    for folder in (killed, twin):
        (before,) = (item for item in tm.savepoints_of("upserts", store=str(folder / "store")).list() if item.info.kind == "before-rewind")
        tm.rewind("upserts", before.name, store=str(folder / "store"))
        assert tables(folder) == ended, folder
    recover(killed, session, 1)
    assert tables(killed) == undisturbed.tables
