"""Killed while windows of any kind are staged, committed or merged, a job leaves what an undisturbed one leaves."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.crash import sessions, windows
from tests.killed import kill_at
from tests.seeds import some
from tidemark.crashpoints import reached
from tidemark.spark.operators.base.tables import MAIN
from tidemark.spark.operators.session.session_deferral import DEFERRED
from tidemark.state.log.joblog import JobLog
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.slow]

JOBS = {"windows": windows, "sessions": sessions}
Tables = Mapping[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Undisturbed:
    """What a job leaves when nobody kills it, how often each point was reached, and the tables of state that retained epochs have."""

    job: str
    tables: Tables
    reached: Mapping[str, int]
    state: Mapping[str, Collection[str]]


@pytest.fixture(scope="module", params=some(JOBS, 2))
def undisturbed(request: pytest.FixtureRequest, session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    job = str(request.param)
    folder = JOBS[job].write_landing(tmp_path_factory.mktemp("undisturbed"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMARK_CRASH_AT", "-")
        before = reached()
        JOBS[job].run_to_the_end(folder, session, 0)
        counts = {point: count - before.get(point, 0) for point, count in reached().items()}
    log = JobLog(JobStore.open(str(folder / "store")).at(job), job)
    state: dict[str, set[str]] = {}
    for record in log.epochs():
        for uid, operator in record.operators.items():
            state.setdefault(uid, set()).update(file.part for file in operator.files)
    return Undisturbed(job, tables(job, folder), counts, state)


def tables(job: str, folder: Path) -> Tables:
    """Return the rows of a job's outputs as readers find them."""
    found = {}
    for name in JOBS[job].OUTPUTS:
        path = str(folder / name)
        rows = DeltaTable(path).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(path) else []
        found[name] = sorted(rows, key=str)
    return found


def kill(job: str, folder: Path, point: str, jvm: Mapping[str, str], attempt: int) -> None:
    """Drive a job in a process of its own until it dies."""
    kill_at(f"tests.crash.{job}:drive", point, [str(folder), str(attempt)], environment=jvm)


def test_the_undisturbed_run_shows_all_there_is(undisturbed: Undisturbed) -> None:
    assert all(undisturbed.tables.values())
    if undisturbed.job == "sessions":
        require_joined_sessions(undisturbed)
    else:
        require_what_was_merged(undisturbed)


def require_joined_sessions(undisturbed: Undisturbed) -> None:
    """Check that sessions were joined whose results were out, and put off."""
    assert undisturbed.state == {"plain": {MAIN}, "triggered": {MAIN}, "simple": {MAIN, DEFERRED}}
    assert {row["pane_timing"] for row in undisturbed.tables["triggered"]} == {"EARLY", "ON_TIME", "LATE"}
    replaced = [row for row in undisturbed.tables["plain"] if len(row["replaces"]) > 1]
    assert replaced, "no session joined two whose results were out"
    newest = [(row["k"], row["window_start"], row["window_end"]) for row in undisturbed.tables["newest"]]
    gone = {(row["k"], *each.values()) for row in replaced for each in row["replaces"]}
    assert len(set(newest)) == len(newest)
    assert not gone & set(newest)


def require_what_was_merged(undisturbed: Undisturbed) -> None:
    """Check that windows were emptied, refired, merged ahead, and that functions went on with what they kept."""
    assert set(undisturbed.state["sliding"]) > {MAIN}, "nothing was merged ahead"
    for name in ("purged", "kept"):
        assert {row["pane_timing"] for row in undisturbed.tables[name]} == {"EARLY", "ON_TIME", "LATE"}
    for name in ("sliding", "described"):
        assert {row["pane_timing"] for row in undisturbed.tables[name]} == {"ON_TIME", "LATE"}
    assert max(row["window_calls"] for row in undisturbed.tables["kept"]) > 1
    assert max(row["key_calls"] for row in undisturbed.tables["kept"]) > 2
    assert max(row["calls"] for row in undisturbed.tables["described"]) > 1


# What a commit does is the same for all windows; it is killed in test_every_point.
def test_killed_where_state_is_staged_and_where_it_is_merged(
    undisturbed: Undisturbed, jvm: Mapping[str, str], session: SparkSession, tmp_path: Path
) -> None:
    job = undisturbed.job
    JOBS[job].write_landing(tmp_path)
    for attempt, (point, share) in enumerate((("state-staged", 2), ("compaction-staged", 4))):
        times = undisturbed.reached.get(point, 0)
        assert times >= 4, f"{point} is reached {times} times only"
        kill(job, tmp_path, f"{point}:{times // share}", jvm, attempt)
    JOBS[job].run_to_the_end(tmp_path, session, 2)
    assert tables(job, tmp_path) == undisturbed.tables
