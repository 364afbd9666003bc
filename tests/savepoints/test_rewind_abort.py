"""A rewind that was begun is given up as long as no table was put back; whoever slept meanwhile does nothing more."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import tidemark as tm
from tests.savepoints.delta_jobs import TABLES, job_with_tables, publish, rows, run_epoch
from tests.savepoints.stored_jobs import StoredJob
from tidemark.cli.program.main import main
from tidemark.errors import JobRunningError, PublishError, RewindError, TidemarkError, UpgradeError
from tidemark.savepoints.core.retention import SavepointRetention
from tidemark.savepoints.delta.table_versions import Commit
from tidemark.savepoints.model.rewind_journal import RewindJournal, read_rewind, write_rewind
from tidemark.savepoints.model.savepoint import TableVersion
from tidemark.savepoints.model.upgrade_lock import UpgradeLock, remove_upgrade_lock, write_upgrade_lock
from tidemark.savepoints.rewind import rewind_abort, rewind_tables, rewinding
from tidemark.savepoints.rewind.rewind_abort import abort_rewind
from tidemark.savepoints.rewind.rewind_plan import commits_since
from tidemark.savepoints.rewind.rewind_tables import revert_table
from tidemark.savepoints.rewind.rewinding import rewind
from tidemark.state.log.records import EpochRecord, ParentRef
from tidemark.state.store.layout import REWIND
from tidemark.state.store.store import JobStore

ALL = list(range(6))
LEASE_MS = 31_000


class Killed(BaseException):
    """The process was killed."""


@pytest.fixture
def job(tmp_path: Path) -> StoredJob:
    """Six epochs, a savepoint after epoch 2; stopped."""
    made = job_with_tables(tmp_path)
    for epoch in ALL:
        run_epoch(made)
        if epoch == 2:
            made.savepoints.take("good")
    made.driver.release()
    return made


@pytest.fixture
def kill_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let whoever comes to a point die there; nobody where it has no name."""

    def request(wanted: str) -> None:
        def at(point: str) -> None:
            if point == wanted:
                raise Killed

        for module in (rewinding, rewind_abort):
            monkeypatch.setattr(module, "crash_point", at)

    return request


def begin(job: StoredJob, name: str = "good", *, although_unpublished: bool = False) -> None:
    with pytest.raises(Killed):
        rewind(job.root, "taxi", name, clock=job.clock, although_unpublished=although_unpublished)


def test_of_a_rewind_and_an_upgrade_begun_at_once_the_rewind_is_as_if_it_had_not_been(
    job: StoredJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def upgraded_first(folder: JobStore, journal: RewindJournal) -> bool:
        # By somebody who looked for a rewind just before there was one.
        write_upgrade_lock(folder, UpgradeLock("upgrade-1", (), 0))
        return write_rewind(folder, journal)

    with monkeypatch.context() as patch:
        patch.setattr(rewinding, "write_rewind", upgraded_first)
        with pytest.raises(UpgradeError, match="an upgrade of the job is under way"):
            rewind(job.root, "taxi", "good", clock=job.clock)
    assert [rows(tmp_path / name) for name in TABLES] == [ALL] * 2
    remove_upgrade_lock(job.folder)
    require_as_before(job, tmp_path)


def require_as_before(job: StoredJob, folder: Path) -> None:
    """Nothing of the rewind is left, and the job goes on; then it can be rewound as ever."""
    assert read_rewind(job.folder) is None
    assert not any(name.startswith("rewind-") for name in job.savepoints.pins.names())
    job.restart()
    assert job.driver.last is not None
    assert job.driver.last.epoch == ALL[-1]
    run_epoch(job)
    assert [rows(folder / name) for name in TABLES] == [[*ALL, 6]] * 2
    job.driver.release()
    rewind(job.root, "taxi", "good", clock=job.clock)
    assert [rows(folder / name) for name in TABLES] == [[0, 1, 2]] * 2


def test_before_any_table_was_put_back_it_is_given_up(job: StoredJob, tmp_path: Path, kill_at: Callable[[str], None]) -> None:
    kill_at("rewind-noted")
    begin(job)
    kill_at("")
    said: list[str] = []
    tm.abort_rewind("taxi", store=job.root, on_progress=said.append)
    assert said == ["the rewind to good is aborted: no table was reverted, and taxi resumes after epoch 5"]
    require_as_before(job, tmp_path)


@pytest.mark.parametrize(
    ("point", "why"),
    [
        ("rewind-table-back", "the table of output 'hourly' is reverted already, to version 2"),
        ("rewind-tables-back", "'hourly' is reverted already, to version 2; the table of output 'late' is reverted already"),
        ("rewind-restored", "tables and state are reverted already, only its journal is left"),
    ],
)
def test_afterwards_it_is_refused_and_can_be_gone_on_with(
    job: StoredJob, tmp_path: Path, kill_at: Callable[[str], None], point: str, why: str
) -> None:
    kill_at(point)
    begin(job)
    with pytest.raises(RewindError, match=r"can no longer be aborted.*`tidemark rewind taxi --to good`") as refused:
        abort_rewind(job.root, "taxi", clock=job.clock)
    assert why in refused.value.what
    kill_at("")
    rewind(job.root, "taxi", "good", clock=job.clock)
    assert [rows(tmp_path / name) for name in TABLES] == [[0, 1, 2]] * 2


@pytest.mark.parametrize("point", ["rewind-given-up", "rewind-table-kept"])
@pytest.mark.parametrize("goes_on", [True, False], ids=["rewound", "given-up"])
def test_killed_while_it_is_given_up_either_can_follow(
    job: StoredJob, tmp_path: Path, kill_at: Callable[[str], None], point: str, *, goes_on: bool
) -> None:
    kill_at("rewind-noted")
    begin(job)
    kill_at(point)
    with pytest.raises(Killed):
        abort_rewind(job.root, "taxi", clock=job.clock)
    kill_at("")
    if goes_on:
        head = rewind(job.root, "taxi", "good", clock=job.clock)
        assert head.epoch == 2
        assert [rows(tmp_path / name) for name in TABLES] == [[0, 1, 2]] * 2
    else:
        abort_rewind(job.root, "taxi", clock=job.clock)
        require_as_before(job, tmp_path)


@pytest.mark.parametrize("by", ["who gives it up", "who began it and is not wanted"])
def test_killed_just_before_its_note_goes_it_can_be_gone_on_with(
    job: StoredJob, tmp_path: Path, kill_at: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """What the rewind's own pin keeps is there as long as its note is: else it would stop with its tables back and its state not."""

    def killed(*_: object) -> None:
        raise Killed

    if by == "who gives it up":
        kill_at("rewind-noted")
        begin(job)
        kill_at("")
        monkeypatch.setattr(rewind_abort, "remove_rewind", killed)
        with pytest.raises(Killed):
            abort_rewind(job.root, "taxi", clock=job.clock)
    else:

        def unwanted_once_begun() -> None:
            if read_rewind(job.folder) is not None:
                raise UpgradeError("somebody decided otherwise", fix="none")

        monkeypatch.setattr(rewinding, "remove_rewind", killed)
        with pytest.raises(Killed):
            rewind(job.root, "taxi", "good", clock=job.clock, require=unwanted_once_begun)
    monkeypatch.undo()
    assert read_rewind(job.folder) is not None
    assert rewind(job.root, "taxi", "good", clock=job.clock).epoch == 2
    assert [rows(tmp_path / name) for name in TABLES] == [[0, 1, 2]] * 2


def test_killed_when_its_note_is_gone_it_is_given_up(job: StoredJob, tmp_path: Path, kill_at: Callable[[str], None]) -> None:
    kill_at("rewind-noted")
    begin(job)
    kill_at("rewind-note-gone")
    with pytest.raises(Killed):
        abort_rewind(job.root, "taxi", clock=job.clock)
    kill_at("")
    assert read_rewind(job.folder) is None
    job.savepoints.retire(SavepointRetention(count=0, age_ms=0))
    require_as_before(job, tmp_path)


@pytest.mark.parametrize("asleep", ["before it looks at a table", "before it commits to it", "before it closes it"])
def test_one_that_sleeps_meanwhile_does_nothing_when_it_wakes(
    job: StoredJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asleep: str
) -> None:
    slept: list[bool] = []

    def sleep() -> None:
        if not slept:
            slept.append(True)
            job.clock.advance(LEASE_MS)
            abort_rewind(job.root, "taxi", clock=job.clock)

    def sleeps_first(name: str, output: str, version: TableVersion, journal: RewindJournal) -> bool:
        sleep()
        return revert_table(name, output, version, journal)

    def sleeps_then(version: TableVersion, newest: int) -> list[Commit]:
        found = commits_since(version, newest)
        sleep()
        return found

    pending: EpochRecord | None = None
    if asleep == "before it closes it":
        # The newest epoch is not published yet, and the tables are at the savepoint's versions.
        job.restart()
        job.savepoints.take("now")
        pending = job.commit()
        job.driver.release()
    if asleep == "before it looks at a table":
        monkeypatch.setattr(rewinding, "revert_table", sleeps_first)
    else:
        monkeypatch.setattr(rewind_tables, "commits_since", sleeps_then)
    with pytest.raises((RewindError, PublishError)) as woken:
        rewind(job.root, "taxi", "now" if pending is not None else "good", clock=job.clock)
    assert ("aborted by another process" in str(woken.value)) == (asleep == "before it looks at a table")
    monkeypatch.undo()
    if pending is not None:
        publish(pending)
        assert [rows(tmp_path / name) for name in TABLES] == [[*ALL, 6]] * 2
        assert read_rewind(job.folder) is None
    else:
        require_as_before(job, tmp_path)


@pytest.mark.parametrize("empty", [False, True])
def test_a_table_that_is_closed_to_rows_it_does_not_show_yet_keeps_it_going(
    job: StoredJob, tmp_path: Path, kill_at: Callable[[str], None], *, empty: bool
) -> None:
    job.restart()
    job.savepoints.take("now")
    if empty:
        job.outputs = {name: replace(output, files=(), rows=0) for name, output in job.outputs.items()}
    job.commit()
    job.driver.release()
    kill_at("rewind-tables-back")
    begin(job, "now", although_unpublished=True)
    if empty:
        abort_rewind(job.root, "taxi", clock=job.clock)
        assert read_rewind(job.folder) is None
    else:
        with pytest.raises(RewindError, match="'hourly' is fenced against epoch 6 already, which it does not show yet"):
            abort_rewind(job.root, "taxi", clock=job.clock)
    assert [rows(tmp_path / name) for name in TABLES] == [ALL] * 2


def test_the_form_of_the_note_is_for_ever(job: StoredJob) -> None:
    tables = {"hourly": TableVersion("/lake/hourly", 2, 1_700_000_000_000, "id-1")}
    journal = RewindJournal(
        "rewind-l1", "good", "l1", 2, tables, 1_700_000_000_000, "ada", "a bug", pin="rewind-l1", ended=ParentRef("l0", 5), tries=1
    )
    write_rewind(job.folder, journal)
    golden = (Path(__file__).parent / "golden-notes" / "rewind-1.json").read_bytes()
    assert json.loads(golden) == json.loads(job.folder.get(REWIND))
    job.folder.put(REWIND, golden)
    assert read_rewind(job.folder) == journal


def test_what_cannot_be_given_up_is_refused(job: StoredJob, kill_at: Callable[[str], None]) -> None:
    def refused(kind: type[TidemarkError], what: str) -> None:
        with pytest.raises(kind, match=what):
            abort_rewind(job.root, "taxi", clock=job.clock)

    refused(RewindError, "no rewind of the job is under way")
    kill_at("rewind-noted")
    begin(job)
    journal = read_rewind(job.folder)
    write_upgrade_lock(job.folder, UpgradeLock("upgrade-1", ("good",), 0))
    refused(UpgradeError, "tidemark upgrade taxi --abort")
    job.folder.delete(["refs/upgrade.json"])
    job.restart()
    refused(JobRunningError, "the job is driven by process")
    assert read_rewind(job.folder) == journal


def test_as_a_command(job: StoredJob, tmp_path: Path, kill_at: Callable[[str], None]) -> None:
    def type_in(*words: str) -> tuple[int, str]:
        result = CliRunner().invoke(main, ["rewind", "taxi", *words, "--store", str(tmp_path / "store")])
        return result.exit_code, result.output

    for words in ((), ("--to", "good", "--abort"), ("--abort", "--dry-run"), ("--abort", "--stop")):
        code, said = type_in(*words)
        assert (code, "rewind takes either --to SAVEPOINT or --abort" in said) == (2, True)
    assert "no rewind of the job is under way" in type_in("--abort")[1]
    kill_at("rewind-noted")
    begin(job)
    kill_at("")
    assert type_in("--abort", "--json") == (0, '{"job": "taxi", "savepoint": "good", "aborted": true}\n')
    require_as_before(job, tmp_path)
