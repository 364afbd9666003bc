"""``tm.check`` and ``tidemark check``: a job's code against the store."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner, Result

import tidemark as tm
from tests.verdict.stored import record_of, trips
from tidemark.cli.jobs import checking
from tidemark.cli.program.main import main
from tidemark.errors import StoreError, UnknownJobError
from tidemark.savepoints.compatibility.checking import check
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.process_identity import current_owner
from tidemark.state.store.store import JobStore

COUNT, FARES = tm.count(), tm.sum("fare")


def job(uid: str = "w", **aggregates: tm.Aggregate) -> tm.Job:
    return tm.Job("taxi", outputs={"out": tm.memory(counted(uid, **aggregates), "out")})


def counted(uid: str = "w", **aggregates: tm.Aggregate) -> tm.Stream:
    return trips().key_by("zone").window(tm.tumbling("1 hour")).aggregate(**aggregates).uid(uid)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store in which the job ``taxi`` has an epoch, and a savepoint of it."""
    root = JobStore.open(str(tmp_path / "store"))
    driver = JobLog(root.at("taxi"), "taxi").acquire(current_owner(""))
    driver.append(record_of(counted(n=COUNT, f=FARES)))
    driver.release()
    SavepointStore(root, "taxi").take("before")
    return tmp_path / "store"


@pytest.fixture
def code() -> Iterator[ModuleType]:
    """Return a module that jobs can be put into, so that the command finds them."""
    module = ModuleType("taxi_code")
    sys.modules["taxi_code"] = module
    yield module
    del sys.modules["taxi_code"]


def run(store: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["check", "taxi_code:job", "--store", str(store), *arguments])


@pytest.mark.parametrize("against", ["head", "before"])
def test_a_job_against_the_head_and_a_savepoint(store: Path, against: str) -> None:
    found = check(job(n=COUNT, f=FARES, more=tm.max("fare")), against, store=str(store))
    assert (found.status, found.fits, found.epoch) == ("migrates", True, 3)
    assert not check(job(n=COUNT), against, store=str(store)).fits
    assert check(job("v", n=COUNT, f=FARES), against, store=str(store), uids={"w": "v"}).status == "compatible"


def test_a_job_of_which_nothing_is_stored(store: Path) -> None:
    with pytest.raises(UnknownJobError, match="'other' has no epoch"):
        check(job(n=COUNT), store=str(store), of="other")


def test_exit_codes_and_what_is_shown(store: Path, code: ModuleType) -> None:
    code.job = job(n=COUNT, f=FARES)  # type: ignore[attr-defined]
    same = run(store)
    assert (same.exit_code, "taxi' against epoch 3 of lineage a1: compatible" in same.output) == (0, True)
    code.job = job(m=COUNT)  # type: ignore[attr-defined]
    refused = run(store, "--against", "before")
    assert refused.exit_code == 1
    assert "the aggregate 'n' was removed" in refused.output
    assert "the aggregate 'f' was removed" in refused.output
    said = run(store, "--column", "w:n=m", "--column", "w:f=", "--json")
    assert said.exit_code == 0
    found = json.loads(said.output)
    assert (found["status"], found["fits"]) == ("migrates", True)
    assert found["operators"][0]["rewrite"]["dropped"] == ["f__sum"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--column", "n=m"), "names no operator's column"),
        (("--column", "w:=m"), "names no operator's column"),
        (("--column", "w:n"), "--column 'w:n' is not UID:OLD=NEW"),
        (("--map", "w"), "--map 'w' is not OLD=NEW"),
        (("--map", "w="), "--map 'w=' is not OLD=NEW"),
        (("--map", "absent=w"), "'absent', which has no stored state"),
        (("--against", "absent"), "no savepoint 'absent'"),
        (("--against", "../../x"), "is not allowed"),
    ],
)
def test_what_cannot_be_read_is_said(store: Path, code: ModuleType, arguments: tuple[str, ...], says: str) -> None:
    code.job = job(n=COUNT, f=FARES)  # type: ignore[attr-defined]
    found = run(store, *arguments)
    assert found.exit_code == 2, "that it does not fit is 1"
    assert says in found.output


def test_whatever_goes_wrong_is_no_answer(store: Path, code: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_with(error: BaseException) -> tuple[int, str]:
        def fail(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr(checking, "check", fail)
        found = run(store)
        return found.exit_code, found.stderr

    code.job = job(n=COUNT, f=FARES)  # type: ignore[attr-defined]
    assert fails_with(StoreError("no route to host", fix="wait")) == (75, "tidemark: [TM400] no route to host. Fix: wait\n")
    status, said = fails_with(ZeroDivisionError("a bug"))
    assert (status, "ZeroDivisionError: a bug" in said) == (2, True)
    assert fails_with(KeyboardInterrupt())[0] == 130
    del code.job
    monkeypatch.undo()
    assert run(store).exit_code == 2
