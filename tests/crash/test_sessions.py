"""Killed while sessions are staged, committed or merged, a job leaves what an undisturbed one leaves."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.crash import fares, sessions
from tests.crash.warm_jvm import CHECKOUT, warm_jvm
from tidemark.crashpoints import reached
from tidemark.spark.windows.session_deferral import PUT_OFF
from tidemark.spark.windows.tables import MAIN
from tidemark.state.joblog import JobLog
from tidemark.state.store import JobStore
from tidemark.testing.crash import run_until_crash

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.slow]

Tables = Mapping[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Undisturbed:
    """What the job leaves when nobody kills it, how often each point was reached, and the tables of state before the end of input."""

    tables: Tables
    reached: Mapping[str, int]
    state: Mapping[str, Collection[str]]


@pytest.fixture(scope="module")
def jvm() -> Iterator[Mapping[str, str]]:
    with warm_jvm() as variables:
        yield variables


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    own = spark.newSession()
    for key, value in fares.SETTINGS.items():
        own.conf.set(key, value)
    return own


@pytest.fixture(scope="module")
def undisturbed(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = sessions.write_landing(tmp_path_factory.mktemp("undisturbed"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMARK_CRASH_AT", "-")
        before = reached()
        sessions.run_to_the_end(folder, session, 0)
        counts = {point: count - before.get(point, 0) for point, count in reached().items()}
    log = JobLog(JobStore.open(str(folder / "store")).at("sessions"), "sessions")
    (before_end,) = [record for record in log.epochs() if record.epoch == len(sessions.FILES) - 1]
    state = {uid: {file.part for file in operator.files} for uid, operator in before_end.operators.items()}
    return Undisturbed(tables(folder), counts, state)


def tables(folder: Path) -> Tables:
    """Return the rows of the outputs as readers find them."""
    found = {}
    for name in sessions.OUTPUTS:
        path = str(folder / name)
        rows = DeltaTable(path).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(path) else []
        found[name] = sorted(rows, key=str)
    return found


def kill(folder: Path, point: str, jvm: Mapping[str, str], attempt: int) -> None:
    """Drive the job in a process of its own until it dies."""
    run_until_crash("tests.crash.sessions:drive", point, [str(folder), str(attempt)], environment=jvm, cwd=CHECKOUT).require_killed()


def test_the_undisturbed_run_shows_all_there_is(undisturbed: Undisturbed) -> None:
    assert all(undisturbed.tables.values())
    assert undisturbed.state == {"plain": {MAIN}, "triggered": {MAIN}, "simple": {MAIN, PUT_OFF}}
    assert {row["pane_timing"] for row in undisturbed.tables["triggered"]} == {"EARLY", "ON_TIME", "LATE"}
    replaced = [row for row in undisturbed.tables["plain"] if len(row["replaces"]) > 1]
    assert replaced, "no session joined two whose results were out"
    newest = [(row["k"], row["window_start"]) for row in undisturbed.tables["newest"]]
    gone = {(row["k"], start) for row in replaced for start in row["replaces"] if start != row["window_start"]}
    assert len(set(newest)) == len(newest)
    assert not gone & set(newest)


@pytest.mark.parametrize("point", ["state-staged", "before-commit", "after-commit", "compaction-staged"])
def test_killed_twice_at_a_point(
    point: str, undisturbed: Undisturbed, jvm: Mapping[str, str], session: SparkSession, tmp_path: Path
) -> None:
    times = undisturbed.reached.get(point, 0)
    assert times >= 4, f"{point} is reached {times} times only"
    kill(sessions.write_landing(tmp_path), f"{point}:{times // 2}", jvm, 0)
    kill(tmp_path, f"{point}:{max(1, times // 4)}", jvm, 1)
    sessions.run_to_the_end(tmp_path, session, 2)
    assert tables(tmp_path) == undisturbed.tables
