from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tidemark as tm
from tests.savepoints.delta_jobs import TABLES, job_with_tables, rows, run_epoch
from tests.savepoints.stored_jobs import StoredJob, live_files
from tests.upgrade.upgrade_worlds import fits
from tidemark.control.client.job_client import JobClient
from tidemark.control.desired.spec_store import change_spec, read_spec, require_spec
from tidemark.control.forks import discarding, forks
from tidemark.control.forks.discarding import discard
from tidemark.control.forks.promoting import promotion_of
from tidemark.control.model.spec import JobSpec
from tidemark.control.upgrade.code_check import Judge, Maps
from tidemark.errors import (
    CorruptStoreError,
    DefinitionError,
    NotReachedError,
    SavepointInUseError,
    UnknownJobError,
    UnknownSavepointError,
    UpgradeError,
)
from tidemark.savepoints.core.retention import SavepointRetention
from tidemark.savepoints.model.isolation import redirect_outputs
from tidemark.savepoints.model.restore import Restore
from tidemark.savepoints.model.verdict import Verdict
from tidemark.savepoints.restore.restoring import begin_lineage, prepare_restore
from tidemark.state.gc.file_references import FileReferences
from tidemark.state.gc.pins import Pins
from tidemark.state.log.joblog import Driver
from tidemark.state.log.records import OutputRecord, StagedFile
from tidemark.state.store.store import JobStore


class Killed(BaseException):
    """The process was killed."""


@pytest.fixture
def job(tmp_path: Path) -> StoredJob:
    made = job_with_tables(tmp_path)
    for _ in range(3):
        run_epoch(made)
    made.savepoints.take("a")
    made.driver.release()
    return made


def forked(job: StoredJob, name: str, *, of: str = "taxi", savepoint: str = "a", outputs: Path | None = None) -> StoredJob:
    """Return a fork that was submitted and began, as its driver does."""
    folder = None if outputs is None else str(outputs)
    forks.fork(job.root, of, savepoint, name=name, code="m:j", outputs=folder, start=False, clock=job.clock, judge=fits)
    spec = read_spec(job.root, name)
    assert spec is not None
    assert spec.spec.restore is not None
    staged = (StagedFile("a.parquet", 1, 1),)
    made = StoredJob(
        job.root,
        name,
        job.clock,
        outputs={table: OutputRecord("delta", f"{spec.spec.outputs_root}/{table}", "{}", staged, 1) for table in TABLES},
    )
    made.restore(spec.spec.restore)
    run_epoch(made)
    made.savepoints.take("own")
    made.driver.release()
    return made


def test_a_fork_with_the_results_of_its_job_does_not_differ(job: StoredJob, tmp_path: Path) -> None:
    forked(job, "what-if", outputs=tmp_path / "apart")
    job.restart()
    run_epoch(job)
    found = forks.diff_output(job.root, "taxi", "what-if", "hourly")
    assert (found.equal, found.same, found.left_out) == (True, 1, 3)
    # A savepoint that noted nothing: the version is told from the table.
    job.savepoints.dispose("a")
    job.savepoints.pins.put("a", 2)
    found = forks.diff_output(job.root, "taxi", "what-if", "hourly")
    assert (found.equal, found.left_out) == (True, 3)
    # A table that was made anew has nothing from before.
    shutil.rmtree(tmp_path / "hourly")
    run_epoch(job)
    found = forks.diff_output(job.root, "taxi", "what-if", "hourly")
    assert (found.same, found.added, found.removed, found.left_out) == (0, 1, 1, 0)
    job.savepoints.dispose("a")
    with pytest.raises(UnknownSavepointError):
        forks.diff_output(job.root, "taxi", "what-if", "hourly")
    job.savepoints.take("a")
    with pytest.raises(DefinitionError, match="savepoint 'a' has been replaced since 'what-if' began with it"):
        forks.diff_output(job.root, "taxi", "what-if", "hourly")


def test_what_has_just_begun_is_said_to_be_compared_later(job: StoredJob, tmp_path: Path) -> None:
    forks.fork(job.root, "taxi", "a", name="what-if", code="m:j", start=False, clock=job.clock, judge=fits)
    with pytest.raises(NotReachedError, match="job 'what-if' has not started yet, and there is nothing to compare"):
        forks.diff_output(job.root, "taxi", "what-if", "hourly")
    made = read_spec(job.root, "what-if")
    assert made is not None
    assert made.spec.restore is not None
    fork = StoredJob(job.root, "what-if", job.clock)
    fork.restore(made.spec.restore)
    with pytest.raises(NotReachedError, match=r"still at epoch 2, that of savepoint 'a', which it began with.*`tidemark status what-if`"):
        forks.diff_output(job.root, "what-if", "taxi", "hourly")
    fork.outputs = {"hourly": OutputRecord("delta", str(tmp_path / "nothing-yet"))}
    fork.commit()
    with pytest.raises(NotReachedError, match="has no row of output 'hourly' yet"):
        forks.diff_output(job.root, "taxi", "what-if", "hourly")


def test_a_label_of_the_job_s_code_says_nothing_of_another(job: StoredJob) -> None:
    JobClient(job.root).submit(JobSpec("taxi", "m:j", version="7"))
    for name, code, version in (("same", None, "7"), ("same-by-name", "m:j", "7"), ("other", "m:k", "")):
        assert forks.fork(job.root, "taxi", "a", name=name, code=code, start=False, clock=job.clock, judge=fits).spec.version == version


@pytest.mark.parametrize("outputs", ["", "hourly", "../{name}", "link", "store"])
def test_a_folder_that_others_have_is_refused(job: StoredJob, tmp_path: Path, outputs: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    if outputs == "store":  # an output of the name of a job
        StoredJob(job.root, "late", job.clock).driver.release()
    root = tmp_path / outputs.format(name=tmp_path.name)
    with pytest.raises(DefinitionError, match="the fork 'what-if' would write to") as refused:
        forks.fork(job.root, "taxi", "a", name="what-if", code="m:j", outputs=str(root), start=False, clock=job.clock, judge=fits)
    assert "--outputs" in refused.value.fix
    assert read_spec(job.root, "what-if") is None


def test_a_folder_of_an_older_table_is_refused(job: StoredJob, tmp_path: Path) -> None:
    job.restart()
    job.outputs = {}
    job.commit()
    with pytest.raises(DefinitionError, match="job 'taxi' writes to"):
        forks.fork(job.root, "taxi", "a", name="what-if", code="m:j", outputs=str(tmp_path), start=False, clock=job.clock, judge=fits)


def test_code_that_writes_where_its_fork_is_to_write_is_refused(tmp_path: Path) -> None:
    stream = tm.source("t", tm.from_elements([(1,)], schema="at BIGINT"), watermarks=tm.ingestion_time())
    job = tm.Job("taxi", outputs={"new": tm.delta(stream, str(tmp_path / "new" / "deep")), "seen": tm.memory(stream, "seen")})
    with pytest.raises(DefinitionError, match=r"the fork 'what-if' would write to .*/new, and job 'taxi' writes to .*/new/deep"):
        redirect_outputs(job, name="what-if", root=str(tmp_path))


def test_a_discarded_fork_goes_with_its_tables_and_nothing_else(job: StoredJob, tmp_path: Path) -> None:
    fork = forked(job, "what-if", outputs=tmp_path / "apart")
    # Since then another job began to write to one of them.
    other = StoredJob(job.root, "other", job.clock, outputs={"mine": OutputRecord("delta", str(tmp_path / "apart" / "late"))})
    other.commit()
    gone = discard(job.root, "what-if", clock=fork.clock)
    assert gone == (str(tmp_path / "apart" / "hourly"), str(fork.folder.location))
    assert rows(tmp_path / "apart" / "late") == [3]
    assert [rows(tmp_path / name) for name in TABLES] == [[0, 1, 2]] * 2
    assert not (tmp_path / "apart" / "hourly").exists()
    assert "what-if" not in job.root.folders()


@pytest.mark.parametrize("point", ["discard-noted", "discard-tables-gone", "discard-specs-gone", "half of the log", "discard-nearly-done"])
def test_a_discard_that_is_killed_is_gone_on_with(job: StoredJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    fork = forked(job, "what-if", outputs=tmp_path / "apart")
    delete = JobStore.delete

    def dies(name: str) -> None:
        if name == point:
            raise Killed

    def dies_half_way(store: JobStore, paths: Iterable[str]) -> None:
        given = tuple(paths)
        half = [path for path in given if not path.endswith("log/000000000001.json")]
        if point == "half of the log" and len(half) < len(given):
            delete(store, half)
            raise Killed
        delete(store, given)

    with monkeypatch.context() as patched:
        patched.setattr(discarding, "crash_point", dies)
        patched.setattr(JobStore, "delete", dies_half_way)
        patched.setattr(Driver, "release", lambda _: None)
        with pytest.raises(Killed):
            discard(job.root, "what-if", clock=fork.clock)
    # Nobody else is in its way, or takes its name.
    with pytest.raises(DefinitionError, match=r"the discard of a fork 'what-if' is not finished.*tidemark discard what-if"):
        forks.fork(job.root, "taxi", "a", name="what-if", code="m:j", start=False, clock=job.clock, judge=fits)
    forks.fork(job.root, "taxi", "a", name="third", code="m:j", outputs=str(tmp_path / "third"), start=False, clock=job.clock, judge=fits)
    with pytest.raises(DefinitionError, match="is a fork of job 'taxi'"):
        discard(job.root, "what-if", of="rides", clock=fork.clock)
    fork.clock.advance(600_000)
    gone = discard(job.root, "what-if", of="taxi", clock=fork.clock)
    assert gone == (*(str(tmp_path / "apart" / name) for name in TABLES), str(fork.folder.location))
    assert not any((tmp_path / "apart" / name).exists() for name in TABLES)
    assert "what-if" not in job.root.folders()
    assert [reference.job for reference in FileReferences(job.folder).list()] == ["third"]
    assert [rows(tmp_path / name) for name in TABLES] == [[0, 1, 2]] * 2


def test_a_name_that_was_given_again_meanwhile_is_not_deleted(job: StoredJob, monkeypatch: pytest.MonkeyPatch) -> None:
    fork = forked(job, "what-if")

    def dies(name: str) -> None:
        if name == "discard-specs-gone":
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(discarding, "crash_point", dies)
        with pytest.raises(Killed):
            discard(job.root, "what-if", clock=fork.clock)
    fork.clock.advance(600_000)
    JobClient(job.root, "test", fork.clock).submit(JobSpec("what-if", "m:j"))
    with pytest.raises(DefinitionError, match="submitted again"):
        discard(job.root, "what-if", clock=fork.clock)


def test_two_forks_do_not_write_to_the_same_place(job: StoredJob, tmp_path: Path) -> None:
    """Neither has begun, so that no record says where it writes."""

    def forks_to(name: str, judge: Judge = fits) -> None:
        forks.fork(job.root, "taxi", "a", name=name, code="m:j", outputs=str(tmp_path / "lake"), start=False, clock=job.clock, judge=judge)

    def meanwhile(*args: Any) -> Verdict:
        forks_to("first")
        return fits(*args)

    # Also one that is made while the code is judged.
    with pytest.raises(DefinitionError, match="job 'first' writes to"):
        forks_to("second", judge=meanwhile)
    with pytest.raises(DefinitionError, match="job 'first' writes to"):
        forks_to("third")


def test_a_fork_has_other_parameters_and_code_elsewhere(job: StoredJob) -> None:
    client = JobClient(job.root, "test", job.clock)
    client.submit(JobSpec("taxi", "m:j", version="1", code_paths=("/old.whl",), folder="/here", variables={"RATE": "1", "ROOT": "/lake"}))

    def made(name: str, **fields: Any) -> JobSpec:
        return forks.fork(job.root, "taxi", "a", name=name, start=False, clock=job.clock, judge=fits, **fields).spec

    dearer = made("dearer", variables={"RATE": "2"})
    assert (dearer.code, dearer.version, dearer.variables) == ("m:j", "1", {"RATE": "2", "ROOT": "/lake"})
    assert (dearer.code_paths, dearer.folder) == (("/old.whl",), "/here")
    newer = made("newer", code_paths=("/new.whl",), folder="/there")
    assert (newer.version, newer.code_paths, newer.folder, newer.variables) == ("", ("/new.whl",), "/there", {"RATE": "1", "ROOT": "/lake"})
    assert made("labelled", version="2").version == "2"
    promotion = promotion_of(job.root, "dearer")
    assert (promotion.variables, promotion.code_paths) == ({"RATE": "2", "ROOT": "/lake"}, ("/old.whl",))


def test_a_fork_stays_one_when_it_was_upgraded_or_restored_itself(job: StoredJob) -> None:
    made = forks.fork(
        job.root,
        "taxi",
        "a",
        name="what-if",
        code="m:j",
        start=False,
        clock=job.clock,
        judge=fits,
        maps=Maps(columns={"hourly": {"a": "b"}}),
    ).spec
    renamed = Restore("own", uids={"hourly": "per-hour"}, identity="upgrade-1", columns={"per-hour": {"b": "c"}})
    change_spec(job.root, "what-if", lambda _: replace(made, restore=renamed, code="m2:j"), by="me", why="", clock=job.clock)
    request = promotion_of(job.root, "what-if")
    assert (request.job, request.code, request.back_to) == ("taxi", "m2:j", "a")
    assert request.maps == Maps({"hourly": "per-hour"}, {"per-hour": {"a": "c"}}, allow_non_restored_state=False)


def test_a_fork_that_is_submitted_again_stays_one(job: StoredJob, tmp_path: Path) -> None:
    """Without its folder of tables it would write to those of its job."""
    forked(job, "what-if", outputs=tmp_path / "apart")
    before = require_spec(job.root, "what-if").spec
    client = JobClient(job.root, "test", job.clock)
    again = client.submit(JobSpec("what-if", "m2:j", wanted="suspended", trigger_ms=5_000)).spec
    assert (again.code, again.trigger_ms) == ("m2:j", 5_000)
    assert (again.outputs_root, again.origin, again.restore) == (str(tmp_path / "apart"), before.origin, before.restore)
    request = promotion_of(job.root, "what-if")
    assert (request.job, request.code, request.back_to) == ("taxi", "m2:j", "a")
    assert discard(job.root, "what-if", of="taxi", clock=job.clock)[:2] == tuple(str(tmp_path / "apart" / table) for table in TABLES)
    assert [rows(tmp_path / name) for name in TABLES] == [[0, 1, 2]] * 2
    # The name is free, and a job that gets it now is no fork.
    assert client.submit(JobSpec("what-if", "m:j")).spec.outputs_root is None


def test_a_savepoint_that_is_another_one_by_now_is_not_promoted_from(job: StoredJob) -> None:
    forks.fork(job.root, "taxi", "a", name="what-if", code="m:j", start=False, clock=job.clock, judge=fits)
    promotion_of(job.root, "what-if")
    job.savepoints.dispose("a")
    job.restart()
    run_epoch(job)
    job.savepoints.take("a")
    with pytest.raises(UpgradeError, match="has been replaced since 'what-if' began with it"):
        promotion_of(job.root, "what-if")


def test_a_fork_that_has_not_begun_keeps_its_savepoint(job: StoredJob) -> None:
    job.restart()
    job.savepoints.take("periodic", kind="periodic")
    forks.fork(job.root, "taxi", "periodic", name="what-if", code="m:j", start=False, clock=job.clock, judge=fits)
    job.clock.advance(1)
    job.savepoints.take("newer")
    assert [reference.job for reference in job.savepoints.file_references("periodic")] == ["what-if"]
    assert job.savepoints.retire(SavepointRetention(count=0)) == ()
    # Who asks for another savepoint lets go of the first, and a fork that is discarded of its own.
    forks.fork(job.root, "taxi", "newer", name="other", code="m:j", start=False, clock=job.clock, judge=fits)
    client = JobClient(job.root, "test", job.clock)
    client.start("other", restore=Restore("periodic", job="taxi", identity="again"))
    assert [{reference.job for reference in job.savepoints.file_references(name)} for name in ("newer", "periodic")] == [
        set(),
        {"other", "what-if"},
    ]
    client.stop("other")
    discard(job.root, "other", clock=job.clock)
    assert [reference.job for reference in job.savepoints.file_references("periodic")] == ["what-if"]
    spec = read_spec(job.root, "what-if")
    assert spec is not None
    assert spec.spec.restore is not None
    fork = StoredJob(job.root, "what-if", job.clock)
    fork.restore(spec.spec.restore)
    # Its files are held from now on, and its spec asks for nothing any more.
    assert [(reference.lasting, bool(reference.files)) for reference in job.savepoints.file_references("periodic")] == [(True, True)]


def test_a_job_that_asks_for_its_own_savepoint_keeps_it(job: StoredJob) -> None:
    job.restart()
    job.savepoints.take("periodic", kind="periodic")
    job.clock.advance(1)
    job.savepoints.take("newer")
    client = JobClient(job.root, "test", job.clock)
    client.submit(JobSpec("taxi", "m:j"))
    request = Restore("periodic", identity="back")
    client.start("taxi", restore=request)
    assert job.savepoints.retire(SavepointRetention(count=0)) == ()
    job.restore(request)
    assert [savepoint.name for savepoint in job.savepoints.retire(SavepointRetention(count=0))] == ["periodic"]


def test_a_name_that_nobody_has_is_no_fork_s(job: StoredJob) -> None:
    with pytest.raises(UnknownJobError, match="no job 'waht-if'"):
        discard(job.root, "waht-if", clock=job.clock)


def test_where_others_write_has_to_be_known(job: StoredJob, tmp_path: Path) -> None:
    fork = forked(job, "what-if", outputs=tmp_path / "apart")
    other = StoredJob(job.root, "other", job.clock)
    other.commit()
    other.folder.put("log/000000000001.json", b"{}")
    with pytest.raises(CorruptStoreError):
        discard(job.root, "what-if", clock=fork.clock)
    assert [item.name for item in fork.savepoints.list()] == ["own"]
    shutil.rmtree(tmp_path / "store" / "other")
    # And it was given up: no lease is to be waited for.
    assert discard(job.root, "what-if", clock=fork.clock)


def test_a_fork_of_a_fork_that_began_meanwhile_is_seen(job: StoredJob, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = forked(job, "one"), StoredJob(job.root, "two", job.clock)
    remove = Pins.remove

    def meanwhile(pins: Pins, name: str) -> None:
        two.restore(Restore("own", job="one"))
        remove(pins, name)

    monkeypatch.setattr(Pins, "remove", meanwhile)
    with pytest.raises(SavepointInUseError, match="is read by two"):
        discard(job.root, "one", clock=job.clock)
    assert two.driver.last is not None
    assert {path for owner, path in live_files(two.driver.last) if owner == "one"} <= one.state_files()


def test_a_fork_of_a_fork_that_begins_too_late_finds_no_savepoint(job: StoredJob, monkeypatch: pytest.MonkeyPatch) -> None:
    forked(job, "one")
    two = StoredJob(job.root, "two", job.clock)
    restore = Restore("own", job="one")
    savepoint, record = prepare_restore(job.root, two.driver, restore)
    remove = Pins.remove

    def meanwhile(pins: Pins, name: str) -> None:
        remove(pins, name)
        with pytest.raises(CorruptStoreError, match="disposed of"):
            begin_lineage(two.driver, restore, savepoint, record)

    monkeypatch.setattr(Pins, "remove", meanwhile)
    with pytest.raises(SavepointInUseError):
        discard(job.root, "one", clock=job.clock)
    assert two.log.load().epoch is None
