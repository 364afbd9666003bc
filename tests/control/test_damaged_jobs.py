"""One job with a damaged file: it is shown as that, and every other job as it is, to people, reconcilers, metrics and alerts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.control.alert_cases import Mailbox
from tests.control.test_alert_reporter import reporter
from tests.control.worlds import World
from tests.upgrade.upgrade_worlds import UpgradeWorld
from tidemark.cli.program.main import main
from tidemark.control.client.job_client import JobClient
from tidemark.control.desired.spec_store import read_spec
from tidemark.control.metrics.metric_registry import MetricRegistry, series_of
from tidemark.control.model.paths import SPECS, numbered
from tidemark.control.model.spec import JobSpec
from tidemark.control.view.view_builder import view_of, views_of
from tidemark.errors import CorruptStoreError
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.progress import EpochProgress
from tidemark.state.log.records import EpochRecord, OwnerInfo
from tidemark.state.status.history import HistoryWriter, read_history
from tidemark.state.store.layout import history_path
from tidemark.state.store.store import JobStore

SPEC = numbered(SPECS, 1)


def edit(store: JobStore, job: str) -> None:
    """Change a job's spec by hand, as somebody does who does not know of the checksum."""
    text = store.at(job).get(SPEC).replace(b"fares:job", b"other:job")
    store.at(job).put(SPEC, text)


def tidemark(store: JobStore, *arguments: str, code: int = 0) -> Result:
    done = CliRunner().invoke(main, [*arguments, "--store", store.uri], terminal_width=200)
    assert done.exit_code == code, (done.output, done.exception)
    return done


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobStore:
    """A store with three suspended jobs, of which the second is damaged."""
    monkeypatch.setenv("COLUMNS", "160")
    store = JobStore.open(str(tmp_path / "store"))
    for name in ("bikes", "fares", "trips"):
        JobClient(store, "ada").submit(JobSpec(name, "fares:job", wanted="suspended"))
    edit(store, "fares")
    return store


def test_one_damaged_spec_hides_no_other_job(root: JobStore) -> None:
    lines = tidemark(root, "list").stdout.splitlines()
    assert [tuple(line.split()[:3]) for line in lines[1:]] == [
        ("bikes", "stopped", "stopped"),
        ("fares", "damaged", "damaged"),
        ("trips", "stopped", "stopped"),
    ]
    shown = tidemark(root, "status").stdout
    assert "fares: damaged\n" in shown
    path = f"{root.uri.removeprefix('file://')}/fares/{SPEC}"
    assert f"[TM401] {path} does not match its checksum" in shown
    assert "Fix: restore the file from a backup, or delete it: the generation before it then counts again" in shown
    assert "trips: stopped" in shown
    page = tidemark(root, "top", "--frames", "1").stdout
    assert "trips" in page
    assert "does not match its checksum" in page
    documents = [json.loads(line) for line in tidemark(root, "list", "--json").stdout.splitlines()]
    assert [(document["job"], document["state"]) for document in documents] == [
        ("bikes", "stopped"),
        ("fares", "damaged"),
        ("trips", "stopped"),
    ]


def test_only_a_check_is_answered_by_its_exit_code(root: JobStore) -> None:
    tidemark(root, "status", "--check", code=3)
    tidemark(root, "status", "fares", "--check", code=3)
    tidemark(root, "status", "trips", "--check")
    assert "does not match its checksum" in tidemark(root, "status", "fares").stdout
    assert "there is no job 'nobody'" in tidemark(root, "status", "nobody", code=1).stderr
    assert "(bikes, fares, trips)" in tidemark(root, "status", "nobody", code=1).stderr


def test_what_needs_the_spec_names_the_file_and_the_way_out(root: JobStore) -> None:
    for command in (("start", "fares"), ("stop", "fares"), ("logs", "fares"), ("history", "fares", "--changes")):
        assert SPEC in tidemark(root, *command, code=1).stderr
    root.at("fares").delete([SPEC])
    assert read_spec(root, "fares") is None


def test_reconcilers_metrics_and_alerts_pass_over_it_and_see_to_the_others() -> None:
    world, board, mailbox = World(), MetricRegistry(), Mailbox()
    for name in ("bikes", "fares", "trips"):
        world.submit(name)
    edit(world.store, "fares")
    report = world.run(world.reconciler(), 10)
    assert set(report.errors) == {"fares"}
    assert SPEC in str(report.errors["fares"])
    for name in ("bikes", "trips"):
        assert world.status(name).lifecycle == "running"
    with reporter(world.store, mailbox, board) as telling:
        telling.submit(report.observations, report.errors, seconds=0.1)
    shown = {info.stem: numbers for info, numbers in series_of(board.read())}
    assert {labels[:2] for labels, _ in shown["job_state"]} == {("bikes", "running"), ("fares", "damaged"), ("trips", "running")}
    assert dict(shown["job_healthy"]) == {("bikes",): 1, ("fares",): 0, ("trips",): 1}
    assert "fares" not in {labels[0] for labels, _ in shown["restarts"]}, "a counter that fell to 0 would rise again"
    assert [alert.job for alert in mailbox.taken] == ["fares"]


def epoch(job: str, number: int) -> EpochProgress:
    return EpochProgress(job, "a1", number, 1_000 + number, 1, 1, 1)


def test_a_damaged_history_stops_no_driver_and_only_what_shows_it(root: JobStore, caplog: pytest.LogCaptureFixture) -> None:
    log = JobLog(root.at("trips"), "trips")
    term = log.acquire(OwnerInfo("host-a", 7, "birth", "by hand"))
    history = HistoryWriter(root, "trips")
    for number in range(3):
        progress = epoch("trips", number)
        term.append(EpochRecord("trips", "a1", None, term.term, number, progress.processing_time, str(number), progress))
        history.append(progress)
    path = history_path(0)
    whole = root.at("trips").get(path)
    root.at("trips").put(path, whole[:-40])
    tidemark(root, "list")
    tidemark(root, "status", "trips")
    assert "delete" in tidemark(root, "top", "trips", "--frames", "1").stdout
    assert path in tidemark(root, "history", "trips", code=1).stderr

    # The next driver begins as ever: the torn line is written again from the log.
    assert HistoryWriter(root, "trips").backfill(log.epochs()) == 1
    assert "a damaged line of the history is dropped" in caplog.text
    assert root.at("trips").get(path) == whole
    # Nor does one that is damaged further up.
    root.at("trips").put(path, b"{oops\n" + whole)
    assert HistoryWriter(root, "trips").backfill(log.epochs()) == 0
    with pytest.raises(CorruptStoreError, match="is damaged in line 1"):
        read_history(root, "trips")
    lifecycle_of_all = [line.split()[1] for line in tidemark(root, "list").stdout.splitlines()[1:]]
    assert lifecycle_of_all == ["stopped", "damaged", "stopped"]


DAMAGE = b'{"format": 1, "kind": "sta'


def test_a_damaged_status_is_shown_as_that_and_the_next_start_writes_it_again(root: JobStore) -> None:
    log = JobLog(root.at("bikes"), "bikes")
    term = log.acquire(OwnerInfo("host-a", 7, "birth", "by hand"))
    term.append(EpochRecord("bikes", "a1", None, term.term, 0, 1_000, "0", epoch("bikes", 0)))
    root.delete([f"bikes/{SPEC}"])
    for name in ("bikes", "trips"):
        root.at(name).put("status.json", DAMAGE)
        shown = tidemark(root, "status", name).stdout
        assert shown.startswith(f"{name}: damaged\n")
        assert "nothing committed" not in shown
        assert f"{name}/status.json is not whole JSON" in shown
        assert "Fix: start the job, which writes the file again, or delete it; the job's log is intact" in shown
        tidemark(root, "status", name, "--check", code=3)
    lines = tidemark(root, "list").stdout.splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["damaged"] * 3
    assert "is not whole JSON" in tidemark(root, "top", "--frames", "1").stdout


def test_a_damaged_status_keeps_nobody_from_starting_and_upgrading(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path).started()
    world.store.at("fares").put("status.json", DAMAGE)
    assert view_of(world.observe(), world.clock.now_ms()).state == "damaged"
    # Its driver goes on, and writes it again.
    world.run(world.reconciler(), 5, every=1)
    assert view_of(world.observe(), world.clock.now_ms()).state == "running"
    assert len(world.processes) == 1

    JobClient(world.store, "ada").stop("fares", "finish", "a look")
    world.run(world.reconciler(), 5, every=1)
    world.store.at("fares").put("status.json", DAMAGE)
    assert [view.state for view in views_of([world.observe()], {}, world.clock.now_ms())] == ["damaged"]
    JobClient(world.store, "ada").start("fares", "go on")
    world.run(world.reconciler(), 5, every=1)
    assert view_of(world.observe(), world.clock.now_ms()).state == "running"

    world.begin()
    upgrading = world.upgrading()
    world.store.at("fares").put("status.json", DAMAGE)
    assert upgrading.resume("fares", timeout_ms=600_000).step == "done"
    rows = [number for number, _ in world.rows()]
    assert rows == list(range(len(rows)))
