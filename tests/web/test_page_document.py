"""The document of a job's page: what it says of jobs in every state, what it reads of the store, and what it does not show."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.control.worlds import WatchedStore, World
from tests.web.recorded_job import RecordedJob
from tidemark.control.alerts.engine.alert_store import AlertRecord, write_alerts
from tidemark.control.alerts.model.alert_state import Condition, JobAlerts
from tidemark.control.alerts.model.hysteresis import ThresholdState, ThresholdStates
from tidemark.control.model.view import Health
from tidemark.control.reconcile.effective_status import UNWATCHED_MS
from tidemark.errors import InvalidNameError, UnknownJobError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.progress import EpochProgress
from tidemark.state.log.records import EpochRecord
from tidemark.state.status.history import HistoryWriter
from tidemark.state.status.status import read_status, write_status
from tidemark.state.store.store import JobStore
from tidemark.web.page.document import tag_of
from tidemark.web.page.graph_boxes import NEVER_RAN, NOT_STORED
from tidemark.web.page.reader import SAVEPOINTS, PageReader


@dataclass
class Counter:
    """Counts what is asked of a store."""

    operations: list[str] = field(default_factory=list)

    def __call__(self, operation: str) -> None:
        self.operations.append(operation)

    @property
    def reads(self) -> list[str]:
        return [operation for operation in self.operations if operation.startswith("get ")]


@dataclass
class Reading:
    """A reader of pages over a store that counts."""

    job: RecordedJob
    counter: Counter = field(default_factory=Counter)

    def __post_init__(self) -> None:
        store = self.job.world.store
        watched = WatchedStore(store.location, store.objects, store.prefix, self.counter)
        self.reader = PageReader(watched, self.job.launchers, clock=self.job.world.clock)

    def page(self) -> Any:
        """Return the document as a browser gets it."""
        self.counter.operations.clear()
        return json.loads(json.dumps(self.reader.page(self.job.name)))


@pytest.fixture
def reading() -> Reading:
    return Reading(RecordedJob(World()))


def box(page: Any, role: str, name: str) -> Any:
    return next(node for node in page["graph"]["nodes"] if (node["role"], node["name"]) == (role, name))


def test_a_running_job(reading: Reading) -> None:
    last = reading.job.commit(3, late=4)
    page = reading.page()
    assert (page["job"], page["state"], page["tone"], page["problems"]) == ("fares", "running", "good", [])
    assert page["epoch"] == {"number": 2, "at": last.processing_time, "took_ms": last.duration_ms, "lineage": "a1"}
    hourly = box(page, "operator", "hourly")
    assert hourly["late"] == 12
    assert hourly["rows_in"] == sum(epoch.operators["hourly"].rows_in for epoch in reading.job.epochs)
    assert hourly["lag_ms"] == last.sources["fares"].lag_ms
    assert hourly["held_by"] == "split fares-0"
    assert hourly["state"]["rows"] == last.operators["hourly"].state_rows
    span = reading.job.epochs[-1].processing_time - reading.job.epochs[0].processing_time + reading.job.epochs[0].duration_ms
    assert hourly["in_per_second"] == pytest.approx(hourly["rows_in"] * 1000 / span)
    assert box(page, "source", "fares")["in_per_second"] + box(page, "source", "rides")["in_per_second"] == pytest.approx(
        page["rows"]["per_second"]
    ), "the rates of the sources are that of the job"
    assert [(split["name"], split["idle"], split["holds"]) for split in page["sources"][0]["splits"]] == [
        ("fares-0", False, True),
        ("fares-1", False, False),
        ("fares-2", False, False),
        ("fares-3", True, False),
    ]
    assert page["pressure"]["intake"] == 0.75
    assert page["stages"] == ["absorb", "count", "fire", "output", "check", "publish"]
    assert page["epochs"][-1]["stages"]["absorb"] == last.stages["absorb hourly"] + last.stages["absorb first-ride"]
    assert page["epochs"][-1]["slowest"][0] == ["absorb hourly", last.stages["absorb hourly"]]


def test_rows_that_were_not_accepted_by_reason(reading: Reading) -> None:
    reading.job.commit(2, late=4, malformed=3)
    found = {(each["role"], each["name"], each["reason"]): each for each in reading.page()["refused"]}
    assert found["operator", "hourly", "late"] == {
        "role": "operator", "name": "hourly", "reason": "late", "total": 8, "recent": 8, "to": "late_fares", "is_loss": True,
    }  # fmt: skip
    assert found["source", "fares", "malformed"]["total"] == 6
    assert found["source", "fares", "malformed"]["to"] == "unreadable"
    assert found["operator", "first-ride", "duplicates"]["total"] == 120
    assert not found["operator", "first-ride", "duplicates"]["is_loss"]
    assert found["filter", "refunds", "rejected"]["to"] == "refunds"


@pytest.mark.parametrize(("after", "state", "health"), [(0, "dead", "silent"), (UNWATCHED_MS, "dead", "unwatched")])
def test_a_dead_job_is_bad_and_says_what_to_do(reading: Reading, after: int, state: str, health: Health) -> None:
    reading.job.commit(2)
    reading.job.end()
    reading.job.world.clock.advance(after)
    page = reading.page()
    assert (page["state"], page["health"], page["tone"]) == (state, health, "bad")
    assert "tidemark supervise" in page["advice"]
    assert page["lag_ms"] >= 70_000 + after, "the lag of a job that does not run grows"
    assert box(page, "operator", "hourly")["in_per_second"] is None or after == 0


def test_a_job_that_never_ran() -> None:
    world = World()
    world.submit("fares")
    page = PageReader(world.store, {}, clock=world.clock).page("fares")
    assert (page["state"], page["epochs"], page["sources"]) == ("created", [], [])
    assert page["graph"] == {"note": NEVER_RAN, "code_version": "", "nodes": [], "edges": []}
    assert json.loads(json.dumps(page)) == page


def test_a_job_of_an_earlier_build_has_no_edges() -> None:
    job = RecordedJob(World(), is_graph_stored=False)
    job.commit(2)
    page = Reading(job).page()
    assert page["graph"]["note"] == NOT_STORED
    assert page["graph"]["edges"] == []
    assert box(page, "operator", "hourly")["rows_in"] > 0


@pytest.mark.parametrize("content", [b"{oops", b'{"format":99}'])
@pytest.mark.parametrize("file", ["graph.json", "history/000000000000.jsonl", "status.json", "control/alerts/00000001.json"])
def test_what_cannot_be_read_is_a_problem_beside_the_rest(reading: Reading, file: str, content: bytes) -> None:
    """Damage, and what a newer release wrote, of any part: the page names it and shows the others."""
    reading.job.commit(2)
    reading.job.world.store.put(f"fares/{file}", content)
    page = reading.page()
    said = [*page["problems"], page["warning"], (page["error"] or {}).get("message", "")]
    if file == "control/alerts/00000001.json" and content == b"{oops":
        assert page["alerts"] == [], "damaged alerts are evaluated again"
    else:
        assert any(file in text for text in said), said
    if file != "status.json":
        assert page["state"] == "running"
        assert page["sources"][0]["name"] == "fares"
    else:
        assert (page["state"], page["tone"]) == ("damaged", "bad")
        assert len(page["epochs"]) == 2
    reading.job.world.store.delete([f"fares/{file}"])
    assert reading.page()["problems"] == [], "a repaired file is read again"


def test_unknown_and_impossible_names(reading: Reading) -> None:
    with pytest.raises(UnknownJobError, match="no job 'nothing'"):
        reading.reader.page("nothing")
    for name in ("", "..", "a/b", "../fares", "_alerts", "a" * 300):
        with pytest.raises(InvalidNameError):
            reading.reader.page(name)


def test_alerts_savepoints_and_changes(reading: Reading) -> None:
    job, store = reading.job, reading.job.world.store
    last = job.commit(1)
    job.world.want(version="2")
    on = ThresholdStates(warn=ThresholdState(on=True, above=True, since=last.processing_time))
    firing = Condition("check", "fares.whole", on, fired_at=last.processing_time, text="failed; password=hunter2")
    alerts = JobAlerts("fares", (firing, Condition("lag", "fares", told="warn", since=last.processing_time, text="over, not sent yet")))
    assert write_alerts(store, AlertRecord(0, JobAlerts("fares")), alerts) is not None
    take_savepoints(job, last, SAVEPOINTS + 3)
    page = reading.page()
    (found,) = page["alerts"]
    assert (found["rule"], found["subject"], found["severity"]) == ("check", "fares.whole", "warn")
    assert found["since"] == last.processing_time
    assert found["text"].startswith("failed; password=")
    assert "hunter2" not in json.dumps(page)
    names = [f"s{number}" for number in range(SAVEPOINTS + 3)]
    assert page["savepoints_in_all"] == len(names)
    assert [each["name"] for each in page["savepoints"]] == names[: -SAVEPOINTS - 1 : -1], "the newest first"
    assert page["savepoints"][0]["epoch"] == last.epoch
    assert page["savepoints"][0]["note"] == "before the new tariff"
    assert next(change["what"] for change in page["changes"] if change["kind"] == "asked").startswith("a test: version")
    assert page["generation"]["number"] == 2


def take_savepoints(job: RecordedJob, last: EpochProgress, count: int) -> None:
    term = job.world.driver(job.name).term
    assert term is not None
    term.append(EpochRecord(job.name, "a1", None, term.term, last.epoch, last.processing_time, "", last))
    savepoints = SavepointStore(job.world.store, job.name, job.world.clock)
    for number in range(count):
        job.world.clock.advance(1_000)
        savepoints.take(f"s{number}", by="ada", note="before the new tariff")


def test_a_poll_reads_a_few_files_however_old_the_job_is(reading: Reading) -> None:
    job = reading.job
    last = job.commit(3)
    take_savepoints(job, last, 30)
    first = reading.page()
    few = len(reading.counter.reads)
    assert len(first["savepoints"]) == SAVEPOINTS
    assert few <= 25, reading.counter.reads
    assert JobLog(job.world.store.at("fares"), "fares").load().epoch is not None
    for _ in range(3):
        assert tag_of(reading.page()) == tag_of(first), "nothing has changed but the time"
    assert len(reading.counter.operations) <= 13, reading.counter.operations
    idle = len(reading.counter.reads)
    job.commit(400)
    reading.page()
    busy = reading.counter.operations[:]
    assert len(reading.counter.reads) <= idle + 2, "the newest blocks of the history"
    assert len(busy) <= 16, busy
    assert not any("log/" in operation or "segments" in operation or "state/" in operation for operation in busy), busy


def test_the_first_page_of_an_old_job_reads_no_more_than_that_of_a_young_one() -> None:
    counts = []
    for epochs in (50, 900):
        job = RecordedJob(World())
        job.commit(epochs)
        old = Reading(job)
        old.page()
        counts.append(len(old.counter.reads))
    assert counts[0] == counts[1]


def test_the_tag_changes_with_what_the_page_shows(reading: Reading) -> None:
    reading.job.commit(2)
    before = reading.page()
    reading.job.commit(1)
    after = reading.page()
    assert tag_of(before) != tag_of(after)
    assert tag_of(after) == tag_of({**after, "at": 0})


def test_commands_name_the_store_if_they_need_it(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    reading.job.commit(1)
    commands = {each["what"]: each["command"] for each in reading.page()["commands"]}
    assert commands["take a savepoint"] == "tidemark savepoint trigger fares --store s3://bucket/jobs"
    assert commands["stop after the current epoch"] == "tidemark stop fares --store s3://bucket/jobs"
    monkeypatch.setenv("TIDEMARK_STORE", "s3://bucket/jobs")
    assert reading.page()["commands"][0]["command"] == "tidemark savepoint trigger fares"


def test_a_job_that_nobody_submitted_has_no_commands_that_need_a_spec() -> None:
    world = World()
    progress = EpochProgress("taxi", "a1", 0, world.clock.now_ms(), 5, 10, 1)
    HistoryWriter(world.store, "taxi").append(progress)
    submitted = RecordedJob(World())
    submitted.commit(1)
    status = read_status(submitted.world.store, "fares")
    assert status is not None
    write_status(world.store, replace(status, job="taxi", last=progress, load=None))
    page = PageReader(world.store, {}, clock=world.clock).page("taxi")
    assert [each["what"] for each in page["commands"]] == ["take a savepoint", "show the newest epochs"]  # type: ignore[attr-defined]
    assert page["generation"] is None


def test_stores_of_other_forms_hold_no_jobs(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = JobStore.open(str(tmp_path_factory.mktemp("store")))
    root.put("fares/notes.txt", b"no job")
    with pytest.raises(UnknownJobError):
        PageReader(root, {}).page("fares")
