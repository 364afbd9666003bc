from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tidemark as tm
from tests.control.sparkless_driver import SparklessLauncher
from tests.savepoints.delta_jobs import job_with_tables, rows, run_epoch, write
from tests.savepoints.stored_jobs import StoredJob
from tests.upgrade.upgrade_worlds import fits
from tidemark.cli.program.main import main
from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.client.job_client import JobClient
from tidemark.control.desired.spec_store import read_spec
from tidemark.control.forks import forks
from tidemark.control.forks.promoting import promotion_of
from tidemark.control.model.spec import JobSpec
from tidemark.control.observed.observe import observe
from tidemark.savepoints.model.restore import RestoreTargets
from tidemark.state.log.records import OutputRecord
from tidemark.testing.manual_clock import ManualClock


@pytest.fixture
def job(tmp_path: Path) -> StoredJob:
    made = job_with_tables(tmp_path)
    for _ in range(3):
        run_epoch(made)
    made.driver.release()
    return made


@pytest.fixture
def fitting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let any code of a fork fit: what is stored here is of no code."""
    monkeypatch.setattr(forks, "fork", partial(forks.fork, judge=fits))


def call(tmp_path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--store", str(tmp_path / "store")])


def said(tmp_path: Path, *arguments: str) -> str:
    result = call(tmp_path, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_savepoint_from_its_taking_to_its_disposal(job: StoredJob, tmp_path: Path) -> None:
    assert job.name == "taxi"
    taken = json.loads(said(tmp_path, "savepoint", "trigger", "taxi", "--name", "a", "--note", "why", "--label", "k=v", "--json"))
    assert (taken["name"], taken["epoch"], taken["kind"], taken["labels"], taken["note"]) == ("a", 2, "manual", {"k": "v"}, "why")
    assert {name: table["version"] for name, table in taken["tables"].items()} == {"hourly": 2, "late": 2}
    said(tmp_path, "savepoint", "trigger", "taxi", "--name", "b", "--epoch", "0")
    listed = said(tmp_path, "savepoint", "list", "taxi").splitlines()
    assert listed[0].split()[:4] == ["savepoint", "epoch", "taken", "kind"]
    assert [line.split()[0] for line in listed[1:]] == ["a", "b"]
    shown = said(tmp_path, "savepoint", "show", "taxi", "a")
    assert "operator hourly: 30 rows" in shown
    assert f"output late: version 2 of {tmp_path / 'late'}, kept until" in shown
    assert "operator hourly: state rows 10 -> 30 (+20)" in said(tmp_path, "savepoint", "diff", "taxi", "b", "a")
    assert "files" in said(tmp_path, "savepoint", "export", "taxi", "a", str(tmp_path / "export"))
    assert "c: epoch 2" in said(tmp_path, "savepoint", "import", "other", str(tmp_path / "export"), "--name", "c")
    assert [item.name for item in tm.savepoints_of("other", store=str(tmp_path / "store")).list()] == ["c"]
    said(tmp_path, "savepoint", "dispose", "taxi", "a", "b")
    assert said(tmp_path, "savepoint", "list", "taxi") == "taxi has no savepoints\n"


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("savepoint", "trigger", "nothing"), "there is no job 'nothing'"),
        (("savepoint", "trigger", "taxi", "--name", "../x"), "savepoint name '../x' is not allowed"),
        (("savepoint", "trigger", "taxi", "--epoch", "77"), "epoch 77 is not retained"),
        (("savepoint", "trigger", "taxi", "--label", "x"), "--label 'x' is not KEY=VALUE"),
        (("savepoint", "show", "taxi", "x"), "job 'taxi' has no savepoint 'x'"),
        (("savepoint", "dispose", "taxi"), "dispose takes either names or --retire"),
        (("savepoint", "import", "taxi", "empty"), "holds no exported savepoint"),
        (("rewind", "taxi", "--to", "x"), "job 'taxi' has no savepoint 'x'"),
        (("rewind", "taxi", "--to", "x", "--dry-run"), "job 'taxi' has no savepoint 'x'"),
        (("diff", "taxi", "taxi", "--output", "x"), "job 'taxi' has no table 'x'"),
        (("rescale", "taxi", "4"), "no job 'taxi' was submitted"),
    ],
)
@pytest.mark.usefixtures("job")
def test_what_cannot_be_is_said_with_a_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], what: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    result = call(tmp_path, *arguments)
    # Of commands that answer, 1 is the answer.
    assert result.exit_code == (2 if arguments[0] in {"rewind", "diff"} else 1)
    assert what in result.stderr
    assert "Fix: " in result.stderr


def test_a_rewind_is_looked_at_and_then_done(job: StoredJob, tmp_path: Path) -> None:
    job.savepoints.take("a", epoch=0)
    text = said(tmp_path, "rewind", "taxi", "--to", "a", "--dry-run")
    assert "from epoch 2 back to epoch 0 (a)" in text
    assert "table of late: back to version 0" in text
    assert rows(tmp_path / "late") == [0, 1, 2]
    assert "taxi resumes after epoch 0" in said(tmp_path, "rewind", "taxi", "--to", "a", "--why", "a bug")
    assert rows(tmp_path / "late") == [0]
    job.savepoints.take("b")
    job.restart()
    run_epoch(job)
    job.driver.release()
    write(str(tmp_path / "late"), 9)
    refused = call(tmp_path, "rewind", "taxi", "--to", "b", "--dry-run")
    assert refused.exit_code == 1
    assert "refused: output 'late'" in refused.stdout


def test_a_job_is_not_stopped_for_a_rewind_that_cannot_be(job: StoredJob, tmp_path: Path) -> None:
    job.savepoints.take("a", epoch=0)
    write(str(tmp_path / "late"), 9)
    JobClient(job.root).submit(JobSpec("taxi", "examples.taxi.job:job"))
    before = read_spec(job.root, "taxi")
    for name, why in (("a", "by other writers"), ("nowhere", "no savepoint 'nowhere'")):
        refused = call(tmp_path, "rewind", "taxi", "--to", name, "--stop")
        assert refused.exit_code == 2
        assert why in refused.stderr
    assert read_spec(job.root, "taxi") == before


def test_a_rewind_that_stops_the_job_first_starts_it_again_and_says_all_of_it_in_json(
    job: StoredJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.savepoints.take("a", epoch=0)
    JobClient(job.root).submit(JobSpec("taxi", "examples.taxi.job:job"))
    launcher = SparklessLauncher(tmp_path)
    monkeypatch.setattr("tidemark.cli.savepoints.rewinding.launchers_here", lambda: {"local": launcher})
    try:
        rewound, started = map(json.loads, said(tmp_path, "rewind", "taxi", "--to", "a", "--stop", "--json").splitlines())
    finally:
        handle = observe(job.root, "taxi", {"local": launcher}).handle
        if handle is not None:
            launcher.kill(handle)
    assert (rewound["savepoint"], rewound["epoch"]) == ("a", 0)
    assert (started["generation"], started["spec"]["wanted"], started["lifecycle"]) == (3, "running", "running")


def test_another_parallelism_is_a_new_generation_and_no_restart(job: StoredJob, tmp_path: Path) -> None:
    JobClient(job.root).submit(JobSpec("taxi", "examples.taxi.job:job", wanted="suspended"))
    before = read_spec(job.root, "taxi")
    said(tmp_path, "rescale", "taxi", "7", "--why", "more rows")
    after = read_spec(job.root, "taxi")
    assert before is not None
    assert after is not None
    assert (after.generation, after.spec.parallelism, after.why) == (2, 7, "more rows")
    assert not after.spec.requires_restart_from(before.spec)


@pytest.mark.usefixtures("fitting")
def test_a_fork_is_submitted_compared_and_discarded(job: StoredJob, tmp_path: Path) -> None:
    job.savepoints.take("a", epoch=1)
    said(tmp_path, "fork", "taxi", "--from", "a", "--as", "what-if", "--code", "examples.taxi.job:job", "--suspended")
    made = read_spec(job.root, "what-if")
    assert made is not None
    assert (made.spec.code, made.spec.wanted, made.why) == ("examples.taxi.job:job", "suspended", "fork of taxi from a")
    assert made.spec.outputs_root == str(tmp_path / "store" / "what-if" / "outputs")
    restore = made.spec.restore
    assert restore is not None
    assert (restore.savepoint, restore.job, restore.identity[:5]) == ("a", "taxi", "fork-")
    # What its driver would do: go on from the savepoint, with other results.
    fork = StoredJob(
        job.root,
        "what-if",
        ManualClock(SYSTEM_CLOCK.now_ms()),
        outputs={"hourly": OutputRecord("delta", f"{made.spec.outputs_root}/hourly")},
    )
    fork.restore(restore)
    run_epoch(fork)
    # Of its own accord it comes to what its job has since; what that had before the savepoint is no difference.
    write(f"{made.spec.outputs_root}/hourly", 2)
    assert said(tmp_path, "diff", "taxi", "what-if", "--output", "hourly") == (
        "1 rows the same, 0 added, 0 removed, 0 changed\n  left out: 2 rows from before the savepoint that the fork began with\n"
    )
    write(f"{made.spec.outputs_root}/hourly", 0)
    write(f"{made.spec.outputs_root}/hourly", 7)
    differing = call(tmp_path, "diff", "taxi", "what-if", "--output", "hourly", "--json")
    assert differing.exit_code == 1
    counts = json.loads(differing.stdout)
    assert [counts[name] for name in ("same", "added", "removed", "changed", "left_out")] == [1, 2, 0, 0, 2]
    assert "1 rows the same, 0 added, 2 removed, 0 changed" in call(tmp_path, "diff", "what-if", "taxi", "--output", "hourly").stdout
    assert "there is a job 'what-if' already" in call(tmp_path, "fork", "taxi", "--from", "a", "--as", "what-if", "--code", "m:j").stderr
    assert call(tmp_path, "discard", "what-if").exit_code == 75
    fork.driver.release()
    assert "deleted" in said(tmp_path, "discard", "what-if")
    assert not (tmp_path / "store" / "what-if").exists()
    assert job.savepoints.file_references("a") == ()
    assert "is not a fork" in call(tmp_path, "discard", "taxi").stderr


@pytest.mark.usefixtures("fitting")
def test_a_fork_takes_over_what_was_renamed_and_leaves_behind_what_may_be(job: StoredJob, tmp_path: Path) -> None:
    job.savepoints.take("a", epoch=1)
    words = ("fork", "taxi", "--from", "a", "--as", "what-if", "--code", "m:j", "--suspended")
    for option, given, fault in (
        ("--map", "hourly=", "--map 'hourly=' is not OLD=NEW"),
        ("--map", "hourli=per-hour", "has no such operator (did you mean 'hourly'?)"),
        ("--column", "fares=total", "--column 'fares=total' names no operator's column"),
    ):
        assert fault in call(tmp_path, *words, option, given).stderr
        assert read_spec(job.root, "what-if") is None
    renames = ("--map", "hourly=per-hour", "--column", "per-hour:fares=total", "--column", "per-hour:tips=", "--allow-non-restored-state")
    said(tmp_path, *words, *renames)
    made = read_spec(job.root, "what-if")
    assert made is not None
    restore = made.spec.restore
    assert restore is not None
    assert (restore.savepoint, restore.job, restore.uids, restore.allow_non_restored_state) == ("a", "taxi", {"hourly": "per-hour"}, True)
    assert restore.columns == {"per-hour": {"fares": "total", "tips": None}}
    # As its driver does: the state is that of the other uid, and what the code no longer has is left behind.
    fork = StoredJob(job.root, "what-if", job.clock, uids=("per-hour",))
    begun = fork.restore(restore, targets=RestoreTargets(("per-hour",), ("trips",)))
    assert list(begun.operators) == ["per-hour"]
    assert list(begun.sources) == ["trips"]
    fork.driver.release()
    # Who promotes it need not say it again.
    maps = promotion_of(job.root, "what-if").maps
    assert (maps.uids, maps.columns, maps.allow_non_restored_state) == (restore.uids, restore.columns, True)
