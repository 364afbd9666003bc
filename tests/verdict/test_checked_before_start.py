"""Forks and restores hold their code against the savepoint before anything is written, as upgrades do; no JVM is started for it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner, Result

import tidemark as tm
from tests.verdict.stored import SCHEMA, record_of, trips
from tidemark.cli.program.main import main
from tidemark.control.client.job_client import JobClient
from tidemark.control.desired.spec_store import read_spec
from tidemark.control.forks.forks import fork
from tidemark.control.model.spec import JobSpec
from tidemark.control.upgrade.code_check import Maps, judge_code
from tidemark.errors import StateMismatchError, UpgradeError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.spark.env import session
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.process_identity import current_owner
from tidemark.state.store.store import JobStore

CODE: Final = f"""
import tidemark as tm

rows = tm.from_elements([], schema="{SCHEMA}")
trips = tm.source("trips", rows, watermarks=tm.ascending(timestamp="at"))


def job_of(uid, **counts):
    hours = trips.key_by("zone").window(tm.tumbling("1 hour")).aggregate(**counts).uid(uid)
    return tm.Job("taxi", outputs={{"out": tm.delta(hours, "out")}})


job = job_of("w", n=tm.count())
renamed = job_of("per-hour", rides=tm.count())
other = job_of("w", n=tm.max("fare"))
"""

FOUND: Final = "the job has no operator of this uid"
RENAMES: Final = ("--map", "w=per-hour", "--column", "per-hour:n=rides")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobStore:
    """Return a store with a submitted job of one epoch and its savepoint; its code is in the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"judged_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(CODE, encoding="utf-8")
    found = JobStore.open(str(tmp_path / "store"))
    driver = JobLog(found.at("taxi"), "taxi").acquire(current_owner(""))
    driver.append(record_of(trips().key_by("zone").window(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("w")))
    driver.release()
    SavepointStore(found, "taxi").take("good")
    JobClient(found).submit(JobSpec("taxi", f"{name}:job", wanted="suspended", folder=str(tmp_path)))
    return found


def code(root: JobStore, name: str) -> str:
    submitted = read_spec(root, "taxi")
    assert submitted is not None
    return f"{submitted.spec.code.partition(':')[0]}:{name}"


def type_in(root: JobStore, *words: str) -> Result:
    return CliRunner().invoke(main, [*words, "--store", root.uri])


def fork_it(root: JobStore, name: str, *more: str) -> Result:
    words = ("fork", "taxi", "--from", "good", "--as", "what-if", "--code", code(root, name), "--suspended")
    return type_in(root, *words, *more)


@pytest.mark.parametrize(
    ("name", "more", "told"),
    [
        ("renamed", (), (FOUND, "map it to its new operator: --map w=per-hour; or drop its state: --allow-non-restored-state")),
        ("renamed", ("--map", "w=per-hour"), ("the aggregate",)),
        ("renamed", ("--map", "w=per-our"), ("names 'per-our', which the job does not have",)),
        ("other", (), ("the aggregate 'n' was count() and is now max(fare)",)),
        ("other", ("--allow-non-restored-state",), ("the aggregate 'n' was count() and is now max(fare)",)),
        ("nobody", (), ("'nobody' in module",)),
    ],
)
def test_a_fork_with_incompatible_code_is_not_started(root: JobStore, name: str, more: tuple[str, ...], told: tuple[str, ...]) -> None:
    refused = fork_it(root, name, *more)
    assert refused.exit_code == 1, refused.output
    assert all(each in refused.output for each in told), refused.output
    assert "Fix: " in refused.output
    assert read_spec(root, "what-if") is None
    assert "what-if" not in root.folders()


@pytest.mark.parametrize(("name", "more"), [("job", ()), ("renamed", RENAMES), ("renamed", ("--allow-non-restored-state",))])
def test_a_fork_with_compatible_code_is_started(root: JobStore, name: str, more: tuple[str, ...]) -> None:
    begun = fork_it(root, name, *more)
    assert begun.exit_code == 0, begun.output
    made = read_spec(root, "what-if")
    assert made is not None
    assert made.spec.code == code(root, name)


def test_a_taken_name_is_reported_before_any_code_is_loaded(root: JobStore) -> None:
    assert fork_it(root, "job").exit_code == 0
    assert "there is a job 'what-if' already" in fork_it(root, "nobody").output


def test_the_code_of_a_fork_is_checked_under_the_forks_name(root: JobStore) -> None:
    """Its driver gives the job the fork's name and outputs, so whoever judges the code of its upgrade has to."""
    made = fork(root, "taxi", "good", name="what-if", start=False)
    for of, against in (("taxi", "good"), ("taxi", "head")):
        assert judge_code(root, made.spec, Maps(), against, of).job == "what-if"
    with pytest.raises(UpgradeError, match="what-if"):
        judge_code(root, made.spec, Maps(), "head", "what-if")


def test_a_run_that_restores_is_refused_before_spark_is_started(root: JobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    class StartedError(Exception):
        pass

    def build_session(*_: object, **__: object) -> None:
        raise StartedError

    monkeypatch.setattr(session, "build_session", build_session)
    before = {file.path for file in root.list("")}
    for words, told in (
        ((), FOUND),
        (("--map", "w=per-hour"), "the aggregate"),
        (("--map", "v=per-hour"), "'v', which has no stored state"),
    ):
        refused = type_in(root, "run", code(root, "renamed"), "--restore", "good", *words)
        assert refused.exit_code == 1, refused.output
        assert told in refused.output
        assert {file.path for file in root.list("")} == before
    for maps in (RENAMES, ("--allow-non-restored-state",)):
        begun = type_in(root, "run", code(root, "renamed"), "--restore", "good", *maps)
        assert isinstance(begun.exception, StartedError), begun.output
    unknown = type_in(root, "run", code(root, "job"), "--restore", "better")
    assert "has no savepoint 'better'" in unknown.output
    with pytest.raises(StateMismatchError):
        fork(root, "taxi", "good", name="what-if", code=code(root, "renamed"))
